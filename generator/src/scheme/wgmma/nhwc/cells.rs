//! The grid of cells that lets rows of the matrix product be consecutive in shared memory.
//!
//! An image has a grid of cells, row by row, and the grids of a batch follow each other. Cell (y, x) has the output (y, x), if there is
//! one. With a stride of (a, b) it also has a·b input pixels, one of each *phase*: pixel (a·y + i, b·x + j) in phase (i, j). Cells beyond
//! the image are zero: a row of cells is so much wider than the image that what a filter reads left or right of the image are cells of
//! the row's end, and likewise above and below. All outputs then read a filter tap at the same distance of cells, also across rows and
//! images. Padding is stored once between two rows, not on both sides of each.

use tdc_runtime::ConvShape;

/// One phase of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Phase {
    /// Row and column of the phase's first pixel: less than the strides.
    pub(super) pixel: [u32; 2],
    /// Distance from the cell of an output to the first cell that its taps read; may be negative.
    pub(super) first: i64,
    /// Distance from there to the last one.
    pub(super) span: u32,
}

/// A filter tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tap {
    /// Index of its phase.
    pub(super) phase: usize,
    /// Distance of the cells that it reads from the first ones of its phase.
    pub(super) offset: u32,
}

/// The cells of a convolution.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cells {
    /// Rows and columns of cells of an image.
    pub(super) grid: [u32; 2],
    /// The phases that the filter reads.
    pub(super) phases: Vec<Phase>,
    /// In the order of the filter's rows, then columns.
    pub(super) taps: Vec<Tap>,
}

/// What the taps of an axis read: the phase of each, and its distance in cells.
fn axis_taps(taps: u32, stride: u32, dilation: u32, pad_before: u32) -> Vec<(u32, i64)> {
    let stride = i64::from(stride);
    let reads = (0..taps).map(|tap| i64::from(tap * dilation) - i64::from(pad_before));
    reads
        .map(|at| (at.rem_euclid(stride) as u32, at.div_euclid(stride)))
        .collect()
}

/// Cells of an axis with `outputs` outputs and `inputs` pixels.
fn axis_cells(taps: &[(u32, i64)], stride: u32, inputs: u32, outputs: u32) -> u32 {
    let needed = taps.iter().map(|&(phase, distance)| {
        let pixels = i64::from(inputs.saturating_sub(phase).div_ceil(stride));
        // Zeros behind the pixels, before which the next ones begin.
        let before = pixels + (-distance).max(0);
        before.max(i64::from(outputs) + distance)
    });
    needed.max().unwrap_or(0).max(i64::from(outputs)) as u32
}

impl Cells {
    pub(super) fn new(shape: &ConvShape) -> Self {
        let padding = shape.padding;
        let rows = axis_taps(shape.r, shape.stride[0], shape.dilation[0], padding.top);
        let columns = axis_taps(shape.s, shape.stride[1], shape.dilation[1], padding.left);
        let grid = [
            axis_cells(&rows, shape.stride[0], shape.h, shape.out_h()),
            axis_cells(&columns, shape.stride[1], shape.w, shape.out_w()),
        ];
        let all = rows.iter().flat_map(|&(row, down)| {
            let distance = move |right| down * i64::from(grid[1]) + right;
            let of_row = columns.iter();
            of_row.map(move |&(column, right)| ([row, column], distance(right)))
        });
        let all: Vec<([u32; 2], i64)> = all.collect();
        let mut pixels: Vec<[u32; 2]> = all.iter().map(|&(pixel, _)| pixel).collect();
        pixels.sort_unstable();
        pixels.dedup();
        let phase = |&pixel: &[u32; 2]| {
            let of_phase = all.iter().filter(|&&(of_tap, _)| of_tap == pixel);
            let distances = || of_phase.clone().map(|&(_, distance)| distance);
            let first = distances().min().unwrap_or(0);
            let span = (distances().max().unwrap_or(0) - first) as u32;
            Phase { pixel, first, span }
        };
        let phases: Vec<Phase> = pixels.iter().map(phase).collect();
        let tap = |&(pixel, distance): &([u32; 2], i64)| {
            let phase = phases.iter().position(|phase| phase.pixel == pixel);
            let phase = phase.expect("each tap has a phase");
            Tap {
                phase,
                offset: (distance - phases[phase].first) as u32,
            }
        };
        Self {
            grid,
            taps: all.iter().map(tap).collect(),
            phases,
        }
    }

    /// Cells of an image.
    pub(super) fn of_image(&self) -> u64 {
        u64::from(self.grid[0]) * u64::from(self.grid[1])
    }

    /// Whether each cell has an output and one pixel, both at the same place: a filter of one tap without stride and padding.
    pub(super) fn are_pixels(&self, shape: &ConvShape) -> bool {
        let pixels = [shape.h, shape.w];
        self.taps.len() == 1
            && self.phases[0].first == 0
            && self.grid == pixels
            && [shape.out_h(), shape.out_w()] == pixels
    }

    /// Cells from the first to the last one that has an output, of all images.
    pub(super) fn with_outputs(&self, shape: &ConvShape) -> u64 {
        let rows = u64::from(shape.out_h() - 1);
        let last = rows * u64::from(self.grid[1]) + u64::from(shape.out_w());
        u64::from(shape.batch - 1) * self.of_image() + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tdc_runtime::Padding;

    /// What each output reads by taps and cells, against the definition of a convolution.
    fn assert_reads(shape: &ConvShape) {
        let cells = Cells::new(shape);
        let images = cells.of_image() as i64;
        let pixel_of = |phase: &Phase, cell: i64| {
            let (image, cell) = (cell.div_euclid(images), cell.rem_euclid(images));
            let [row, column] = [
                cell as u32 / cells.grid[1] * shape.stride[0] + phase.pixel[0],
                cell as u32 % cells.grid[1] * shape.stride[1] + phase.pixel[1],
            ];
            let inside =
                (0..i64::from(shape.batch)).contains(&image) && row < shape.h && column < shape.w;
            inside.then_some((image as u32, row, column))
        };
        for image in 0..shape.batch {
            for (y, x) in (0..shape.out_h()).flat_map(|y| (0..shape.out_w()).map(move |x| (y, x))) {
                let cell = i64::from(image) * images + i64::from(y * cells.grid[1] + x);
                assert!(cell < cells.with_outputs(shape) as i64);
                for (i, tap) in cells.taps.iter().enumerate() {
                    let (r, s) = (i as u32 / shape.s, i as u32 % shape.s);
                    let row = (y * shape.stride[0] + r * shape.dilation[0])
                        .checked_sub(shape.padding.top)
                        .filter(|&row| row < shape.h);
                    let column = (x * shape.stride[1] + s * shape.dilation[1])
                        .checked_sub(shape.padding.left)
                        .filter(|&column| column < shape.w);
                    let expected = row.zip(column).map(|(row, column)| (image, row, column));
                    let phase = &cells.phases[tap.phase];
                    assert!(tap.offset <= phase.span);
                    let read = pixel_of(phase, cell + phase.first + i64::from(tap.offset));
                    assert_eq!(read, expected, "{shape:?}, output {y}, {x}, tap {r}, {s}");
                }
            }
        }
    }

    #[test]
    fn outputs_read_their_pixels_and_zeros() {
        let mut checked = 0;
        for (h, w) in [(1, 1), (2, 3), (5, 4), (7, 7)] {
            for (r, s) in [(1, 1), (3, 3), (1, 3), (4, 2), (7, 7)] {
                for stride in [[1, 1], [2, 2], [1, 3], [3, 2]] {
                    for dilation in [[1, 1], [2, 1], [3, 3]] {
                        for padding in [[0; 4], [1; 4], [3; 4], [0, 2, 1, 5], [4, 0, 6, 1]] {
                            let [top, left, bottom, right] = padding;
                            let shape = ConvShape {
                                batch: 2,
                                stride,
                                dilation,
                                padding: Padding {
                                    top,
                                    left,
                                    bottom,
                                    right,
                                },
                                ..ConvShape::new(16, 8, h, w, r, s)
                            };
                            let reach = [
                                (r - 1) * dilation[0] < h + top + bottom,
                                (s - 1) * dilation[1] < w + left + right,
                            ];
                            if reach == [true; 2] {
                                assert_reads(&shape);
                                checked += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(checked > 400, "{checked}");
    }

    #[test]
    fn many_cells_are_counted_without_overflow() {
        let shape = ConvShape {
            batch: 1 << 24,
            padding: Padding::all(1000),
            ..ConvShape::new(16, 8, 1, 1, 1, 1)
        };
        // Cells are those of the outputs, most of which read padding only.
        let cells = Cells::new(&shape);
        assert_eq!(cells.of_image(), 2001 * 2001);
        assert_eq!(cells.with_outputs(&shape), (1 << 24) * 2001 * 2001);
    }

    #[test]
    fn padding_is_stored_once() {
        let shape = ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(64, 64, 14, 14, 3, 3)
        };
        let cells = Cells::new(&shape);
        assert_eq!(cells.grid, [15, 15]);
        assert_eq!(cells.phases.len(), 1);
        assert_eq!((cells.phases[0].first, cells.phases[0].span), (-16, 32));
        assert!(!cells.are_pixels(&shape));
        assert!(Cells::new(&ConvShape::new(64, 64, 14, 14, 1, 1)).are_pixels(&shape));
    }
}
