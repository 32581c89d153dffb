//! One reading of the files, and whether it is put in force. The reading may block; the decision is pure.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    absences::{ABSENCE_GRACE, Absences, Awaited},
    marks::Marks,
    watcher::Watches,
};
use credbroker_config as config;
use credbroker_config::{ConfigError, Loaded, Sources};
use credbroker_plugin::{Environment, Providers};

/// The longest problem that is kept, in characters, and the largest number of them.
const LONGEST: usize = 500;
const MOST: usize = 20;

/// Where the configuration is read from.
#[derive(Clone, Debug)]
pub struct ConfigPlace {
    /// `--config`.
    pub flag: Option<PathBuf>,
    /// The environment of the broker.
    pub environment: Arc<Environment>,
}

/// One reading.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) result: Result<Loaded, ConfigError>,
    pub(super) watches: Watches,
    /// The followed files after the reading.
    pub(super) marks: Marks,
    /// Whether a file changed while it was read, or is followed only since then.
    pub(super) is_torn: bool,
}

impl Reading {
    /// Reads the configuration for a broker that runs with `providers`, and watches its files. `followed` are the files
    /// that were followed so far. May block.
    pub(super) fn new(
        place: &ConfigPlace,
        providers: &Providers,
        followed: &[PathBuf],
        inotify: Option<&OwnedFd>,
    ) -> Self {
        // Watched before they are read: a later change is reported.
        let watches = Watches::add(inotify, followed);
        let before = Marks::of(followed);
        let result = config::reload(place.flag.as_deref(), &place.environment, providers);
        let sources = match &result {
            Ok(loaded) => &loaded.sources,
            Err(error) => &error.sources,
        };
        let is_new = |file: &PathBuf| !followed.contains(file);
        let is_torn = sources.followed.iter().any(is_new) || before != Marks::of(followed);
        Self { result, watches, marks: before, is_torn }
    }

    pub(super) fn sources(&self) -> &Sources {
        match &self.result {
            Ok(loaded) => &loaded.sources,
            Err(error) => &error.sources,
        }
    }
}

/// What to do with a reading.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum ReadingVerdict {
    /// It has no problem.
    Adopt,
    /// The configuration in force stays.
    Keep {
        problems: Vec<String>,
        /// When to read again even if nothing happens, in time since boot.
        again: Option<Duration>,
    },
}

/// Decides at `now`. `in_force` are the files of the configuration in force.
pub(super) fn judge(
    result: Result<&Loaded, &ConfigError>,
    in_force: &Sources,
    absences: &mut Absences,
    now: Duration,
) -> ReadingVerdict {
    let sources = match result {
        Ok(loaded) => &loaded.sources,
        Err(error) => &error.sources,
    };
    let awaited = absences.observe(sources.lost_since(in_force), now);
    let mut problems: Vec<_> = match result {
        Ok(_) => Vec::new(),
        Err(error) => error.problems.iter().map(|problem| short(&problem.to_string())).collect(),
    };
    let again = awaited.as_ref().map(|awaited| awaited.until);
    problems
        .extend(awaited.iter().flat_map(|awaited: &Awaited| awaited.files.iter().map(|file| absent(file))));
    if problems.is_empty() {
        return ReadingVerdict::Adopt;
    }
    if let Some(more) = problems.len().checked_sub(MOST).filter(|more| *more > 0) {
        problems.truncate(MOST);
        problems.push(format!("and {more} more; `credbroker validate` prints all"));
    }
    ReadingVerdict::Keep { problems, again }
}

fn absent(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file}: is empty or missing; what it defined stays in use for {} seconds",
        ABSENCE_GRACE.as_secs()
    )
}

/// The beginning of a problem. Its message is made of keys and names of the file.
fn short(problem: &str) -> String {
    problem.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
