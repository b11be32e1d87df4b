//! The environment of measured times: machine and versions.

use super::TuningError;
use std::fmt;

/// The machine and the versions with which times were measured: the header of a table, with a line `key: value` for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The GPU's name in configs.
    pub gpu: String,
    /// The driver's name of the device, which differs between boards of one product line.
    pub device: String,
    /// The driver's version.
    pub driver: String,
    /// The compiler's version.
    pub nvrtc: String,
    /// The generator's version.
    pub generator: String,
}

/// Lines with their numbers, from 1.
type Rows<'a> = Vec<(usize, &'a str)>;

impl Environment {
    const KEYS: [&'static str; 5] = ["gpu", "device", "driver", "nvrtc", "generator"];

    fn values(&self) -> [&str; 5] {
        let Self {
            gpu,
            device,
            driver,
            nvrtc,
            generator,
        } = self;
        [gpu, device, driver, nvrtc, generator]
    }

    /// Reads a text: its header, and its rows with their line numbers from 1. Empty lines and those that start with `#` are
    /// ignored. A line of the header starts with a key and a colon.
    ///
    /// # Errors
    /// A key that is missing, unknown or a duplicate.
    pub(crate) fn read(text: &str) -> Result<(Self, Rows<'_>), TuningError> {
        let mut values: [Option<String>; 5] = Default::default();
        let mut rows = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let (line, number) = (line.trim(), index + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let header = line
                .split_once(':')
                .filter(|(key, _)| !key.contains(char::is_whitespace));
            let Some((key, value)) = header else {
                rows.push((number, line));
                continue;
            };
            let place = Self::KEYS.iter().position(|known| *known == key);
            match place.map(|place| &mut values[place]) {
                Some(slot @ None) => *slot = Some(value.trim().to_owned()),
                _ => {
                    return Err(TuningError::HeaderKey {
                        line: number,
                        key: key.to_owned(),
                    });
                }
            }
        }
        let missing = values
            .iter()
            .position(|value| value.as_deref().unwrap_or("").is_empty());
        if let Some(missing) = missing {
            return Err(TuningError::MissingHeaderKey {
                key: Self::KEYS[missing],
            });
        }
        let [gpu, device, driver, nvrtc, generator] = values.map(Option::unwrap_or_default);
        let environment = Self {
            gpu,
            device,
            driver,
            nvrtc,
            generator,
        };
        Ok((environment, rows))
    }

    /// Checks that times of both environments may be compared.
    ///
    /// # Errors
    /// [`TuningError::Environment`] with the first difference.
    pub fn check_same(&self, other: &Self) -> Result<(), TuningError> {
        let pairs = self.values().into_iter().zip(other.values());
        match Self::KEYS.iter().zip(pairs).find(|(_, (a, b))| a != b) {
            None => Ok(()),
            Some((&key, (here, there))) => Err(TuningError::Environment {
                key,
                here: here.to_owned(),
                there: there.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in Self::KEYS.iter().zip(self.values()) {
            writeln!(f, "{key}: {value}")?;
        }
        Ok(())
    }
}
