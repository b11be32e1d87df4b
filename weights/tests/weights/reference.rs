//! Convolution and BatchNorm by their definitions, in f64.

/// An NCHW image with batch 1: [channels, height, width].
#[derive(Clone)]
pub struct Image {
    pub size: [usize; 3],
    pub values: Vec<f64>,
}

impl Image {
    fn at(&self, c: usize, y: isize, x: isize) -> f64 {
        let [_, height, width] = self.size;
        if y < 0 || x < 0 || y >= height as isize || x >= width as isize {
            return 0.0;
        }
        self.values[(c * height + y as usize) * width + x as usize]
    }

    pub fn map_channels(&self, f: impl Fn(usize, f64) -> f64) -> Self {
        let pixels = self.size[1] * self.size[2];
        let values = self.values.iter().enumerate();
        Self {
            size: self.size,
            values: values.map(|(at, &v)| f(at / pixels, v)).collect(),
        }
    }
}

pub struct Window {
    pub stride: usize,
    pub padding: usize,
    pub groups: usize,
}

pub const POINTWISE: Window = Window {
    stride: 1,
    padding: 0,
    groups: 1,
};

/// Convolution with a weight [O, I / groups, R, S].
pub fn conv(image: &Image, weight: &[f64], shape: [usize; 4], window: &Window) -> Image {
    let [o, i, r, s] = shape;
    let [channels, height, width] = image.size;
    assert_eq!(channels, i * window.groups);
    assert_eq!(weight.len(), o * i * r * s);
    let out_height = (height + 2 * window.padding - r) / window.stride + 1;
    let out_width = (width + 2 * window.padding - s) / window.stride + 1;
    let mut values = Vec::new();
    for n in 0..o {
        let group = n / (o / window.groups);
        for y in 0..out_height {
            for x in 0..out_width {
                let mut sum = 0.0;
                for c in 0..i {
                    for dy in 0..r {
                        for dx in 0..s {
                            let row = (y * window.stride + dy) as isize - window.padding as isize;
                            let column =
                                (x * window.stride + dx) as isize - window.padding as isize;
                            sum += image.at(group * i + c, row, column)
                                * weight[((n * i + c) * r + dy) * s + dx];
                        }
                    }
                }
                values.push(sum);
            }
        }
    }
    Image {
        size: [o, out_height, out_width],
        values,
    }
}

pub fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = square(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    (difference / square(&mut expected.iter().copied())).sqrt()
}

pub fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}
