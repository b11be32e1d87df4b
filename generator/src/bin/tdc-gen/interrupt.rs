//! Ctrl-C and SIGTERM: long work ends early and writes its results, or the process ends after removing its
//! temporary files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that was received; 0 before.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

/// Whether the user has asked to stop; always false before [`install_handlers`].
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) != 0
}

/// From now on the first Ctrl-C and the first SIGTERM only set a flag. A second one of the same kind ends the
/// process.
#[cfg(unix)]
pub fn install_handlers() {
    extern "C" fn handle_signal(signal: libc::c_int) {
        REQUESTED.store(signal, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero `sigaction` is valid: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle_signal as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: the action outlives the call, and its handler only stores to an atomic. The call cannot
        // fail for these two signals.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// On other systems both signals end the process immediately.
#[cfg(not(unix))]
pub fn install_handlers() {}

/// From now on the first Ctrl-C or SIGTERM removes a folder of temporary files and then ends the process, as
/// the signal would have.
#[cfg(unix)]
pub fn remove_and_end(folder: PathBuf) {
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
    /// Compilers that are still running may create files while the folder is being removed.
    const TRIES: u32 = 100;

    install_handlers();
    std::thread::spawn(move || {
        while !is_requested() {
            std::thread::sleep(PAUSE);
        }
        for _ in 0..TRIES {
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    std::thread::sleep(PAUSE);
                }
                _ => break,
            }
        }
        // SAFETY: the first signal has restored the system's handler, so this one ends the process.
        unsafe { libc::raise(REQUESTED.load(Ordering::Relaxed)) };
    });
}

/// On other systems the folder is kept.
#[cfg(not(unix))]
pub fn remove_and_end(_folder: PathBuf) {}

/// If a signal was received, waits for the end of the process: an error is then caused by the removal of its
/// files.
pub fn wait_if_asked() {
    while is_requested() {
        std::thread::park();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_noted_and_the_second_ends_the_process() {
        install_handlers();
        assert!(!is_requested());
        // SAFETY: the handler is the one above.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(is_requested());
        // SAFETY: an all-zero `sigaction` is valid, and the call only writes the current action to it.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut action);
            action
        };
        assert_eq!(action.sa_sigaction, libc::SIG_DFL);
    }
}
