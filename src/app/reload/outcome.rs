//! What becomes of a reading: it is put in force, or the configuration before stays.

use std::{panic::resume_unwind, sync::Arc};

use tokio::task::spawn_blocking;
use tracing::{debug, error, info, warn};

use super::{Follower, absences::Absences, adopt::Adopted};
use credbroker_config::Loaded;
use credbroker_credential::text::one_line;
use credbroker_server::{ReloadFailure, ReloadState};

/// The most names of providers in one line of the log.
const MOST_NAMES: usize = 20;

impl Follower {
    pub(super) async fn adopt(&mut self, loaded: Loaded) {
        let Loaded { config, source, warnings, sources } = loaded;
        let (files, parts) = (config.files.clone(), Arc::clone(&self.adopter));
        // A fleet of many profiles is resolved again, which takes a while.
        let adopted = match spawn_blocking(move || parts.adopt(config)).await {
            Ok(adopted) => adopted,
            // The access rules and the providers in force may be of two configurations. This task ends, and the broker with
            // it; its supervisor starts it with one of them.
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_runtime_ends) => return,
        };
        (self.in_force, self.absences) = (sources, Absences::default());
        let before = Arc::clone(&self.state.borrow());
        let is_change = adopted.is_change() || before.restart_needed != adopted.restart_needed;
        if is_change {
            for warning in &warnings {
                warn!("{warning}");
            }
        }
        if is_change {
            self.adopter.metrics.reloads.add_one();
        }
        log(&adopted, &before, &source, self.is_requested);
        let state = ReloadState {
            files,
            last_success: self.clock.now().wall,
            reloads: before.reloads + u64::from(is_change),
            failure: None,
            restart_needed: adopted.restart_needed,
            failures: before.failures,
        };
        self.state.send_replace(Arc::new(state));
    }

    pub(super) fn keep(&self, problems: Vec<String>) {
        let before = Arc::clone(&self.state.borrow());
        let known = before.failure.as_ref();
        if known.is_some_and(|known| known.problems == problems) {
            if self.is_requested {
                error!("the changed configuration still has the same problems");
            }
            return;
        }
        for problem in &problems {
            error!("{}", one_line(problem));
        }
        error!(
            problems = problems.len(),
            "the changed configuration is not put in force; the previous one stays in force"
        );
        self.adopter.metrics.failed_reloads.add_one();
        let since = known.map_or_else(|| self.clock.now().wall, |known| known.since);
        let failure = Some(ReloadFailure { since, problems });
        let state = ReloadState { failure, failures: before.failures + 1, ..(*before).clone() };
        self.state.send_replace(Arc::new(state));
    }
}

impl Adopted {
    pub(super) fn is_change(&self) -> bool {
        self.limits || self.access || self.is_hub_changed || !self.providers.is_empty()
    }
}

/// `is_requested`: a person or a program waits for a line, as after SIGHUP.
fn log(adopted: &Adopted, before: &ReloadState, source: &str, is_requested: bool) {
    for key in adopted.restart_needed.iter().filter(|key| !before.restart_needed.contains(key)) {
        warn!("`{key}` has changed; the broker uses the new value after a restart");
    }
    let names = |names: &[Arc<str>]| -> Vec<String> {
        let more = names.len().saturating_sub(MOST_NAMES);
        let first = names.iter().take(MOST_NAMES).map(ToString::to_string);
        first.chain((more > 0).then(|| format!("and {more} more"))).collect()
    };
    if adopted.is_change() {
        let providers = &adopted.providers;
        info!(
            added = ?names(&providers.added),
            changed = ?names(&providers.changed),
            removed = ?names(&providers.removed),
            "the configuration from {source} has changed and is in force"
        );
    } else if before.failure.is_some() {
        info!("the configuration from {source} has no problem now, and is in force");
    } else if is_requested {
        info!("configuration unchanged");
    } else {
        debug!("configuration unchanged");
    }
}
