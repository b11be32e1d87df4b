//! Plans, renders and compiles kernels into a store.

use super::entry::{CacheKey, StoreEntry, truncated};
use super::expand::KernelError;
use super::kernel_file::{ImageFile, VariantFile, kernel};
use super::request::RequestedKernel;
use crate::compile::nvrtc::{Nvrtc, Options};
use crate::compile::toolkit::Search;
use crate::compile::{ByArch, CompileError, Compiler, KernelResources};
use crate::plan::{KernelPlan, VariantPlan, plan_kernel};
use crate::render::units_text;
use crate::scheme::scheme;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use tdc_runtime::{Arch, Checksum};

/// Changes when the same source and compiler give different images; part of the second key.
const IMAGE_FORMAT: u32 = 1;

/// The compilers of this machine, found and loaded once per process.
///
/// # Errors
/// Why there are none.
pub fn shared_compiler() -> Result<&'static dyn Compiler, String> {
    static FOUND: OnceLock<Result<ByArch<Nvrtc>, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let compiler = Search::from_env().compiler(Options::default());
        compiler.map_err(|error| error.to_string())
    });
    match found {
        Ok(compiler) => Ok(compiler),
        Err(error) => Err(error.clone()),
    }
}

/// Finds a compiler; called only if something must be compiled. The error is a message for the user.
type GetCompiler<'a> = dyn Fn() -> Result<&'static dyn Compiler, String> + Sync + 'a;

/// Builds kernels into the store at `folder`, on as many threads as there are cores; results are in the order
/// of `requested`. `on_done` is called with the index of each finished kernel, in any order.
pub(super) fn build(
    requested: &[(&RequestedKernel, &CacheKey)],
    folder: &Path,
    compiler: &GetCompiler<'_>,
    on_done: impl Fn(usize) + Sync,
) -> Vec<Result<StoreEntry, KernelError>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<StoreEntry, KernelError>>>> =
        Mutex::new(requested.iter().map(|_| None).collect());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        while let Some((index, (requested, key))) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            requested.get(index).map(|item| (index, item))
        } {
            let made = make(requested, key, folder, compiler);
            if let Ok(mut done) = done.lock() {
                done[index] = Some(made);
            }
            on_done(index);
        }
    };
    thread::scope(|scope| {
        for _ in 0..cores.min(requested.len()) {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().unwrap_or_default().into_iter();
    let unfinished = || {
        Err(KernelError::new(
            "the compiler's thread ended early; build again".to_owned(),
        ))
    };
    done.map(|made| made.unwrap_or_else(unfinished)).collect()
}

/// Builds one kernel: its CUDA source, its images, and then the file that includes them.
fn make(
    requested: &RequestedKernel,
    key: &CacheKey,
    folder: &Path,
    compiler: &GetCompiler<'_>,
) -> Result<StoreEntry, KernelError> {
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    let table = requested.tuning_table();
    let plan = plan_kernel(
        &requested.layer,
        &requested.gpus,
        requested.tiles,
        table.as_ref(),
    )
    .map_err(|error| KernelError {
        key: error.key,
        message: format!("{}; {}", error.message, error.help),
    })?;
    let texts: Vec<SourceText> = plan
        .variants
        .iter()
        .map(|variant| SourceText::new(&plan, variant, folder))
        .collect::<Result<_, _>>()?;
    let images = images(requested, &texts, folder, compiler)?;
    let variants: Vec<VariantFile<'_>> =
        plan.variants.iter().zip(&texts).map(variant_file).collect();
    let mut includes: Vec<String> = texts.iter().map(SourceText::file).collect();
    includes.extend(images.iter().map(|image| image.file.clone()));
    includes.sort();
    includes.dedup();
    let expression = kernel(&plan.name, &plan.op, &variants, &images);
    let file = folder.join(key.file());
    write(&file, (key.header(&includes) + &expression).as_bytes())?;
    Ok(StoreEntry { file, includes })
}

/// The CUDA source of a variant in the store.
struct SourceText {
    /// Prefix of its file names.
    stem: String,
    text: String,
}

impl SourceText {
    fn new(plan: &KernelPlan, variant: &VariantPlan, folder: &Path) -> Result<Self, KernelError> {
        let text =
            units_text(&variant.units).map_err(|error| KernelError::new(error.to_string()))?;
        let sum = Checksum::of(format!("{IMAGE_FORMAT} {text}").as_bytes());
        let text = Self {
            stem: format!("{}-{sum:016x}", truncated(&plan.name)),
            text,
        };
        let file = folder.join(text.file());
        if fs::read(&file).ok().as_deref() != Some(text.text.as_bytes()) {
            write(&file, text.text.as_bytes())?;
        }
        Ok(text)
    }

    fn file(&self) -> String {
        format!("{}.cu", self.stem)
    }
}

fn variant_file<'a>((variant, text): (&'a VariantPlan, &SourceText)) -> VariantFile<'a> {
    let units = &variant.units;
    let label = |tile: &crate::scheme::Tile, name| {
        let names = scheme(name).map_or(&[][..], |scheme| scheme.tile_fields());
        tile.label(names).to_string()
    };
    VariantFile {
        device_name: variant.gpu.device_name,
        variant: &variant.variant,
        choices: units
            .iter()
            .map(|unit| (unit.scheme, label(&unit.tile, unit.scheme)))
            .collect(),
        predicted_us: units.iter().map(|unit| unit.predicted_us).sum(),
        source: text.file(),
    }
}

/// The machine code for the requested architectures, ascending, and PTX of the newest; each is compiled on
/// its own thread.
fn images(
    requested: &RequestedKernel,
    texts: &[SourceText],
    folder: &Path,
    compiler: &GetCompiler<'_>,
) -> Result<Vec<ImageFile>, KernelError> {
    let cubins = requested
        .images
        .iter()
        .map(|&(arch, gpu)| (arch, gpu, false));
    let newest = requested
        .images
        .last()
        .map(|&(arch, gpu)| (arch, gpu, true));
    let jobs: Vec<_> = cubins.chain(newest).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .iter()
            .map(|&(arch, variant, ptx)| {
                let text = &texts[variant];
                scope.spawn(move || {
                    let image = image(text, arch, ptx, folder, compiler)?;
                    Ok(ImageFile { variant, ..image })
                })
            })
            .collect();
        let ended = || {
            Err(KernelError::new(
                "the compiler's thread ended early; build again".to_owned(),
            ))
        };
        let images = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| ended()));
        images.collect()
    })
}

/// The path of an image, compiled if it is not in the store.
fn image(
    text: &SourceText,
    arch: Arch,
    ptx: bool,
    folder: &Path,
    compiler: &GetCompiler<'_>,
) -> Result<ImageFile, KernelError> {
    let compiler = compiler().map_err(KernelError::new)?;
    let version = compiler
        .version_for(arch)
        .map_or("none".to_owned(), |version| version.to_string());
    let kind = if ptx { "ptx" } else { "cubin" };
    let file = format!("{}-{arch}-nvrtc{version}.{kind}", text.stem);
    let path = folder.join(&file);
    let usage_path = folder.join(format!("{file}.txt"));
    let known = match ptx {
        true => path.is_file().then(Vec::new),
        false => path
            .is_file()
            .then(|| fs::read_to_string(&usage_path).ok())
            .flatten()
            .and_then(|text| parse_usage(&text)),
    };
    let kernels = match known {
        Some(kernels) => kernels,
        None => {
            let kernel_error =
                |error: CompileError| kernel_error(&error, &folder.join(text.file()));
            let (bytes, kernels) = match ptx {
                true => {
                    let ptx = compiler.ptx(&text.text, &text.file(), arch);
                    (ptx.map_err(kernel_error)?, Vec::new())
                }
                false => {
                    let image = compiler.compile(&text.text, &text.file(), arch);
                    let image = image.map_err(kernel_error)?;
                    (image.cubin, image.kernels.iter().map(usage).collect())
                }
            };
            write(&usage_path, usage_text(&kernels).as_bytes())?;
            write(&path, &bytes)?;
            kernels
        }
    };
    Ok(ImageFile {
        arch,
        ptx,
        variant: 0,
        file,
        kernels,
    })
}

/// Symbol, registers, static shared memory and spilled bytes of a kernel.
fn usage(kernel: &KernelResources) -> (String, [u32; 3]) {
    let spilled = kernel.spill_stores + kernel.spill_loads;
    let usage = [kernel.registers, kernel.shared_bytes, spilled];
    (kernel.name.clone(), usage)
}

/// The resources of kernels, one per line.
fn usage_text(kernels: &[(String, [u32; 3])]) -> String {
    let line = |(kernel, [registers, shared, spilled]): &(String, [u32; 3])| {
        format!("{kernel} {registers} {shared} {spilled}\n")
    };
    kernels.iter().map(line).collect()
}

fn parse_usage(text: &str) -> Option<Vec<(String, [u32; 3])>> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let kernel = words.next()?.to_owned();
        let numbers: Option<Vec<u32>> = words.map(|word| word.parse().ok()).collect();
        Some((kernel, numbers?.try_into().ok()?))
    };
    text.lines().map(line).collect()
}

/// Generated source that does not compile is a defect of tdc, unless no compiler supports the architecture.
fn kernel_error(error: &CompileError, source: &Path) -> KernelError {
    match error {
        CompileError::Unsupported { .. } => KernelError {
            key: Some("arch"),
            message: error.to_string(),
        },
        _ => KernelError::new(format!(
            "{error}\nthis is a defect of tdc; the generated source is {}",
            source.display()
        )),
    }
}

/// Writes a file atomically; other processes may write it at the same time.
fn write(file: &Path, content: &[u8]) -> Result<(), KernelError> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let partial = file.with_extension(format!("{}-{count}.partial", std::process::id()));
    fs::write(&partial, content)
        .and_then(|()| fs::rename(&partial, file))
        .map_err(|error| {
            let _ = fs::remove_file(&partial);
            cannot_write(file, &error)
        })
}

fn cannot_write(file: &Path, error: &io::Error) -> KernelError {
    KernelError::new(format!(
        "{}: cannot be written: {error}; set TDC_CACHE_DIR to a writable directory",
        file.display()
    ))
}
