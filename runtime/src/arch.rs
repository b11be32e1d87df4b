//! GPU architectures by compute capability.

use std::fmt;
use std::str::FromStr;

/// A compute capability, written `sm_90`: major 9, minor 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// Compute capability times ten: 75 for 7.5, 120 for 12.0.
    pub sm: u16,
}

impl Arch {
    /// The architecture of compute capability `sm / 10`.`sm % 10`.
    pub const fn new(sm: u16) -> Self {
        Self { sm }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)
    }
}

/// The text is not the name of an architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseArchError(String);

impl fmt::Display for ParseArchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not an architecture; write it as sm_90 or 90",
            self.0
        )
    }
}

impl std::error::Error for ParseArchError {}

impl FromStr for Arch {
    type Err = ParseArchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("sm_").unwrap_or(text);
        match digits.parse::<u16>() {
            Ok(sm) if (30..1000).contains(&sm) && digits.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(Self { sm })
            }
            _ => Err(ParseArchError(text.to_owned())),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Arch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints() {
        for sm in [70, 75, 90, 100, 120] {
            assert_eq!(Arch::new(sm).to_string().parse(), Ok(Arch::new(sm)));
        }
        assert_eq!("86".parse(), Ok(Arch::new(86)));
        for bad in ["", "sm_", "sm_9", "sm_90a", "+90", "compute_90", "99999"] {
            assert!(bad.parse::<Arch>().is_err(), "{bad}");
        }
    }
}
