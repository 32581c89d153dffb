//! The working directory of a run. It is made and removed on the blocking pool.

use std::{
    fs::{self, Permissions},
    io, mem,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{runtime::Handle, sync::Mutex, task::spawn_blocking, time::timeout};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::removal::remove_tree;

/// How long a run waits for its directory.
const MAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes and removes a directory in `base`, as each run does. A broker that cannot do this could run no plugin.
///
/// # Errors
///
/// The kernel's: `base` does not exist, is read-only or is full.
pub fn check_scratch(base: &Path) -> io::Result<()> {
    make(base)?.close()
}

#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) base: Arc<Path>,
    /// Held by the removal of a directory. A plugin that leaves a huge tree must not occupy all threads.
    removal: Arc<Mutex<()>>,
    pub(crate) tasks: TaskTracker,
}

/// The directory of one run. Dropping it starts its removal and does not wait for it.
#[derive(Debug)]
pub(crate) struct RunDirectory<'a> {
    /// The plugin's working directory, empty when it starts.
    pub(crate) working: PathBuf,
    whole: PathBuf,
    scratch: &'a Scratch,
}

impl Scratch {
    /// Makes directories in `base`. `tasks` owns the removals, so that a drain waits for them.
    pub(crate) fn new(base: Arc<Path>, tasks: TaskTracker) -> Self {
        Self { base, removal: Arc::default(), tasks }
    }

    pub(crate) async fn directory(&self) -> io::Result<RunDirectory<'_>> {
        let base = Arc::clone(&self.base);
        let made = timeout(MAKE_TIMEOUT, spawn_blocking(move || make(&base))).await;
        let whole = made.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))???;
        Ok(RunDirectory { working: whole.path().join("cwd"), whole: whole.keep(), scratch: self })
    }
}

impl Drop for RunDirectory<'_> {
    fn drop(&mut self) {
        let directory = mem::take(&mut self.whole);
        let Ok(runtime) = Handle::try_current() else { return remove(&directory) };
        let removal = Arc::clone(&self.scratch.removal);
        let remove = async move {
            let _turn = removal.lock().await;
            drop(spawn_blocking(move || remove(&directory)).await);
        };
        self.scratch.tasks.spawn_on(remove, &runtime);
    }
}

fn make(base: &Path) -> io::Result<TempDir> {
    let private = Permissions::from_mode(0o700);
    let whole = tempfile::Builder::new().prefix("run-").permissions(private.clone()).tempdir_in(base)?;
    let working = whole.path().join("cwd");
    fs::create_dir(&working)?;
    fs::set_permissions(&working, private)?;
    Ok(whole)
}

fn remove(directory: &Path) {
    if let Err(error) = remove_tree(directory) {
        debug!("cannot remove the working directory of a plugin: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use tokio::{runtime::Builder, task::yield_now, time::advance};

    use super::*;

    /// Runs `test` on a runtime with one blocking thread, which [`occupy`] keeps busy.
    fn with_one_thread<F: Future<Output = ()>>(test: impl FnOnce(TempDir, Scratch) -> F) {
        let runtime =
            Builder::new_current_thread().max_blocking_threads(1).enable_time().start_paused(true).build();
        let base = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(base.path().into(), TaskTracker::new());
        runtime.unwrap().block_on(test(base, scratch));
    }

    fn occupy() -> Sender<()> {
        let (release, released) = channel();
        drop(spawn_blocking(move || released.recv()));
        release
    }

    #[test]
    fn the_check_needs_a_writable_directory_and_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        check_scratch(base.path()).unwrap();
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
        let missing = check_scratch(&base.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn removals_take_turns_and_no_run_waits_for_them() {
        with_one_thread(async |base, scratch| {
            let directories = [scratch.directory().await.unwrap(), scratch.directory().await.unwrap()];
            fs::write(directories[0].working.join("left"), "behind").unwrap();
            let left = || fs::read_dir(base.path()).unwrap().count();
            let turn = scratch.removal.lock().await;
            drop(directories);
            yield_now().await;
            spawn_blocking(|| ()).await.unwrap(); // after what has been given to a thread
            assert_eq!(left(), 2, "another one is removed");
            drop(turn);
            scratch.tasks.close();
            scratch.tasks.wait().await;
            assert_eq!(left(), 0);
        });
    }

    #[test]
    fn a_directory_that_cannot_be_made_in_time_is_an_error_and_leaves_nothing() {
        with_one_thread(async |base, scratch| {
            let busy = occupy();
            let (made, ()) = tokio::join!(scratch.directory(), advance(MAKE_TIMEOUT));
            assert_eq!(made.unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(busy);
            spawn_blocking(|| ()).await.unwrap(); // after the late directory
            assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
        });
    }
}
