//! Problems of a configuration with their positions, and the files that it depends on.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use credbroker_credential::{document::Position, text::nearest};
use credbroker_plugin::{Definition, Providers};

/// A problem of a configuration. Its message names keys and never contains a secret.
#[derive(Clone, Debug, derive_more::Display, Eq, PartialEq)]
#[display("{}: {message}", self.place())]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it, if it is known.
    pub at: Position,
    /// The problem, and the remedy.
    pub message: String,
}

impl Problem {
    /// `file:line:column`, as far as it is known.
    pub fn place(&self) -> impl fmt::Display {
        Location { file: &self.file, at: self.at }
    }
}

/// A place as editors read it: `file:line:column`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Location<'a> {
    pub(super) file: &'a Path,
    pub(super) at: Position,
}

impl<'a> Location<'a> {
    pub(super) fn whole(file: &'a Path) -> Self {
        Self { file, at: Position::UNKNOWN }
    }

    fn problem(self, message: impl Into<String>) -> Problem {
        Problem { file: self.file.to_owned(), at: self.at, message: message.into() }
    }
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.at.is_known() { write!(f, ":{}:{}", self.at.line, self.at.column) } else { Ok(()) }
    }
}

/// All problems of a configuration that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
    /// Warnings.
    pub warnings: Vec<Problem>,
    /// The files, as far as they are known: a change of one of them may solve the problems.
    pub sources: Sources,
}

pub(super) fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The files of one reading of the configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sources {
    /// Every file whose change may change the configuration, whether it exists or not.
    pub followed: Vec<PathBuf>,
    /// Those of them that were not empty: configurations and kubeconfigs.
    pub filled: Vec<PathBuf>,
}

impl Sources {
    /// The files that `earlier` found filled, and that are empty or missing now.
    pub fn lost_since(&self, earlier: &Self) -> Vec<PathBuf> {
        let is_lost = |file: &&PathBuf| self.followed.contains(file) && !self.filled.contains(file);
        earlier.filled.iter().filter(is_lost).cloned().collect()
    }
}

/// What was found so far: the one place where all readers of a configuration put it.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) findings: RefCell<Findings>,
    /// The identities of the definitions that a running broker has; `None`: it starts.
    running: Option<HashSet<(PathBuf, Arc<str>)>>,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// Files that other users decide. They are problems wherever others are only warnings.
    pub(super) refused: Vec<Problem>,
    pub(super) sources: Sources,
    /// Where the first provider of each name is, and whether it is a kubeconfig's user.
    names: HashMap<String, (PathBuf, Position, bool)>,
}

impl Report {
    pub(super) fn running(providers: &Providers) -> Self {
        let definitions = providers.iter().filter_map(|provider| provider.definition.as_ref());
        let identities = definitions.map(|definition| definition.identity.clone());
        Self { running: Some(identities.collect()), ..Self::default() }
    }

    /// Whether the broker runs with this definition: then it must not be left out because of a problem with it.
    pub(super) fn runs(&self, definition: &Definition) -> bool {
        self.running.as_ref().is_some_and(|known| known.contains(&definition.identity))
    }

    /// A problem for a broker that starts. A broker that runs must be able to lose its last users, so it is only warned.
    pub(super) fn problem_at_start(&self, place: Location<'_>, message: impl Into<String>) {
        if self.running.is_some() { self.warning(place, message) } else { self.problem(place, message) }
    }

    pub(super) fn problem(&self, place: Location<'_>, message: impl Into<String>) {
        self.findings.borrow_mut().problems.push(place.problem(message));
    }

    pub(super) fn warning(&self, place: Location<'_>, message: impl Into<String>) {
        self.findings.borrow_mut().warnings.push(place.problem(message));
    }

    /// As [`problem`](Self::problem), also where what is wrong is only a warning.
    pub(super) fn refuse(&self, place: Location<'_>, message: String) {
        self.findings.borrow_mut().refused.push(place.problem(message));
    }

    pub(super) fn problems(&self) -> usize {
        self.findings.borrow().problems.len()
    }

    /// At `place` is a provider of this name, which is a kubeconfig's user (`is_user`) or an item of `providers`: the latter
    /// is identified by its name alone, and users of kubeconfigs by their file too.
    pub(super) fn provider(&self, place: Location<'_>, name: &str, is_user: bool) {
        let Findings { names, problems, .. } = &mut *self.findings.borrow_mut();
        let first =
            names.entry(name.to_owned()).or_insert_with(|| (place.file.to_owned(), place.at, is_user));
        let (other, other_is_user) = (Location { file: &first.0, at: first.1 }, first.2);
        if other != place && !(is_user && other_is_user) {
            let message = format!("provider `{name}` is defined already at {other}; rename one of them");
            problems.push(place.problem(message));
        }
    }

    /// The configuration depends on `file`.
    pub(super) fn follow(&self, file: &Path) {
        add(&mut self.findings.borrow_mut().sources.followed, file);
    }

    /// `file` was opened, and these are its contents, if it could be read.
    pub(super) fn read(&self, file: &Path, contents: Option<&[u8]>) {
        if contents.is_some_and(|contents| !contents.trim_ascii().is_empty()) {
            add(&mut self.findings.borrow_mut().sources.filled, file);
        }
    }

    /// What `read` finds are only warnings, except for files that other users decide.
    pub(super) fn as_warnings<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.problems();
        let value = read();
        let Findings { problems, warnings, .. } = &mut *self.findings.borrow_mut();
        warnings.extend(problems.drain(before..));
        value
    }

    /// What `read` finds is returned, and not a problem of the configuration. That depends on the files that were read.
    pub(super) fn aside<T>(&self, read: impl FnOnce(&Self) -> T) -> (T, Vec<Problem>) {
        let aside = Self::default();
        let value = read(&aside);
        let followed = aside.findings.borrow().sources.followed.clone();
        for file in &followed {
            self.follow(file);
        }
        (value, aside.into_warnings())
    }

    /// For a reader to whom all of it is only a warning.
    pub(super) fn into_warnings(self) -> Vec<Problem> {
        let Findings { refused, warnings, .. } = self.findings.into_inner();
        [refused, warnings].concat()
    }

    /// What was found, unless anything is wrong, in the order of the files' lines.
    pub(super) fn finish(self) -> Result<Findings, ConfigError> {
        let mut found = self.findings.into_inner();
        found.problems.append(&mut found.refused);
        for problems in [&mut found.problems, &mut found.warnings] {
            problems.sort_by(|one, two| (&one.file, one.at).cmp(&(&two.file, two.at)));
        }
        if found.problems.is_empty() {
            return Ok(found);
        }
        let Findings { problems, warnings, sources, .. } = found;
        Err(ConfigError { problems, warnings, sources })
    }
}

fn add(files: &mut Vec<PathBuf>, file: &Path) {
    if !files.iter().any(|known| known == file) {
        files.push(file.to_owned());
    }
}

/// The end of a message about an unknown `name`: `, did you mean …?` after `mark`, if one of `known` is like it.
pub(super) fn suggestion<'a>(mark: char, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|meant| format!("{mark} did you mean `{meant}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
