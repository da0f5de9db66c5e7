//! Whether standard output was open when the process started.
//!
//! Rust's start-up code opens `/dev/null` in place of a closed descriptor, so `pktjit classify ... >&-` would write its
//! answers to nowhere and report success. What the descriptor was can only be asked before that code runs.

#[cfg(target_os = "linux")]
mod start {
    use std::sync::atomic::{AtomicBool, Ordering};

    static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

    extern "C" fn look() {
        // SAFETY: `F_GETFD` only asks for the flags of a descriptor; the number need not be that of an open one.
        if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1 {
            WAS_CLOSED.store(true, Ordering::Relaxed);
        }
    }

    // SAFETY: the C library calls each pointer of this section once before `main`, in the C convention, with arguments
    // that a function without parameters ignores. `look` needs nothing that Rust's start-up code sets up.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    pub(super) fn was_closed() -> bool {
        WAS_CLOSED.load(Ordering::Relaxed)
    }
}

/// Whether there was no standard output to write to.
pub(super) fn was_closed() -> bool {
    #[cfg(target_os = "linux")]
    return start::was_closed();
    #[cfg(not(target_os = "linux"))]
    false
}
