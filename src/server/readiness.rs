//! Whether there is a credential for each cluster.

use std::{collections::HashMap, sync::Arc};

use credbroker_proto::v1::cluster_state::Readiness as State;

use super::status;
use crate::{
    cache::{CredentialCache, Failed, Holding},
    exec::PluginRunner,
    plugin::{Known, ProfileName},
};

/// What the cache held for every profile at one moment.
#[derive(Debug, Default)]
pub(super) struct Readiness(HashMap<ProfileName, (State, Option<Failed>)>);

impl Readiness {
    /// One look at the whole cache. Callers that bring variables of their own have keys of their own: the best of a
    /// profile's keys counts.
    pub(super) fn of<R: PluginRunner>(cache: &CredentialCache<R>) -> Self {
        let mut all = Self::default();
        for (profile, holding, failed) in cache.held_for_profiles() {
            let state = match holding {
                Holding::Valid | Holding::Renewing => State::Ready,
                Holding::Waiting => State::Fetching,
                Holding::Failed => State::Failed,
                Holding::Empty => State::Idle,
            };
            let better = |known: &(State, Option<Failed>)| rank(state) < rank(known.0);
            if all.0.get(&profile).is_none_or(better) {
                all.0.insert(profile, (state, failed));
            }
        }
        all
    }

    /// How it stands for a profile, and the stable reason if it stands badly.
    pub(super) fn of_profile(&self, known: &Known) -> (State, Arc<str>) {
        match (&known.outcome, self.0.get(&known.profile.name)) {
            (Err(error), _) => (State::Unusable, status::profile_reason(error).name().into()),
            (Ok(_), None) => (State::Idle, "".into()),
            (Ok(_), Some((State::Failed, Some(failed)))) => {
                (State::Failed, status::cache_reason(&failed.error).name().into())
            }
            (Ok(_), Some((state, _))) => (*state, "".into()),
        }
    }

    /// Why it stands badly, for people.
    pub(super) fn message(&self, known: &Known) -> String {
        match (&known.outcome, self.0.get(&known.profile.name)) {
            (Err(error), _) => status::chain(error),
            (Ok(_), Some((State::Failed, Some(failed)))) => status::chain(&failed.error),
            _ => String::new(),
        }
    }
}

fn rank(state: State) -> u8 {
    match state {
        State::Ready => 0,
        State::Fetching => 1,
        State::Failed => 2,
        State::Idle => 3,
        State::Unusable | State::Unspecified => 4,
    }
}
