//! Problems of a configuration, with their positions.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::PathBuf,
};

use super::Sources;
use credbroker_credential::document::Position;
use credbroker_plugin::{Definition, Providers};

/// A problem of a configuration. Its message names keys and never contains a secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it; unknown inside of JSON.
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

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.message)
    }
}

/// A place as editors read it: `file:line:column`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Location<'a> {
    pub(super) file: &'a std::path::Path,
    pub(super) at: Position,
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

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The problems and warnings found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// Files that other users decide. They are problems wherever others are only warnings.
    pub(super) refused: Vec<Problem>,
    /// Every file that was read, once.
    pub(super) files: Vec<PathBuf>,
    /// Every file that matters.
    pub(super) sources: Sources,
    /// The definitions that a running broker has in force; `None`: it starts.
    in_force: Option<HashSet<Definition>>,
    /// The providers' names and where each is: also of those that something else is wrong with.
    /// Whether it is a kubeconfig's user comes last.
    names: Vec<(String, PathBuf, Position, bool)>,
}

impl Report {
    /// For a broker that runs with `providers`.
    pub(super) fn running(providers: &Providers) -> Self {
        let definitions = providers.iter().filter_map(|provider| provider.definition.clone());
        Self { in_force: Some(definitions.collect()), ..Self::default() }
    }

    /// Whether the broker runs with this definition: then it must not be left out because of a problem with it.
    pub(super) fn is_in_force(&self, definition: &Definition) -> bool {
        self.in_force.as_ref().is_some_and(|known| known.contains(definition))
    }

    /// A problem for a broker that starts. A broker that runs must be able to lose its last users, so it is only warned.
    pub(super) fn problem_at_start(&mut self, place: Location<'_>, message: impl Into<String>) {
        if self.in_force.is_some() { self.warning(place, message) } else { self.problem(place, message) }
    }

    pub(super) fn problem(&mut self, place: Location<'_>, message: impl Into<String>) {
        self.problems.push(Problem { file: place.file.to_owned(), at: place.at, message: message.into() });
    }

    pub(super) fn warning(&mut self, place: Location<'_>, message: impl Into<String>) {
        self.warnings.push(Problem { file: place.file.to_owned(), at: place.at, message: message.into() });
    }

    /// As [`problem`](Self::problem), also where what is wrong is only a warning.
    pub(super) fn refuse(&mut self, place: Location<'_>, message: String) {
        self.refused.push(Problem { file: place.file.to_owned(), at: place.at, message });
    }

    /// At `place` is a provider of this name.
    pub(super) fn provider(&mut self, place: Location<'_>, name: &str) {
        self.names.push((name.to_owned(), place.file.to_owned(), place.at, false));
    }

    /// At `place` is a user of a kubeconfig that becomes a provider of this name.
    pub(super) fn definition(&mut self, place: Location<'_>, name: &str) {
        self.names.push((name.to_owned(), place.file.to_owned(), place.at, true));
    }

    /// A configured provider is identified by its name alone; users of kubeconfigs by their file too.
    pub(super) fn refuse_duplicates(&mut self) {
        let mut first: HashMap<&str, (Location<'_>, bool)> = HashMap::new();
        for (name, file, at, is_user) in &self.names {
            let place = Location { file, at: *at };
            let (other, other_is_user) = *first.entry(name).or_insert((place, *is_user));
            if other != place && !(*is_user && other_is_user) {
                let message = format!("provider `{name}` is defined already at {other}; rename one of them");
                self.problems.push(Problem { file: file.clone(), at: *at, message });
            }
        }
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.problems.append(&mut other.problems);
        self.warnings.append(&mut other.warnings);
        self.refused.append(&mut other.refused);
        self.names.append(&mut other.names);
        self.read(&other.files);
        self.sources.append(&other.sources);
    }

    /// These files were read.
    pub(super) fn read(&mut self, files: &[PathBuf]) {
        for file in files {
            if !self.files.contains(file) {
                self.files.push(file.clone());
            }
        }
    }

    /// Takes over what `other` found, of which only files that other users decide are to stop something.
    pub(super) fn append_as_warnings(&mut self, mut other: Self) {
        self.read(&other.files);
        self.sources.append(&other.sources);
        self.warnings.append(&mut other.problems);
        self.warnings.append(&mut other.warnings);
        self.refused.append(&mut other.refused);
    }

    /// `value`, unless anything is wrong; what was found is put in the order of the files' lines.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<(T, Vec<Problem>), ConfigError> {
        self.problems.append(&mut self.refused);
        self.problems.sort_by(|one, two| (&one.file, one.at).cmp(&(&two.file, two.at)));
        self.warnings.sort_by(|one, two| (&one.file, one.at).cmp(&(&two.file, two.at)));
        match value {
            Some(value) if self.problems.is_empty() => Ok((value, self.warnings)),
            _ => {
                let Self { problems, warnings, sources, .. } = self;
                Err(ConfigError { problems, warnings, sources })
            }
        }
    }
}
