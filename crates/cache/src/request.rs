//! What callers ask for: a credential, or an operation on keys.

use std::{str::FromStr, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{prompts::Asker, rejection::Caller};
use credbroker_credential::Cluster;
use credbroker_plugin::{PluginKey, PluginSpec, ProfileName, Session};
use credbroker_runner::{Attendance, AttendanceNews, AttendanceReader, Attending, Lender};

/// Who asks for a credential, and under which conditions.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// How long the caller waits; `None`: it set no deadline.
    pub deadline: Option<Duration>,
    /// The credential has to live this long, if the plugin can do that.
    pub min_lifetime: Duration,
    /// The API server to ask whether it accepts the credential; `None`: the broker cannot ask one.
    pub verify_at: Option<Arc<Cluster>>,
    /// Attends the runs that the caller waits for; `None`: the caller does not attend them.
    pub attendant: Option<Arc<Attendant>>,
    /// The session of the user who asks. A run that the request starts has it, and the caller attends that run.
    pub session: Option<Arc<Session>>,
    /// The caller can run the plugin in its own terminal.
    pub lender: Option<Arc<Lender>>,
    /// A user asks for a run, also if there is a valid credential.
    pub is_login: bool,
}

impl Request {
    pub(super) fn asker(&self, spec: &PluginSpec) -> Asker {
        // A lender that has taken an offer is one no longer, and no terminal is borrowed for other users.
        let lends = self.lender.as_ref().is_some_and(|lender| lender.is_free());
        let lends = lends && !spec.provider.state.is_shared();
        if self.is_login { Asker::Login { lends } } else { Asker::of(&self.caller, lends) }
    }
}

/// A caller that attends each run that it waits for. The request says which run that is.
#[derive(Debug, Default)]
pub struct Attendant {
    run: watch::Sender<Arc<Attendance>>,
}

impl Attendant {
    /// Attends `run` until the result is dropped.
    pub(super) fn attend(&self, run: &Arc<Attendance>) -> Attending {
        self.run.send_replace(Arc::clone(run));
        run.attend()
    }

    /// Reads each run that it attends.
    pub fn read(&self) -> AttendantReader {
        let mut runs = self.run.subscribe();
        let current = runs.borrow_and_update().read();
        AttendantReader { runs, current }
    }
}

/// Reads each run that an [`Attendant`] attends.
#[derive(Debug)]
pub struct AttendantReader {
    runs: watch::Receiver<Arc<Attendance>>,
    /// Nothing is new about the first one, which never starts.
    current: AttendanceReader,
}

impl AttendantReader {
    /// Waits until something is new. Cancel safe.
    pub async fn next(&mut self) -> AttendanceNews {
        loop {
            tokio::select! {
                biased;
                news = self.current.next() => return news,
                Ok(()) = self.runs.changed() => self.current = self.runs.borrow_and_update().read(),
            }
        }
    }

    /// What is new now.
    pub fn news(&mut self) -> AttendanceNews {
        if self.runs.has_changed().unwrap_or_default() {
            self.current = self.runs.borrow_and_update().read();
        }
        self.current.news()
    }
}

/// Selects keys to list, refresh or evict.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// Every key.
    All,
    /// The keys of all providers of this name, in whichever files they are defined.
    Provider(Arc<str>),
    /// The keys of one definition of a provider: its name, and the digest.
    Definition(Arc<str>, Arc<str>),
    /// The keys of one ClusterProfile.
    ClusterProfile(ProfileName),
    /// The keys that begin with these digits: one, unless two hashes collide.
    Key(KeyPrefix),
    /// These keys.
    Keys(Arc<[PluginKey]>),
}

/// The first hexadecimal digits of a [`PluginKey`], at least as many as its `Display` shows.
#[derive(Clone, Debug, derive_more::Display, Eq, PartialEq)]
pub struct KeyPrefix(Box<str>);

/// The text is not a key as the broker shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a key must have 12 to 64 hexadecimal digits, an even number of them")]
pub struct InvalidKey;

impl KeyPrefix {
    /// Whether `key` begins with it.
    pub fn matches(&self, key: &PluginKey) -> bool {
        let digits = key.0.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let mut pairs = self.0.chars().zip(digits);
        pairs.all(|(digit, of_key)| digit.to_digit(16) == Some(of_key.into()))
    }
}

impl FromStr for KeyPrefix {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let is_key = (12..=64).contains(&text.len())
            && text.len().is_multiple_of(2)
            && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_key.then(|| Self(text.to_ascii_lowercase().into())).ok_or(InvalidKey)
    }
}

#[cfg(test)]
mod tests;
