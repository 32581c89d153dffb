//! The API servers that are asked about credentials: they accept, refuse, are slow, or never answer.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::{
    keys::Reading,
    model::{Model, Shared, token_of},
    plugins::secs,
};
use crate::{Verdict, VerifyFn};

/// How long one verification may take, including the wait for a place.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Timers of tokio round up to a millisecond.
const TICK: Duration = Duration::from_millis(5);

/// Verifications at a time. Few, so that those which do not end are missed soon.
pub(super) const PLACES: usize = 4;

/// A verification in progress: from the first question until it is answered or dropped.
struct Asked {
    model: Shared,
    id: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.model.lock().unwrap().verifications.remove(&self.id);
    }
}

/// Asks simulated API servers, as the broker asks real ones: a few at a time, and each with a time limit.
pub(super) fn verifier(model: &Shared, places: &Arc<Semaphore>) -> VerifyFn {
    let (model, places) = (Arc::clone(model), Arc::clone(places));
    Arc::new(move |issued, _| {
        let text = issued.token().unwrap_or_default().to_owned();
        let (model, places) = (Arc::clone(&model), Arc::clone(&places));
        let id = model.lock().unwrap().asks_server(&text);
        let asked = Asked { model, id };
        Box::pin(async move {
            let answer = async {
                let _place = places.acquire().await.unwrap();
                let takes = asked.model.lock().unwrap().server_takes(&text);
                match takes {
                    Some(takes) => sleep(takes).await,
                    None => pending().await,
                }
            };
            let is_answered = timeout(TIMEOUT, answer).await.is_ok();
            asked.model.lock().unwrap().verdict(&text, is_answered)
        })
    })
}

impl Model {
    fn asks_server(&mut self, text: &str) -> u64 {
        let (id, now) = (self.number(), self.now());
        self.verifications.insert(id, now.awake);
        self.event(|| format!("verification {id} of {text}"));
        id
    }

    /// How long the API server takes; `None`: it never answers.
    fn server_takes(&mut self, text: &str) -> Option<Duration> {
        let key = self.tokens[token_of(text)?].key;
        let random = &mut self.keys[key].random.0;
        match random.u8(..10) {
            0 => None,
            1 | 2 => Some(Duration::from_millis(random.u64(1000..2900))),
            _ => Some(Duration::from_millis(random.u64(5..1000))),
        }
    }

    /// The verdict of the API server on the token `text`. Records when it was requested.
    fn verdict(&mut self, text: &str, is_answered: bool) -> Verdict {
        let Some(token) = token_of(text).and_then(|token| self.tokens.get(token)) else {
            return Verdict::Unverifiable;
        };
        let verdict = match self.keys[token.key].random.0.u8(..10) {
            _ if !is_answered => Verdict::Unverifiable,
            0 => Verdict::Unverifiable,
            _ if token.revoked => Verdict::Rejected,
            _ => Verdict::Accepted,
        };
        let key = token.key;
        let now = self.now();
        self.keys[key].suspected.answered(verdict, now);
        self.event(|| format!("{text} of {key} is {verdict:?}"));
        verdict
    }

    /// Every verification ends, also if each caller that waited for it has left.
    pub(super) fn judge_verifications(&mut self, now: Reading) {
        let open = self.verifications.iter().find(|(_, since)| **since + TIMEOUT + TICK < now.awake);
        if let Some((id, since)) = open.map(|(id, since)| (*id, *since)) {
            let time = now.awake.saturating_sub(since);
            self.broken(|| format!("verification {id} has no end: it began {time:?} ago, and holds a place"));
        }
    }
}

/// Whether all places are free.
pub(super) async fn all_free(places: &Semaphore) -> bool {
    let all = u32::try_from(PLACES).unwrap();
    timeout(secs(1), places.acquire_many(all)).await.is_ok()
}
