//! What callers ask for: a credential, or an operation on keys.

use std::{fmt, future::pending, str::FromStr, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{attention::Asker, rejection::Caller};
use credbroker_credential::{Cluster, Issued};
use credbroker_plugin::{PluginKey, PluginSpec, ProfileName, Session};
use credbroker_runner::{Attendance, AttendanceNews, AttendanceReader, Attending, Lender};

/// Who asks for a credential, and under which conditions.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// How long the caller waits; `None`: it set no deadline.
    pub deadline: Option<Duration>,
    /// The API server to ask whether it accepts the credential; `None`: the broker cannot ask one.
    pub verify_at: Option<Arc<Cluster>>,
    /// Attends the runs that the caller waits for; `None`: the caller does not attend them.
    pub attendant: Option<Arc<Attendant>>,
    /// The session of the person who asks. A run that the request starts has it, and the caller attends that run.
    pub session: Option<Arc<Session>>,
    /// The caller can run the plugin in its own terminal.
    pub lender: Option<Arc<Lender>>,
    /// A person asks for a run, also if there is a valid credential.
    pub is_login: bool,
}

impl Request {
    /// Whom a run of `spec` starts for.
    pub(super) fn asker(&self, spec: &PluginSpec) -> Asker {
        // A lender that has taken an offer is one no longer, and no terminal is borrowed for other users.
        let lends = self.lender.as_ref().is_some_and(|lender| lender.is_free());
        let lends = lends && !spec.provider.state.is_shared();
        match (self.is_login, self.caller.at_terminal) {
            (true, _) => Asker::Login { lends },
            (false, true) => Asker::Person { lends },
            (false, false) => Asker::Program,
        }
    }
}

/// The result of a lookup in memory.
#[derive(Debug)]
pub enum Lookup {
    /// A valid credential.
    Served(Arc<Issued>),
    /// There is none, or the caller already has it: call [`CredentialCache::get`](super::CredentialCache::get).
    Undecided,
}

/// A caller that attends each run that it waits for. The request says which run that is.
#[derive(Debug, Default)]
pub struct Attendant {
    run: watch::Sender<Option<Arc<Attendance>>>,
}

impl Attendant {
    /// Attends `run` until the result is dropped.
    pub(super) fn attend(&self, run: &Arc<Attendance>) -> Attending {
        self.run.send_replace(Some(Arc::clone(run)));
        run.attend()
    }

    /// Reads each run that it attends.
    pub fn read(&self) -> AttendantReader {
        AttendantReader { runs: self.run.subscribe(), current: None }
    }
}

/// Reads each run that an [`Attendant`] attends.
#[derive(Debug)]
pub struct AttendantReader {
    runs: watch::Receiver<Option<Arc<Attendance>>>,
    current: Option<AttendanceReader>,
}

impl AttendantReader {
    /// Waits until something is new. Cancel safe.
    pub async fn next(&mut self) -> AttendanceNews {
        loop {
            tokio::select! {
                biased;
                news = next_of(self.current.as_mut()) => return news,
                Ok(()) = self.runs.changed() => self.follow(),
                else => pending().await,
            }
        }
    }

    /// What is new now.
    pub fn news(&mut self) -> AttendanceNews {
        if self.runs.has_changed().unwrap_or_default() {
            self.follow();
        }
        self.current.as_mut().map(AttendanceReader::news).unwrap_or_default()
    }

    fn follow(&mut self) {
        self.current = self.runs.borrow_and_update().as_ref().map(Attendance::read);
    }
}

async fn next_of(reader: Option<&mut AttendanceReader>) -> AttendanceNews {
    match reader {
        Some(reader) => reader.next().await,
        None => pending().await,
    }
}

/// Selects keys to list, refresh or evict.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// Every key.
    All,
    /// The keys of all providers of this name, in whichever files they are defined.
    Provider(Arc<str>),
    /// The keys of one definition of a provider.
    Definition {
        /// Name of the provider.
        provider: Arc<str>,
        /// Digest of the definition.
        definition: Arc<str>,
    },
    /// The keys of one ClusterProfile.
    ClusterProfile(ProfileName),
    /// The keys that begin with these bytes: one, unless two hashes collide.
    Key(KeyPrefix),
    /// These keys.
    Keys(Arc<[PluginKey]>),
}

/// The first bytes of a [`PluginKey`], at least as many as its `Display` shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyPrefix(Box<[u8]>);

/// The text is not a key as the broker shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a key must have 12 to 64 hexadecimal digits, an even number of them")]
pub struct InvalidKey;

impl KeyPrefix {
    /// The bytes that `Display` of a key shows.
    const SHORTEST: usize = 6;

    /// Whether `key` begins with it.
    pub fn matches(&self, key: &PluginKey) -> bool {
        key.0.starts_with(&self.0)
    }
}

impl FromStr for KeyPrefix {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if !text.len().is_multiple_of(2) {
            return Err(InvalidKey);
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(16 * digit(*high)? + digit(*low)?),
            _ => None,
        };
        let bytes: Option<Box<[u8]>> = text.as_bytes().chunks_exact(2).map(byte).collect();
        bytes
            .filter(|bytes| (Self::SHORTEST..=size_of::<PluginKey>()).contains(&bytes.len()))
            .map(Self)
            .ok_or(InvalidKey)
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests;
