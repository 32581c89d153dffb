//! The signals of a launcher and of the plugin that it starts.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::{
    FORBIDDEN, SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1,
    SIGUSR2,
};

/// Makes the plugin start with the default disposition of each signal, and the launcher survive those that end others.
///
/// A signal that is ignored stays ignored across exec, and one with a handler gets its default back. So the launcher
/// handles each ignored signal. The standard library empties the signal mask of each child, and restores SIGPIPE.
///
/// Returns a socket that is readable after a child has changed its state.
pub(super) fn restore_signals() -> io::Result<UnixStream> {
    let caught = Arc::new(AtomicBool::new(false));
    let ending = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2];
    let ignored = ignored_signals().into_iter().filter(|signal| !ending.contains(signal));
    for signal in ending.into_iter().chain(ignored) {
        let is_possible = ![SIGCHLD, SIGPIPE].contains(&signal) && !FORBIDDEN.contains(&signal);
        if is_possible {
            // The C library keeps two signals for itself.
            let _kept = signal_hook::flag::register(signal, Arc::clone(&caught));
        }
    }
    let (children, ended) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGCHLD, ended)?;
    children.set_nonblocking(true)?;
    Ok(children)
}

/// The signals that this process ignores; all signals where the kernel does not say.
fn ignored_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(u64::MAX);
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}
