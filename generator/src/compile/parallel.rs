//! Compiles on several threads.

use super::{CompileError, Compiler, Image};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use tdc_runtime::Arch;

/// A compilation to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job<'a> {
    /// The CUDA source.
    pub source: &'a str,
    /// Its name in messages.
    pub name: &'a str,
    /// The architecture to compile for.
    pub arch: Arch,
}

/// Compiles all jobs on `threads` threads; results are in the order of the jobs.
///
/// `on_done` is called on the caller's thread with a job's index and result as soon as the job is done, in any order.
pub fn compile_all<C: Compiler + ?Sized>(
    compiler: &C,
    jobs: &[Job<'_>],
    threads: NonZeroUsize,
    mut on_done: impl FnMut(usize, &Result<Image, CompileError>),
) -> Vec<Result<Image, CompileError>> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut done: Vec<_> = thread::scope(|scope| {
        for _ in 0..threads.get().min(jobs.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    let result = compiler.compile(job.source, job.name, job.arch);
                    if sender.send((index, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        receiver
            .into_iter()
            .inspect(|(index, result)| on_done(*index, result))
            .collect()
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{CompilerVersion, FakeCompiler};
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_jobs() {
        let version = CompilerVersion {
            major: 13,
            minor: 0,
        };
        let arch = Arch::new(90);
        let compiler = FakeCompiler::new(version, &[arch]).with_errors("n13", "no");
        let names: Vec<String> = (0..50).map(|index| format!("n{index}")).collect();
        let jobs: Vec<_> = names
            .iter()
            .map(|name| Job {
                source: name,
                name,
                arch,
            })
            .collect();
        for threads in [1, 3, 100] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let mut seen = vec![0; jobs.len()];
            let results = compile_all(&compiler, &jobs, threads, |index, result| {
                assert_eq!(result.is_err(), index == 13);
                seen[index] += 1;
            });
            assert!(seen.iter().all(|&times| times == 1));
            for (result, name) in results.iter().zip(&names) {
                match result {
                    Ok(image) => assert_eq!(image.cubin, name.as_bytes()),
                    Err(_) => assert_eq!(name, "n13"),
                }
            }
            assert!(compile_all(&compiler, &[], threads, |_, _| ()).is_empty());
        }
    }
}
