//! The profiles that wait to be fetched.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use credbroker_plugin::ProfileName;

/// A queue in which each profile is at most once, however often it changes while it waits: the queue is never longer
/// than the fleet, and a profile that changes often does not delay the others.
pub(super) fn queue() -> (Offers, QueueTurns) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let offers = Offers { sender, waiting: WaitingProfiles::default() };
    let turns = QueueTurns { receiver, waiting: offers.waiting.clone() };
    (offers, turns)
}

/// The end of the queue.
#[derive(Debug)]
pub(super) struct Offers {
    sender: UnboundedSender<ProfileName>,
    waiting: WaitingProfiles,
}

/// The front of the queue.
#[derive(Debug)]
pub(super) struct QueueTurns {
    receiver: UnboundedReceiver<ProfileName>,
    waiting: WaitingProfiles,
}

#[derive(Clone, Debug, Default)]
struct WaitingProfiles(Arc<Mutex<HashSet<ProfileName>>>);

impl Offers {
    pub(super) fn offer(&self, profile: &ProfileName) {
        if self.waiting.lock().insert(profile.clone()) {
            // Closed only when the broker drains.
            drop(self.sender.send(profile.clone()));
        }
    }
}

impl QueueTurns {
    /// The next profile. It can be offered again from now on, because its target is looked up later.
    pub(super) async fn next(&mut self) -> Option<ProfileName> {
        let profile = self.receiver.recv().await?;
        self.waiting.lock().remove(&profile);
        Some(profile)
    }
}

impl WaitingProfiles {
    fn lock(&self) -> MutexGuard<'_, HashSet<ProfileName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_profile_that_changes_all_the_time_waits_once_and_keeps_its_place() {
        let (offers, mut turns) = queue();
        let (paris, tokyo) = (ProfileName::new("fleet", "paris"), ProfileName::new("fleet", "tokyo"));
        for _ in 0..1_000 {
            offers.offer(&paris);
        }
        offers.offer(&tokyo);
        offers.offer(&paris);
        assert_eq!(turns.next().await.as_ref(), Some(&paris));
        offers.offer(&paris);
        drop(offers);
        let mut rest = Vec::new();
        while let Some(next) = turns.next().await {
            rest.push(next);
        }
        assert_eq!(rest, [tokyo, paris], "what changes after its turn came is fetched again");
    }
}
