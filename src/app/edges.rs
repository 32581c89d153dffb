//! What the broker takes from outside: clock, chance and environment, each read here and nowhere else.

use std::{ffi::OsStr, path::PathBuf, sync::Arc};

use crate::{
    clock::{Clock, SystemClock},
    plugin::Environment,
};

/// The outside world, as far as it is not the socket.
#[derive(Debug)]
pub struct Edges {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Uniform in [0, 1).
    pub jitter: fn() -> f64,
    /// Names this start of the broker.
    pub epoch: Arc<str>,
    /// Where plugins get their private working directories.
    pub scratch: PathBuf,
}

impl Edges {
    /// The real world.
    pub fn system(environment: &Environment) -> Self {
        let temporary = environment.get("TMPDIR").filter(|path| !path.is_empty());
        Self {
            clock: Arc::new(SystemClock),
            jitter: fastrand::f64,
            epoch: format!("{:08x}", fastrand::u32(..)).into(),
            scratch: temporary.unwrap_or(OsStr::new("/tmp")).into(),
        }
    }
}

/// This process's environment, read once.
pub fn environment() -> Environment {
    #[expect(clippy::disallowed_methods, reason = "the one reader of the daemon's environment")]
    Environment(std::env::vars_os().collect())
}
