//! Follows the files of the configuration while the broker runs, and puts changes in force.
//!
//! `pending` decides when the files are read, `absences` what counts as missing, and `reading` whether a reading is put in
//! force; these are pure. `watcher` reports changes with inotify. Where that does not work, `marks` finds them.

mod absences;
mod adopt;
mod marks;
mod outcome;
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
use tracing::debug;

use self::{
    absences::Absences,
    marks::Marks,
    pending::{DueReading, PendingChanges, Touch},
    reading::{Reading, ReadingVerdict, judge},
    watcher::Watcher,
};
use super::ServiceNotification;
use credbroker_config::Sources;
use credbroker_observe::clock::Clock;
use credbroker_server::ReloadState;

pub(super) use adopt::{Adopter, Started, note_shared};
pub use reading::ConfigPlace;

/// Interval between looks at the files where inotify reports every change, and where it does not.
const LOOK: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3));
/// How long a reading may take. A file system that hangs never answers.
const LONGEST: Duration = Duration::from_secs(10);
/// Wait after a reading that could not be used because its files changed meanwhile.
const AGAIN: Duration = Duration::from_millis(250);

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
    pending: PendingChanges,
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
        let mut pending = PendingChanges::default();
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
                    self.pending.request(self.clock.now().boot);
                }
                () = sleep(due.unwrap_or(Duration::MAX)), if due.is_some() => {}
                () = sleep(look), if due.is_none() => self.look().await,
            }
            // What is due may have been touched just now.
            let touches = self.watcher.waiting();
            self.touch(touches);
            if self.watcher.has_lost_events() {
                self.look().await;
            }
            let now = self.clock.now().boot;
            let Some(due) = self.pending.take(now) else { continue };
            if self.read(due).await && std::mem::take(&mut self.is_requested) {
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
    async fn read(&mut self, due: DueReading) -> bool {
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
            self.pending.ask_again(due, now, now.saturating_add(AGAIN));
            if due.may_wait(now) {
                return false;
            }
        }
        match judge(result.as_ref(), &self.in_force, &mut self.absences, now) {
            ReadingVerdict::Keep { problems, again } => {
                if let Some(again) = again {
                    self.pending.ask(again);
                }
                self.keep(problems);
            }
            ReadingVerdict::Adopt => {
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
