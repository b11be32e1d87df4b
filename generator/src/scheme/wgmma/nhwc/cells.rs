//! The grid of cells that lets rows of the matrix product be consecutive in shared memory.
//!
//! An image has a grid of cells, row by row, and the grids of a batch follow each other. Cell (y, x) has the output (y, x), if there is
//! one. With a stride of (a, b) it also has a·b input pixels, one of each *phase*: pixel (a·y + i, b·x + j) in phase (i, j). Cells beyond
//! the image are zero: a row of cells is so much wider than the image that what a filter reads left or right of the image are cells of
//! the row's end, and likewise above and below. All outputs then read a filter tap at the same distance of cells, also across rows and
//! images. Padding is stored once between two rows, not on both sides of each.
//!
//! A filter with dilation reads pixels whose rows have the same *residue* modulo the dilation, and likewise their columns. An image then has a
//! grid for each residue, with the pixels and outputs of this residue, in which the filter has no dilation: its taps are a few cells apart, not
//! many rows of the image. That needs padding by a multiple of the dilation, and a stride of 1; else the grid is that of the image.

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
    /// Rows and columns of a grid of cells.
    pub(super) grid: [u32; 2],
    /// Residues of rows and columns, which have grids of their own.
    pub(super) residues: [u32; 2],
    /// The phases that the filter reads.
    pub(super) phases: Vec<Phase>,
    /// In the order of the filter's rows, then columns.
    pub(super) taps: Vec<Tap>,
}

/// A convolution along one axis.
#[derive(Clone, Copy)]
struct Axis {
    taps: u32,
    stride: u32,
    dilation: u32,
    pad_before: u32,
    inputs: u32,
    outputs: u32,
}

impl Axis {
    /// Rows (0) or columns (1) of a convolution.
    fn new(shape: &ConvShape, axis: usize) -> Self {
        let padding = shape.padding;
        Self {
            taps: [shape.r, shape.s][axis],
            stride: shape.stride[axis],
            dilation: shape.dilation[axis],
            pad_before: [padding.top, padding.left][axis],
            inputs: [shape.h, shape.w][axis],
            outputs: [shape.out_h(), shape.out_w()][axis],
        }
    }

    /// Residues that have grids of their own.
    fn residues(&self) -> u32 {
        let has_residues =
            self.taps > 1 && self.stride == 1 && self.pad_before.is_multiple_of(self.dilation);
        if has_residues { self.dilation } else { 1 }
    }

    /// The convolution of one of these residues, that with the most inputs and outputs.
    fn of_residue(self) -> Self {
        let residues = self.residues();
        Self {
            dilation: self.dilation / residues,
            pad_before: self.pad_before / residues,
            inputs: self.inputs.div_ceil(residues),
            outputs: self.outputs.div_ceil(residues),
            ..self
        }
    }

    /// What the taps read: the phase of each, and its distance in cells.
    fn reads(&self) -> Vec<(u32, i64)> {
        let stride = i64::from(self.stride);
        let reads =
            (0..self.taps).map(|tap| i64::from(tap * self.dilation) - i64::from(self.pad_before));
        reads
            .map(|at| (at.rem_euclid(stride) as u32, at.div_euclid(stride)))
            .collect()
    }

    /// Cells of the axis, if its taps read `reads`.
    fn cells(&self, reads: &[(u32, i64)]) -> u32 {
        let needed = reads.iter().map(|&(phase, distance)| {
            let pixels = i64::from(self.inputs.saturating_sub(phase).div_ceil(self.stride));
            // Zeros behind the pixels, before which the next ones begin.
            let before = pixels + (-distance).max(0);
            before.max(i64::from(self.outputs) + distance)
        });
        needed.max().unwrap_or(0).max(i64::from(self.outputs)) as u32
    }
}

impl Cells {
    pub(super) fn new(shape: &ConvShape) -> Self {
        let axes = [0, 1].map(|axis| Axis::new(shape, axis));
        let residues = axes.map(|axis| axis.residues());
        let axes = axes.map(Axis::of_residue);
        let [rows, columns] = axes.map(|axis| axis.reads());
        let grid = [axes[0].cells(&rows), axes[1].cells(&columns)];
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
            residues,
            taps: all.iter().map(tap).collect(),
            phases,
        }
    }

    /// Cells of a grid, which are those of one residue.
    pub(super) fn of_residue(&self) -> u64 {
        u64::from(self.grid[0]) * u64::from(self.grid[1])
    }

    /// Cells of an image.
    pub(super) fn of_image(&self) -> u64 {
        u64::from(self.residues[0]) * u64::from(self.residues[1]) * self.of_residue()
    }

    /// Whether an image has grids of several residues.
    pub(super) fn have_residues(&self) -> bool {
        self.residues != [1, 1]
    }

    /// Whether each cell has an output and one pixel, both at the same place: a filter of one tap without stride and padding.
    pub(super) fn are_pixels(&self, shape: &ConvShape) -> bool {
        let pixels = [shape.h, shape.w];
        self.taps.len() == 1
            && self.phases[0].first == 0
            && self.grid == pixels
            && [shape.out_h(), shape.out_w()] == pixels
    }

    /// Cells of all images, to the last one that may have an output.
    pub(super) fn with_outputs(&self, shape: &ConvShape) -> u64 {
        let [rows, columns] = [0, 1].map(|axis| Axis::new(shape, axis).of_residue().outputs);
        let last = u64::from(rows - 1) * u64::from(self.grid[1]) + u64::from(columns);
        u64::from(shape.batch) * self.of_image() - self.of_residue() + last
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
        let grids = cells.of_residue() as i64;
        let pixel_of = |phase: &Phase, cell: i64| {
            let (image, cell) = (cell.div_euclid(images), cell.rem_euclid(images));
            let (residue, cell) = ((cell / grids) as u32, (cell % grids) as u32);
            let steps = [0, 1].map(|axis| shape.stride[axis] * cells.residues[axis]);
            let [row, column] = [
                cell / cells.grid[1] * steps[0] + residue / cells.residues[1] + phase.pixel[0],
                cell % cells.grid[1] * steps[1] + residue % cells.residues[1] + phase.pixel[1],
            ];
            let inside =
                (0..i64::from(shape.batch)).contains(&image) && row < shape.h && column < shape.w;
            inside.then_some((image as u32, row, column))
        };
        for image in 0..shape.batch {
            for (y, x) in (0..shape.out_h()).flat_map(|y| (0..shape.out_w()).map(move |x| (y, x))) {
                let [rows, columns] = cells.residues;
                let residue = i64::from(y % rows * columns + x % columns);
                let cell = i64::from(y / rows * cells.grid[1] + x / columns);
                let cell = i64::from(image) * images + residue * grids + cell;
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
                    for dilation in [[1, 1], [2, 1], [3, 3], [4, 8]] {
                        for padding in [[0; 4], [1; 4], [3; 4], [0, 2, 1, 5], [4, 8, 6, 1]] {
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

    /// A 3x3 filter whose dilation is more than half of the image (DeepLab's last one).
    #[test]
    fn taps_of_a_dilated_filter_are_near_each_other() {
        let shape = ConvShape {
            dilation: [36; 2],
            padding: Padding::all(36),
            ..ConvShape::new(16, 8, 64, 64, 3, 3)
        };
        let cells = Cells::new(&shape);
        assert_eq!((cells.grid, cells.residues), ([3, 3], [36, 36]));
        assert_eq!((cells.phases[0].first, cells.phases[0].span), (-4, 8));
        assert_reads(&shape);
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
