//! Follows the files of the configuration while the broker runs, and makes changes active.
//!
//! inotify reports touches of the files. Where it does not work, a look at them finds changes.

mod accounts;
mod adopt;
mod reading;

use std::{mem, panic::resume_unwind, path::PathBuf, sync::Arc, time::Duration};

use sd_notify::NotifyState;
use tokio::{
    sync::{Mutex, Notify, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tracing::{debug, error, info, warn};

use self::reading::{Absences, Marks, PendingChanges, Reading, changed, judge, marks, sources};
use super::{
    linux::{Touch, Watcher},
    systemd::notify,
};
use credbroker_config::{Loaded, Sources};
use credbroker_credential::text::one_line;
use credbroker_observe::clock::Clock;
use credbroker_server::ReloadState;

pub(super) use accounts::follow_accounts;
pub(super) use adopt::{Adopt, Adopted, Adopter, connection_limits, entry_limits, note_shared, run_limit};
pub use reading::ConfigPlace;

const MOST_NAMES: usize = 20;

/// Interval between looks at the files where inotify reports every change, and where it does not.
const LOOK: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3));
/// How long a reading may take. A file system that hangs never answers.
const LONGEST: Duration = Duration::from_secs(10);
/// Wait after a reading that could not be used because its files changed meanwhile.
const AGAIN: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Follower {
    place: ConfigPlace,
    adopter: Arc<dyn Adopt>,
    clock: Arc<dyn Clock>,
    /// Asks for a reading, as SIGHUP does. Requests until the files are read are one.
    requests: Arc<Notify>,
    state: watch::Sender<Arc<ReloadState>>,
    active: Sources,
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
    /// Follows `place`, of which `active` was read when the broker started.
    pub(super) fn new(
        place: ConfigPlace,
        active: Sources,
        adopter: Arc<dyn Adopt>,
        clock: Arc<dyn Clock>,
        requests: Arc<Notify>,
        state: watch::Sender<Arc<ReloadState>>,
    ) -> Self {
        Self {
            place,
            adopter,
            clock,
            requests,
            state,
            followed: active.followed.clone(),
            active,
            watcher: Watcher::start(),
            is_complete: false,
            marks: Marks::default(),
            pending: PendingChanges::default(),
            absences: Absences::default(),
            is_requested: false,
            turn: Arc::default(),
        }
    }

    pub(super) async fn run(mut self) {
        // A file may have changed since the start.
        self.pending.ask(Duration::ZERO);
        loop {
            let due = self.pending.due().map(|due| due.saturating_sub(self.clock.now().boot));
            let look = if self.is_complete { LOOK.0 } else { LOOK.1 };
            tokio::select! {
                touches = self.watcher.touches() => self.touch(touches),
                () = self.requests.notified() => {
                    debug!("reload requested");
                    self.is_requested = true;
                    notify(&NotifyState::Reloading);
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
            if self.read(due).await && mem::take(&mut self.is_requested) {
                notify(&NotifyState::Ready);
            }
        }
    }

    fn touch(&mut self, touches: Vec<(PathBuf, Touch)>) {
        let now = self.clock.now().boot;
        for (file, touch) in touches {
            self.pending.touch(file, touch, now);
        }
    }

    async fn look(&mut self) {
        let followed = self.followed.clone();
        if let Some(marks) = within(&self.turn, move || marks(&followed)).await {
            let changed = changed(&self.marks, &marks);
            self.marks = marks;
            self.touch(changed.into_iter().map(|file| (file, Touch::Settled)).collect());
        }
    }

    /// Reads the files and makes them active, or keeps the configuration before. False: they changed meanwhile and are
    /// read again soon.
    async fn read(&mut self, due: PendingChanges) -> bool {
        let (place, providers) = (self.place.clone(), self.adopter.providers());
        let (followed, inotify) = (self.followed.clone(), self.watcher.instance());
        let read = move || Reading::new(&place, &providers, &followed, inotify.as_deref());
        let Some(reading) = within(&self.turn, read).await else {
            // A file system does not answer. The files are read again when the reading in progress has ended.
            self.pending.ask(self.clock.now().boot.saturating_add(LONGEST));
            let limit = LONGEST.as_secs();
            let problem =
                format!("the files were not read within {limit} s; check for a network mount that hangs");
            self.keep(vec![problem]);
            return true;
        };
        let now = self.clock.now().boot;
        let Reading { result, watches, marks, is_torn } = reading;
        let newest = sources(&result).followed.clone();
        // The files of the active configuration too.
        let older = self.active.followed.iter().filter(|file| !newest.contains(file)).cloned();
        self.followed = newest.iter().cloned().chain(older).collect();
        self.is_complete = watches.is_complete;
        self.watcher.replace(watches);
        self.marks = marks;
        if is_torn {
            self.pending.ask_again(&due, now, now.saturating_add(AGAIN));
            if due.may_wait(now) {
                return false;
            }
        }
        let (problems, again) = judge(&result, &self.active, &mut self.absences, now);
        if let Some(again) = again {
            self.pending.ask(again);
        }
        match result {
            Ok(loaded) if problems.is_empty() => self.adopt(loaded).await,
            _ => self.keep(problems),
        }
        true
    }

    async fn adopt(&mut self, loaded: Loaded) {
        let Loaded { config, source, warnings, sources } = loaded;
        let (files, parts) = (config.files.clone(), Arc::clone(&self.adopter));
        // A fleet of many profiles is resolved again, which takes a while.
        let adopted = match spawn_blocking(move || parts.adopt(config)).await {
            Ok(adopted) => adopted,
            // The active access rules and providers may be of two configurations. This task ends, and the broker with
            // it; its supervisor starts it with one of them.
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_runtime_ends) => return,
        };
        (self.active, self.absences) = (sources, Absences::default());
        let before = Arc::clone(&self.state.borrow());
        let is_change = adopted.is_change || before.restart_needed != adopted.restart_needed;
        if is_change {
            for warning in &warnings {
                warn!("{warning}");
            }
        }
        log(&adopted, &before, &source, self.is_requested);
        let state = ReloadState {
            files,
            last_success: self.clock.now().wall,
            reloads: before.reloads + u64::from(is_change),
            problems: Vec::new(),
            problems_since: None,
            restart_needed: adopted.restart_needed,
            failures: before.failures,
        };
        self.state.send_replace(Arc::new(state));
    }

    fn keep(&self, problems: Vec<String>) {
        let before = Arc::clone(&self.state.borrow());
        if before.problems == problems {
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
            "the changed configuration is not used; the previous one stays active"
        );
        let problems_since = before.problems_since.or_else(|| Some(self.clock.now().wall));
        let failures = before.failures + 1;
        let state = ReloadState { problems, problems_since, failures, ..(*before).clone() };
        self.state.send_replace(Arc::new(state));
    }
}

/// Runs `job` on a thread for blocking calls. `None`: it did not end in time, or panicked, or one before it that has `turn`
/// has not ended yet.
async fn within<T: Send + 'static>(
    turn: &Arc<Mutex<()>>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let turn = Arc::clone(turn).try_lock_owned().ok()?;
    let job = spawn_blocking(move || {
        let _turn = turn;
        job()
    });
    timeout(LONGEST, job).await.ok()?.ok()
}

/// `is_requested`: a user or a program waits for a line, as after SIGHUP.
fn log(adopted: &Adopted, before: &ReloadState, source: &str, is_requested: bool) {
    for key in adopted.restart_needed.iter().filter(|key| !before.restart_needed.contains(key)) {
        warn!("`{key}` has changed; the broker uses the new value after a restart");
    }
    let names = |names: &[Arc<str>]| -> Vec<String> {
        let more = names.len().saturating_sub(MOST_NAMES);
        let first = names.iter().take(MOST_NAMES).map(ToString::to_string);
        first.chain((more > 0).then(|| format!("and {more} more"))).collect()
    };
    if adopted.is_change {
        let providers = &adopted.providers;
        info!(
            added = ?names(&providers.added),
            changed = ?names(&providers.changed),
            removed = ?names(&providers.removed),
            "the configuration from {source} has changed and is active"
        );
    } else if !before.problems.is_empty() {
        info!("the configuration from {source} has no problem now, and is active");
    } else if is_requested {
        info!("configuration unchanged");
    } else {
        debug!("configuration unchanged");
    }
}

#[cfg(test)]
mod tests;
