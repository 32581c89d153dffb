//! Follows the files of the configuration while the broker runs, and puts changes in force.
//!
//! `pending` decides when the files are read, `absences` what counts as missing, and `reading` whether a reading is put in
//! force; these are pure. `watcher` reports changes with inotify. Where that does not work, `marks` finds them.

mod absences;
mod adopt;
mod marks;
mod pending;
mod places;
mod reading;
mod watcher;

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, Notify, OwnedMutexGuard, watch},
    task::{JoinHandle, spawn_blocking},
    time::{sleep, timeout},
};
use tracing::{debug, error, info, warn};

use self::{
    absences::Absences,
    adopt::Adopted,
    marks::Marks,
    pending::{Pending, Touch},
    reading::{Reading, Verdict, judge},
    watcher::Watcher,
};
use super::ServiceNotification;
use crate::{
    clock::Clock,
    config::{Loaded, Sources},
    server::{ReloadFailure, ReloadState},
    text::one_line,
};

pub(super) use adopt::{Adopter, Started};
pub use reading::ConfigPlace;

/// Interval between looks at the files where inotify reports every change, and where it does not.
const LOOK: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3));
/// How long a reading may take. A file system that hangs never answers.
const LONGEST: Duration = Duration::from_secs(10);
/// Wait after a reading that could not be used because its files changed meanwhile.
const AGAIN: Duration = Duration::from_millis(250);

/// The most names of providers in one line of the log.
const MOST_NAMES: usize = 20;

/// Asks for a reading, as SIGHUP does. Clones ask the same broker.
#[derive(Clone, Debug, Default)]
pub struct ReloadRequest(Arc<Notify>);

impl ReloadRequest {
    /// Asks. Requests until the files are read are one.
    pub fn send(&self) {
        self.0.notify_one();
    }
}

/// Follows the files of one broker.
#[derive(Debug)]
pub(super) struct Follower {
    place: ConfigPlace,
    adopter: Arc<Adopter>,
    clock: Arc<dyn Clock>,
    requests: ReloadRequest,
    state: watch::Sender<Arc<ReloadState>>,
    /// The files of the configuration in force.
    in_force: Sources,
    followed: Vec<PathBuf>,
    watcher: Watcher,
    is_complete: bool,
    marks: Marks,
    pending: Pending,
    absences: Absences,
    /// Whether a reading was requested and has not ended.
    is_requested: bool,
    /// Held by a reading. One that never ends keeps it, so that no other one starts.
    turn: Arc<Mutex<()>>,
}

impl Follower {
    /// Follows `place`, of which `in_force` was read when the broker started.
    pub(super) fn new(
        place: ConfigPlace,
        in_force: Sources,
        adopter: Arc<Adopter>,
        clock: Arc<dyn Clock>,
        requests: ReloadRequest,
        state: watch::Sender<Arc<ReloadState>>,
    ) -> Self {
        let mut pending = Pending::default();
        // A file may have changed since the start.
        pending.ask(Duration::ZERO);
        Self {
            place,
            adopter,
            clock,
            requests,
            state,
            followed: in_force.followed.clone(),
            in_force,
            watcher: Watcher::start(),
            is_complete: false,
            marks: Marks::default(),
            pending,
            absences: Absences::default(),
            is_requested: false,
            turn: Arc::default(),
        }
    }

    /// Runs until the future is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let due = self.pending.due().map(|due| due.saturating_sub(self.clock.now().boot));
            let look = if self.is_complete { LOOK.0 } else { LOOK.1 };
            tokio::select! {
                touches = self.watcher.touches() => self.touch(touches),
                () = self.requests.0.notified() => {
                    debug!("reload requested");
                    self.is_requested = true;
                    ServiceNotification::Reloading.notify();
                    self.pending.ask(Duration::ZERO);
                }
                () = sleep(due.unwrap_or(Duration::MAX)), if due.is_some() => {}
                () = sleep(look), if due.is_none() => self.look().await,
            }
            // A request may arrive before the event of a file that is being written.
            self.touch(self.watcher.waiting());
            let now = self.clock.now().boot;
            if self.pending.take(now) && self.read().await && std::mem::take(&mut self.is_requested) {
                ServiceNotification::Ready.notify();
            }
        }
    }

    fn touch(&mut self, touches: Vec<(PathBuf, Touch)>) {
        let now = self.clock.now().boot;
        for (file, touch) in touches {
            self.pending.touch(file, touch, now);
        }
    }

    /// Looks for changes that were not reported.
    async fn look(&mut self) {
        let (followed, Ok(turn)) = (self.followed.clone(), Arc::clone(&self.turn).try_lock_owned()) else {
            return;
        };
        let marks = within(turn, move || Marks::of(&followed)).await;
        if let Some(marks) = marks {
            let changed = self.marks.changed_in(&marks);
            self.marks = marks;
            self.touch(changed.into_iter().map(|file| (file, Touch::Settled)).collect());
        }
    }

    /// Reads the files and puts them in force, or keeps the configuration before. False: they changed meanwhile and are
    /// read again soon.
    async fn read(&mut self) -> bool {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            self.is_stuck();
            return true;
        };
        let (place, providers) = (self.place.clone(), self.adopter.resolver.providers());
        let (followed, inotify) = (self.followed.clone(), self.watcher.instance());
        let read = move || Reading::new(&place, &providers, &followed, inotify.as_deref());
        let Some(reading) = within(turn, read).await else {
            self.is_stuck();
            return true;
        };
        let now = self.clock.now().boot;
        self.follow(reading.sources());
        let Reading { result, watches, marks, is_torn } = reading;
        self.is_complete = watches.is_complete;
        self.watcher.replace(watches);
        self.marks = marks;
        if is_torn {
            self.pending.ask(now.saturating_add(AGAIN));
            return false;
        }
        match judge(result.as_ref(), &self.in_force, &mut self.absences, now) {
            Verdict::Keep { problems, again } => {
                if let Some(again) = again {
                    self.pending.ask(again);
                }
                self.keep(problems);
            }
            Verdict::Adopt => {
                if let Ok(loaded) = result {
                    self.adopt(loaded).await;
                }
            }
        }
        true
    }

    /// Follows the files of the newest reading, and those of the configuration in force.
    fn follow(&mut self, newest: &Sources) {
        let mut followed = newest.followed.clone();
        followed
            .extend(self.in_force.followed.iter().filter(|file| !newest.followed.contains(file)).cloned());
        self.followed = followed;
    }

    /// A file system does not answer. The files are read again when the reading in progress has ended.
    fn is_stuck(&mut self) {
        self.pending.ask(self.clock.now().boot.saturating_add(LONGEST));
        let limit = LONGEST.as_secs();
        self.keep(vec![format!(
            "the files were not read within {limit} s; check for a network mount that hangs"
        )]);
    }

    async fn adopt(&mut self, loaded: Loaded) {
        let Loaded { config, source, warnings, sources } = loaded;
        let (files, parts) = (config.files.clone(), Arc::clone(&self.adopter));
        // A fleet of many profiles is resolved again, which takes a while.
        let Ok(adopted) = spawn_blocking(move || parts.adopt(config)).await else {
            return self.keep(vec![
                "the configuration could not be put in force; this is a bug, please report it".into(),
            ]);
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

    fn keep(&self, problems: Vec<String>) {
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
            "the changed configuration is not put in force; the broker continues with the one before"
        );
        self.adopter.metrics.failed_reloads.add_one();
        let since = known.map_or_else(|| self.clock.now().wall, |known| known.since);
        let failure = Some(ReloadFailure { since, problems });
        let state = ReloadState { failure, failures: before.failures + 1, ..(*before).clone() };
        self.state.send_replace(Arc::new(state));
    }
}

impl Adopted {
    fn is_change(&self) -> bool {
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

/// Runs `job` on a thread for blocking calls. `None`: it did not end in time, or panicked.
async fn within<T: Send + 'static>(
    turn: OwnedMutexGuard<()>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let job: JoinHandle<T> = spawn_blocking(move || {
        let _turn = turn;
        job()
    });
    timeout(LONGEST, job).await.ok()?.ok()
}

#[cfg(test)]
mod tests;
