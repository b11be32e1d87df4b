//! Ctrl-C and SIGTERM as a wish that long work ends by itself, so that what it has is written.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether the user wants the work to end. Never before [`watch`].
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// From now on the first Ctrl-C and the first SIGTERM are only noted. The second of its kind ends the process at once.
#[cfg(unix)]
pub fn watch() {
    extern "C" fn ask(_signal: libc::c_int) {
        ASKED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an all-zero `sigaction` is valid: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ask as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: the action outlives the call, and its handler does nothing but store to an atomic. The call fails for no signal
        // of these two.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// Elsewhere both end the process at once.
#[cfg(not(unix))]
pub fn watch() {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_noted_and_the_second_ends_the_process() {
        watch();
        assert!(!is_asked());
        // SAFETY: the handler is the one above.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(is_asked());
        // SAFETY: an all-zero `sigaction` is valid, and the call only writes the present action to it.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut action);
            action
        };
        assert_eq!(action.sa_sigaction, libc::SIG_DFL);
    }
}
