//! Judges every answer.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use credbroker_client::{Credential, Error, ExposeSecret as _, Reason};

use crate::token::{self, Token, now};

/// Number of credentials.
pub const KEYS: usize = 50;
/// How late a message of a watch may arrive, in milliseconds.
const DELIVERY: u64 = 2_000;
/// Violations that are kept for the report.
const SHOWN: usize = 20;

/// Knows every key, and counts what it judged.
#[derive(Debug)]
pub struct Oracle {
    nonce: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: Vec<Known>,
    counts: Counts,
}

/// What the driver knows about a key. Times are in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Number of evictions that have begun or ended.
    evictions: u64,
    /// When the last eviction that has ended began.
    evicted: u64,
    /// Until when the broker must have a valid credential. 0: it may have none.
    held_until: u64,
    /// The latest run whose token was received.
    run: u64,
}

/// The moment of a request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Number of its key.
    pub key: usize,
    at: u64,
    known: Known,
}

/// What was judged.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Answers to requests.
    pub answers: u64,
    /// Messages of watches.
    pub messages: u64,
    /// Failures of keys without a valid credential, by reason.
    pub failures: BTreeMap<String, u64>,
    /// Wrong answers.
    pub wrong: u64,
    /// Failures of keys with a valid credential.
    pub failed_while_valid: u64,
    /// The first violation of each kind.
    pub violations: BTreeMap<String, String>,
}

impl Oracle {
    /// For tokens with this nonce.
    pub fn new(nonce: String) -> Self {
        let state = State { keys: vec![Known::default(); KEYS], counts: Counts::default() };
        Self { nonce, state: Mutex::new(state) }
    }

    /// What the tokens of this soak have.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// What was judged so far.
    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }

    /// A request for `key` begins.
    pub fn ask(&self, key: usize) -> Asked {
        let known = self.state().keys.get(key).copied().unwrap_or_default();
        Asked { key, at: now(), known }
    }

    /// Judges the answer to a request.
    pub fn judge(&self, asked: &Asked, answer: &Result<Credential, Error>) {
        match answer {
            Ok(credential) => {
                self.state().counts.answers += 1;
                self.judge_token(asked, credential, asked.known.run, asked.at);
            }
            Err(error) => self.judge_failure(asked, error),
        }
    }

    /// Judges the answer to a report of a rejection. The caller has said that the credential is no longer good, so the
    /// failure of the run is the answer.
    pub fn judge_report(&self, asked: &Asked, answer: &Result<Credential, Error>) {
        let known = Known { held_until: 0, ..asked.known };
        self.judge(&Asked { known, ..*asked }, answer);
    }

    /// Judges a message of a watch whose previous token was from the run `previous`. Returns the run of this one.
    pub fn judge_message(&self, key: usize, credential: &Credential, previous: u64) -> u64 {
        self.state().counts.messages += 1;
        // Evictions after the message was sent do not matter.
        let asked = Asked { key, at: now().saturating_sub(DELIVERY), known: Known::default() };
        self.judge_token(&asked, credential, previous, asked.at).unwrap_or(previous)
    }

    /// Judges a failure of a request or the end of a watch.
    pub fn judge_failure(&self, asked: &Asked, error: &Error) {
        let at = now();
        let mut state = self.state();
        let evictions = state.keys.get(asked.key).map_or(0, |known| known.evictions);
        let is_held = asked.known.held_until > at && asked.known.evictions == evictions;
        if is_held {
            let left = asked.known.held_until - at;
            state.counts.failed_while_valid += 1;
            state.counts.violation(format!(
                "{}: {left} ms before its expiry: {}",
                token::profile(asked.key),
                chain(error)
            ));
        } else if let Some(reason) = error.reason().filter(|reason| is_expected(*reason)) {
            *state.counts.failures.entry(reason.name().to_owned()).or_default() += 1;
        } else {
            state.counts.wrong += 1;
            state.counts.violation(format!(
                "{}: unexpected error: {}",
                token::profile(asked.key),
                chain(error)
            ));
        }
    }

    /// Judges the end of a watch, which began when `asked` did, because its credential was evicted.
    pub fn judge_withdrawal(&self, asked: &Asked) {
        let mut state = self.state();
        *state.counts.failures.entry(Reason::ProviderChanged.name().to_owned()).or_default() += 1;
        let evictions = state.keys.get(asked.key).map_or(0, |known| known.evictions);
        // One that has begun may not have ended.
        if evictions == asked.known.evictions && evictions.is_multiple_of(2) {
            state.counts.wrong += 1;
            state
                .counts
                .violation(format!("{}: a watch ended without an eviction", token::profile(asked.key)));
        }
    }

    /// Something else than an answer is wrong.
    pub fn violation(&self, text: String) {
        let mut state = self.state();
        state.counts.wrong += 1;
        state.counts.violation(text);
    }

    /// An eviction of `keys` begins: from now on they may have no credential. Returns the time.
    pub fn begin_eviction(&self, keys: impl Iterator<Item = usize>) -> u64 {
        let mut state = self.state();
        for key in keys {
            if let Some(known) = state.keys.get_mut(key) {
                known.evictions += 1;
                known.held_until = 0;
            }
        }
        now()
    }

    /// The eviction of `keys` that began at `began` has ended.
    pub fn end_eviction(&self, keys: impl Iterator<Item = usize>, began: u64) {
        let mut state = self.state();
        for key in keys {
            if let Some(known) = state.keys.get_mut(key) {
                // Requests that began in the meantime may have received what was evicted afterwards.
                known.evictions += 1;
                known.held_until = 0;
                known.evicted = began;
            }
        }
    }

    /// Checks a credential that was requested at `at`, and remembers it. Returns the number of its run.
    fn judge_token(&self, asked: &Asked, credential: &Credential, least_run: u64, at: u64) -> Option<u64> {
        let text = credential.token().map_or("", |token| token.expose_secret());
        let token = Token::read(text);
        let problem = match &token {
            None => Some("the token is not one that the plugin printed".to_owned()),
            Some(token) => self.problem(asked, token, least_run, at),
        };
        let mut state = self.state();
        if let Some(problem) = problem {
            state.counts.wrong += 1;
            state.counts.violation(format!("{}: {problem}", token::profile(asked.key)));
        }
        let token = token?;
        let known = state.keys.get_mut(asked.key)?;
        known.run = known.run.max(token.run);
        if known.evictions == asked.known.evictions {
            known.held_until = known.held_until.max(token.expires);
        }
        Some(token.run)
    }

    fn problem(&self, asked: &Asked, token: &Token, least_run: u64, at: u64) -> Option<String> {
        let Token { nonce, provider, profile, run, started, expires } = token;
        if *nonce != self.nonce {
            Some("the token is of another soak".to_owned())
        } else if (provider, profile) != (&token::provider(asked.key), &token::profile(asked.key)) {
            Some(format!("the token is of {provider}, {profile}"))
        } else if *expires <= at {
            Some(format!("the token had expired {} ms before it was requested", at - expires))
        } else if *run < least_run {
            Some(format!("the token is of run {run}, after one of run {least_run}"))
        } else if *started < asked.known.evicted {
            Some(format!("the token is of run {run}, which was evicted"))
        } else {
            None
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn violation(&mut self, text: String) {
        let kind = text.replace(|character: char| character.is_ascii_digit(), "");
        if self.violations.len() < SHOWN {
            self.violations.entry(kind).or_insert(text);
        }
    }
}

/// An error and its causes.
fn chain(error: &Error) -> String {
    format!("{:#}", anyhow::Error::from(error.clone()))
}

/// Whether a fault of the plugin can have this reason.
fn is_expected(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ExpiredOutput
            | Reason::IssuerThrottled
            | Reason::OutputInvalid
            | Reason::PluginExit
            | Reason::PluginSignal
            | Reason::PluginTimeout
    )
}

#[cfg(test)]
mod tests;
