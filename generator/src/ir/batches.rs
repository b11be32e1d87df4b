//! The batches that a network is planned for.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Numbers of images, at least one and at most [`Batches::MAX_COUNT`], ascending, each from 1 to [`Batches::MAX_IMAGES`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Batches(Vec<u32>);

impl Batches {
    /// Largest number of batches: each is a plan of the whole network.
    pub const MAX_COUNT: usize = 16;

    /// Largest number of images where there are several batches: the driver has a table with an entry for each number.
    pub const MAX_IMAGES: u32 = 4096;

    /// These numbers, in any order.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    pub fn new(numbers: &[u32]) -> Result<Self, String> {
        if numbers.is_empty() {
            return Err("there is no batch; give at least one number".to_owned());
        }
        if numbers.len() > Self::MAX_COUNT {
            let (count, most) = (numbers.len(), Self::MAX_COUNT);
            return Err(format!("{count} batches are too many; give at most {most}"));
        }
        if numbers.contains(&0) {
            return Err("a batch of 0 images is not possible; give numbers from 1".to_owned());
        }
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("batch {} is given twice; remove one", twice[0]));
        }
        match sorted[..] {
            [.., last] if sorted.len() > 1 && last > Self::MAX_IMAGES => Err(format!(
                "batch {last} is too large; where there are several batches, they have at most {} images",
                Self::MAX_IMAGES
            )),
            _ => Ok(Self(sorted)),
        }
    }

    /// One batch.
    pub fn one(images: u32) -> Self {
        Self(vec![images])
    }

    /// The numbers, ascending.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// The largest number.
    pub fn largest(&self) -> u32 {
        self.0.last().copied().unwrap_or(1)
    }

    /// Whether there are several.
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}

/// `32`, or `1,4,8,32`.
impl fmt::Display for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

/// Reads `32` and `1,4,8,32`.
impl FromStr for Batches {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split(',').map(|number| {
            let number = number.trim();
            number.parse().map_err(|_| {
                format!("`{number}` is not a number of images; write 8, or several as 1,8,32")
            })
        });
        Self::new(&numbers.collect::<Result<Vec<u32>, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_ascending_and_distinct() {
        for (text, expected) in [
            ("8", Ok("8")),
            ("32,1, 8", Ok("1,8,32")),
            ("5000", Ok("5000")),
            (
                "",
                Err("`` is not a number of images; write 8, or several as 1,8,32"),
            ),
            (
                "1,x",
                Err("`x` is not a number of images; write 8, or several as 1,8,32"),
            ),
            ("4,1,4", Err("batch 4 is given twice; remove one")),
            (
                "0,1",
                Err("a batch of 0 images is not possible; give numbers from 1"),
            ),
            (
                "1,5000",
                Err(
                    "batch 5000 is too large; where there are several batches, they have at most 4096 images",
                ),
            ),
            (
                "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
                Err("17 batches are too many; give at most 16"),
            ),
        ] {
            let found = text.parse::<Batches>().map(|batches| batches.to_string());
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found, expected, "{text}");
        }
    }
}
