//! Finds the CUDA compilers on this machine.

use super::cache::cache_dir;
use super::install::component_dir;
use super::nvrtc::{LoadError, Nvrtc, Options};
use super::{ByArch, CompilerVersion, Component, NvrtcFiles};
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

/// The environment variable that names a directory with NVRTC.
pub const NVRTC_DIR_VARIABLE: &str = "TDC_NVRTC_DIR";

/// Where to search, in the order of the fields. [`Search::from_env`] is the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Search {
    /// A directory with NVRTC, given by the user; no other is searched if it does not contain one.
    pub nvrtc_dir: Option<PathBuf>,
    /// The cache that packages are installed into.
    pub cache_dir: Option<PathBuf>,
    /// Python's virtual environments.
    pub environments: Vec<PathBuf>,
    /// CUDA toolkits.
    pub toolkits: Vec<PathBuf>,
    /// Directories in which programs are searched.
    pub path: Vec<PathBuf>,
    /// The C++ compiler given by the user, possibly with arguments.
    pub cxx: Option<String>,
    /// Whether python3 and the loader are asked for an NVRTC 13 that was not found elsewhere.
    pub search_system: bool,
    /// Problems with the environment itself.
    pub notes: Vec<String>,
}

/// Where a tool was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `$TDC_NVRTC_DIR`.
    NvrtcDir,
    /// The cache of `tdc`.
    Cache,
    /// A virtual environment.
    Environment,
    /// A CUDA toolkit.
    Toolkit,
    /// The packages of python3.
    Python,
    /// The loader path.
    Loader,
    /// `$CXX`.
    Cxx,
    /// `$PATH`.
    Path,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NvrtcDir => "$TDC_NVRTC_DIR",
            Self::Cache => "cache",
            Self::Environment => "virtual environment",
            Self::Toolkit => "CUDA toolkit",
            Self::Python => "Python package",
            Self::Loader => "loader path",
            Self::Cxx => "$CXX",
            Self::Path => "$PATH",
        })
    }
}

/// An NVRTC that was found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FoundNvrtc {
    /// Its version.
    pub version: CompilerVersion,
    /// Its files; `None` if only the loader knows the path.
    pub files: Option<NvrtcFiles>,
    /// Where it was found.
    pub origin: Origin,
}

impl FoundNvrtc {
    /// Loads it.
    ///
    /// [`LoadError`] if it cannot be loaded.
    /// [`LoadError`] when it cannot be loaded.
    pub fn open(&self) -> Result<Nvrtc, LoadError> {
        match &self.files {
            Some(files) => Nvrtc::open(files),
            None => Nvrtc::from_loader_path(),
        }
    }
}

/// A program that was found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FoundProgram {
    /// The version that the program reports.
    pub version: String,
    /// The program.
    pub program: PathBuf,
    /// Leading arguments.
    pub arguments: Vec<String>,
    /// Where it was found.
    pub origin: Origin,
}

/// The CUDA compilers of this machine; `Display` prints a report.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Toolkit {
    /// NVRTC 13, for sm_75 and later.
    pub nvrtc13: Option<FoundNvrtc>,
    /// NVRTC 12, for sm_70.
    pub nvrtc12: Option<FoundNvrtc>,
    /// nvcc, for complete programs.
    pub nvcc: Option<FoundProgram>,
    /// The C++ compiler, which nvcc and the CPU emulation need.
    pub cxx: Option<FoundProgram>,
    /// The cache that packages are installed into.
    pub cache_dir: Option<PathBuf>,
    /// Tools that were found but cannot be used, with the reasons.
    pub notes: Vec<String>,
}

impl Search {
    /// A search by the environment variables and the current directory.
    pub fn from_env() -> Self {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let dir = |name| variable(name).map(PathBuf::from);
        let (cache_dir, notes) = match cache_dir() {
            Ok(dir) => (Some(dir), vec![]),
            Err(error) => (None, vec![error.to_string()]),
        };
        Self {
            nvrtc_dir: dir(NVRTC_DIR_VARIABLE),
            cache_dir,
            environments: dir("VIRTUAL_ENV")
                .into_iter()
                .chain([".cuda".into(), ".venv".into()])
                .map(|dir| absolute(&dir).unwrap_or(dir))
                .collect(),
            toolkits: [dir("CUDA_HOME"), dir("CUDA_PATH")]
                .into_iter()
                .flatten()
                .chain(["/usr/local/cuda".into()])
                .collect(),
            path: variable("PATH").map_or_else(Vec::new, |path| env::split_paths(&path).collect()),
            cxx: variable("CXX").and_then(|value| value.into_string().ok()),
            search_system: true,
            notes,
        }
    }

    /// The `nvidia` directories of Python packages: those of virtual environments, then those of python3.
    pub fn nvidia_packages(&self) -> Vec<PathBuf> {
        let environments = self.environments.iter().flat_map(|dir| site_packages(dir));
        let mut found: Vec<_> = environments.map(|dir| dir.join("nvidia")).collect();
        if self.search_system {
            found.extend(python_packages());
        }
        found
    }

    /// Loads every NVRTC that is found, as one compiler; other tools are not searched.
    ///
    /// # Errors
    /// As [`Toolkit::compiler`].
    pub fn compiler(&self, options: Options) -> Result<ByArch<Nvrtc>, LoadError> {
        let mut notes = self.notes.clone();
        let (nvrtc13, nvrtc12) = self.find_nvrtcs(&mut notes);
        compiler([&nvrtc13, &nvrtc12], &notes, options)
    }

    /// Searches the machine.
    pub fn find(self) -> Toolkit {
        let mut notes = self.notes.clone();
        let (nvrtc13, nvrtc12) = self.find_nvrtcs(&mut notes);
        Toolkit {
            nvrtc13,
            nvrtc12,
            nvcc: self.nvcc(&mut notes),
            cxx: self.cxx(&mut notes),
            cache_dir: self.cache_dir,
            notes,
        }
    }

    fn find_nvrtcs(&self, notes: &mut Vec<String>) -> (Option<FoundNvrtc>, Option<FoundNvrtc>) {
        if let Some(dir) = &self.nvrtc_dir
            && NvrtcFiles::in_dir(dir, None).is_none()
        {
            notes.push(format!(
                "{NVRTC_DIR_VARIABLE}={} does not contain libnvrtc.so.13 and libnvrtc-builtins.so.13.x; correct or unset it",
                dir.display()
            ));
            return (None, None);
        }
        let mut places = self.nvrtc_places();
        let found = |places: &[(Origin, PathBuf)], major| {
            places.iter().find_map(|(origin, dir)| {
                let files = NvrtcFiles::in_dir(dir, Some(major))?;
                Some(FoundNvrtc {
                    version: files.version,
                    files: Some(files),
                    origin: *origin,
                })
            })
        };
        let mut nvrtc13 = found(&places, 13);
        if nvrtc13.is_none() && self.search_system {
            places.extend(
                python_packages()
                    .iter()
                    .flat_map(|dir| wheel_dirs(dir))
                    .map(|dir| (Origin::Python, dir)),
            );
            nvrtc13 = found(&places, 13);
        }
        let mut nvrtc12 = found(&places, 12);
        if nvrtc13.is_none()
            && self.search_system
            && let Some(known) = nvrtc_on_loader_path(notes)
        {
            match known.version.major {
                13 => nvrtc13 = Some(known),
                12 => nvrtc12 = nvrtc12.or(Some(known)),
                _ => notes.push(format!(
                    "NVRTC {} on the loader path is not used; supported are 12 and 13",
                    known.version
                )),
            }
        }
        (nvrtc13, nvrtc12)
    }

    fn nvrtc_places(&self) -> Vec<(Origin, PathBuf)> {
        let mut places = Vec::new();
        if let Some(dir) = &self.nvrtc_dir {
            places.push((Origin::NvrtcDir, dir.clone()));
        }
        if let Some(cache) = &self.cache_dir {
            for component in Component::ALL {
                let packages = component_dir(cache, component).join("nvidia");
                places.extend(wheel_dirs(&packages).map(|dir| (Origin::Cache, dir)));
            }
        }
        for environment in &self.environments {
            for packages in site_packages(environment) {
                let packages = packages.join("nvidia");
                places.extend(wheel_dirs(&packages).map(|dir| (Origin::Environment, dir)));
            }
        }
        for toolkit in &self.toolkits {
            places.push((Origin::Toolkit, toolkit.join("lib64")));
        }
        places
    }

    fn nvcc(&self, notes: &mut Vec<String>) -> Option<FoundProgram> {
        let cached = self
            .cache_dir
            .iter()
            .map(|cache| component_dir(cache, Component::Nvcc).join("nvidia/cu13/bin"));
        let dirs = cached
            .map(|dir| (Origin::Cache, dir))
            .chain(self.path.iter().map(|dir| (Origin::Path, dir.clone())))
            .chain(
                self.toolkits
                    .iter()
                    .map(|dir| (Origin::Toolkit, dir.join("bin"))),
            );
        dirs.map(|(origin, dir)| (origin, dir.join("nvcc")))
            .filter(|(_, program)| program.is_file())
            .find_map(|(origin, program)| {
                FoundProgram::probe(program, vec![], origin, nvcc_version, notes)
            })
    }

    fn cxx(&self, notes: &mut Vec<String>) -> Option<FoundProgram> {
        let in_path = |name: &str| {
            let mut programs = self.path.iter().map(|dir| dir.join(name));
            programs.find(|program| program.is_file())
        };
        if let Some(cxx) = &self.cxx {
            let mut words = cxx.split_whitespace().map(str::to_owned);
            let name = words.next()?;
            let program = if name.contains('/') {
                Some(PathBuf::from(&name))
            } else {
                in_path(&name)
            };
            let Some(program) = program else {
                notes.push(format!(
                    "CXX={cxx}: `{name}` was not found in $PATH; correct or unset it"
                ));
                return None;
            };
            return FoundProgram::probe(program, words.collect(), Origin::Cxx, first_line, notes);
        }
        ["c++", "g++"].into_iter().find_map(|name| {
            FoundProgram::probe(in_path(name)?, vec![], Origin::Path, first_line, notes)
        })
    }
}

impl FoundProgram {
    /// The program, if it reports its version.
    fn probe(
        program: PathBuf,
        arguments: Vec<String>,
        origin: Origin,
        version: fn(&str) -> Option<String>,
        notes: &mut Vec<String>,
    ) -> Option<Self> {
        let answer = Command::new(&program)
            .args(&arguments)
            .arg("--version")
            .output();
        let version_result = match answer {
            Ok(answer) => version(&String::from_utf8_lossy(&answer.stdout))
                .ok_or_else(|| "does not report a version".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match version_result {
            Ok(version) => Some(Self {
                version,
                program,
                arguments,
                origin,
            }),
            Err(reason) => {
                notes.push(format!("{}: {reason}; it is not used", program.display()));
                None
            }
        }
    }
}

/// `13.0.88` of nvcc's `Cuda compilation tools, release 13.0, V13.0.88`.
fn nvcc_version(answer: &str) -> Option<String> {
    let (_, version) = answer.split_once(", V")?;
    Some(version.split_whitespace().next()?.to_owned())
}

fn first_line(answer: &str) -> Option<String> {
    let line = answer.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The directories with NVRTC inside the package directory `nvidia`: that of CUDA 13 and that of CUDA 12.
fn wheel_dirs(packages: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    [packages.join("cu13/lib"), packages.join("cuda_nvrtc/lib")].into_iter()
}

/// `lib/python*/site-packages` of a virtual environment.
fn site_packages(environment: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(environment.join("lib")) else {
        return vec![];
    };
    let mut dirs: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|dir| {
            let name = dir.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("python"))
        })
        .map(|dir| dir.join("site-packages"))
        .collect();
    dirs.sort();
    dirs
}

/// The `nvidia` directories of python3's own packages; none if there is no python3.
fn python_packages() -> Vec<PathBuf> {
    const PROGRAM: &str = "from importlib.util import find_spec\n\
                           spec = find_spec('nvidia')\n\
                           for dir in spec.submodule_search_locations if spec else []: print(dir)";
    match Command::new("python3").args(["-c", PROGRAM]).output() {
        Ok(answer) => String::from_utf8_lossy(&answer.stdout)
            .lines()
            .map(PathBuf::from)
            .collect(),
        Err(_) => vec![],
    }
}

fn nvrtc_on_loader_path(notes: &mut Vec<String>) -> Option<FoundNvrtc> {
    match Nvrtc::from_loader_path() {
        Ok(nvrtc) => Some(FoundNvrtc {
            version: nvrtc.version(),
            files: None,
            origin: Origin::Loader,
        }),
        Err(LoadError::NotOnLoaderPath) => None,
        Err(error) => {
            notes.push(error.to_string());
            None
        }
    }
}

impl Toolkit {
    /// Searches this machine by the environment variables.
    pub fn find() -> Self {
        Search::from_env().find()
    }

    /// Loads every NVRTC that was found, as one compiler.
    ///
    /// # Errors
    /// [`LoadError`] if there is none, or one cannot be loaded.
    pub fn compiler(&self, options: Options) -> Result<ByArch<Nvrtc>, LoadError> {
        compiler([&self.nvrtc13, &self.nvrtc12], &self.notes, options)
    }
}

/// Loads the given libraries as one compiler.
fn compiler(
    found: [&Option<FoundNvrtc>; 2],
    notes: &[String],
    options: Options,
) -> Result<ByArch<Nvrtc>, LoadError> {
    let found: Vec<_> = found.into_iter().flatten().collect();
    if found.is_empty() {
        return Err(LoadError::NotFound {
            notes: notes.to_vec(),
        });
    }
    let opened = found
        .into_iter()
        .map(|found| Ok(found.open()?.with_options(options)));
    opened.collect::<Result<_, _>>().map(ByArch)
}

impl fmt::Display for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (component, found) in [
            (Component::Nvrtc13, &self.nvrtc13),
            (Component::Nvrtc12, &self.nvrtc12),
        ] {
            let title = component.title();
            match found {
                Some(FoundNvrtc {
                    version,
                    files: Some(files),
                    origin,
                }) => writeln!(
                    f,
                    "{title:<12}{version}, {origin}: {}",
                    files.library.display()
                )?,
                Some(found) => writeln!(f, "{title:<12}{}, {}", found.version, found.origin)?,
                None => writeln!(f, "{}", Missing(component))?,
            }
        }
        match &self.nvcc {
            Some(nvcc) => writeln!(f, "{:<12}{nvcc}", "nvcc")?,
            None => writeln!(f, "{}", Missing(Component::Nvcc))?,
        }
        match &self.cxx {
            Some(cxx) => writeln!(f, "{:<12}{cxx}", "C++")?,
            None => writeln!(
                f,
                "{:<12}not found (needed by nvcc and `verify` on the CPU): install g++ or clang++, or set CXX",
                "C++"
            )?,
        }
        match &self.cache_dir {
            Some(dir) => writeln!(f, "{:<12}{}", "cache", dir.display())?,
            None => writeln!(f, "{:<12}none", "cache")?,
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FoundProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}: {}",
            self.version,
            self.origin,
            self.program.display()
        )?;
        for argument in &self.arguments {
            write!(f, " {argument}")?;
        }
        Ok(())
    }
}

/// The report's line for a missing component.
struct Missing(Component);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needed_for = match self.0 {
            Component::Nvrtc13 => "compiles kernels for sm_75 and later",
            Component::Nvrtc12 => "compiles kernels for sm_70; only needed for that",
            Component::Nvcc => "compiles C++ drivers",
        };
        write!(
            f,
            "{:<12}not found ({needed_for}); install it with `{}`",
            self.0.title(),
            self.0.install_command()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_nvrtc(dir: &Path, version: &str) {
        let (major, _) = version.split_once('.').unwrap();
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(format!("libnvrtc.so.{major}")), "").unwrap();
        fs::write(dir.join(format!("libnvrtc-builtins.so.{version}")), "").unwrap();
    }

    fn origins(search: &Search) -> [Option<(String, Origin)>; 2] {
        let toolkit = search.clone().find();
        [toolkit.nvrtc13, toolkit.nvrtc12]
            .map(|found| found.map(|found| (found.version.to_string(), found.origin)))
    }

    #[test]
    fn places_are_searched_in_order() {
        let root = tempfile::tempdir().unwrap();
        let dir = |name: &str| root.path().join(name);
        let mut search = Search {
            cache_dir: Some(dir("cache")),
            environments: vec![dir("venv")],
            toolkits: vec![dir("cuda")],
            ..Search::default()
        };
        assert_eq!(origins(&search), [None, None]);

        put_nvrtc(&dir("cuda/lib64"), "13.5");
        let toolkit = Some(("13.5".to_owned(), Origin::Toolkit));
        assert_eq!(origins(&search), [toolkit, None]);

        let packages = dir("venv/lib/python3.11/site-packages/nvidia");
        put_nvrtc(&packages.join("cu13/lib"), "13.3");
        put_nvrtc(&packages.join("cuda_nvrtc/lib"), "12.9");
        let environment = |version: &str| Some((version.to_owned(), Origin::Environment));
        assert_eq!(origins(&search), [environment("13.3"), environment("12.9")]);

        put_nvrtc(&dir("cache/nvrtc-13.0.88/nvidia/cu13/lib"), "13.0");
        put_nvrtc(
            &dir("cache/nvrtc-13.0.88.partial-1/package/nvidia/cu13/lib"),
            "13.9",
        );
        let cached = Some(("13.0".to_owned(), Origin::Cache));
        assert_eq!(origins(&search), [cached, environment("12.9")]);

        put_nvrtc(&dir("mine"), "13.1");
        search.nvrtc_dir = Some(dir("mine"));
        let mine = Some(("13.1".to_owned(), Origin::NvrtcDir));
        assert_eq!(origins(&search), [mine, environment("12.9")]);

        search.nvrtc_dir = Some(dir("nowhere"));
        assert_eq!(origins(&search), [None, None]);
        let toolkit = search.find();
        assert!(toolkit.notes[0].contains("correct or unset it"));
        let error = toolkit.compiler(Options::default()).unwrap_err();
        assert!(error.to_string().contains("correct or unset it"), "{error}");
    }

    #[test]
    fn the_report_names_what_is_missing_and_the_remedy() {
        let toolkit = Search::default().find();
        let report = toolkit.to_string();
        for component in Component::ALL {
            assert!(report.contains(&component.install_command()), "{report}");
        }
        assert!(report.contains("C++         not found"), "{report}");
        let json = serde_json::to_value(&toolkit).unwrap();
        assert!(json["nvcc"].is_null());
    }

    #[test]
    fn a_missing_named_compiler_is_noted() {
        for cxx in ["no-such-compiler -O2", "/nowhere/c++"] {
            let search = Search {
                cxx: Some(cxx.to_owned()),
                path: vec!["/usr/bin".into()],
                ..Search::default()
            };
            let toolkit = search.find();
            assert_eq!(toolkit.cxx, None);
            assert_eq!(toolkit.notes.len(), 1);
        }
    }

    #[test]
    fn versions_are_read() {
        let nvcc = "Built on X\nCuda compilation tools, release 13.0, V13.0.88\nBuild y\n";
        assert_eq!(nvcc_version(nvcc).as_deref(), Some("13.0.88"));
        assert_eq!(nvcc_version("gibberish"), None);
        assert_eq!(first_line("\n"), None);
        assert_eq!(
            first_line("g++ (Debian) 12.2.0\nCopyright").as_deref(),
            Some("g++ (Debian) 12.2.0")
        );
    }
}
