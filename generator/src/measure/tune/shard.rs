//! A shard of the problems, for one of several GPUs or machines.

use std::fmt;
use std::str::FromStr;

/// Shard `index` of `count`, from 1, written `index/count`: every problem belongs to exactly one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

/// Not a valid shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a shard; write its number and the number of shards, such as 1/4, 2/4, 3/4 and 4/4"
)]
pub struct ParseShardError(String);

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { index: 1, count: 1 };

    /// Whether the problem at index `place` belongs to this shard. Consecutive problems, which tend to be of
    /// similar size, go to different shards.
    pub fn contains(&self, place: usize) -> bool {
        place % self.count == self.index - 1
    }
}

impl FromStr for Shard {
    type Err = ParseShardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseShardError(text.to_owned());
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let (index, count) = (number(index)?, number(count)?);
        match (1..=count).contains(&index) {
            true => Ok(Self { index, count }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_partition_the_problems() {
        for count in [1, 2, 3, 7] {
            for place in 0..20 {
                let parts = (1..=count).filter(|&index| Shard { index, count }.contains(place));
                assert_eq!(parts.count(), 1, "{place} of {count}");
            }
        }
        assert!((0..5).all(|place| Shard::WHOLE.contains(place)));
    }

    #[test]
    fn shards_round_trip_as_text() {
        for text in ["1/1", "1/4", "4/4", "12/100"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for text in ["", "1", "0/4", "5/4", "1/0", "a/2", "1/2/3", "-1/2", "1/ 2"] {
            let error = text.parse::<Shard>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{text}` is not a shard")),
                "{error}"
            );
        }
    }
}
