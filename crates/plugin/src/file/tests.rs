//! Looks at files that only the test knows.

use std::sync::{Condvar, Mutex as StdMutex};

use tokio::{
    sync::mpsc,
    time::{advance, timeout},
};

use super::*;

/// Longer than anything here takes, on any machine, also where time passes a hundred times as fast.
const AGES: Duration = Duration::from_secs(60 * 100);

/// A file system with one file, which may hang.
#[derive(Clone)]
pub(crate) struct Disk {
    state: Arc<(StdMutex<State>, Condvar)>,
    begun: mpsc::UnboundedSender<()>,
}

struct State {
    file: Result<Option<Executable>, io::ErrorKind>,
    hangs: bool,
}

/// Each look that begins. When it is dropped the disk hangs no more: a runtime waits for threads that block.
pub(crate) struct Looks {
    begun: mpsc::UnboundedReceiver<()>,
    disk: Disk,
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.disk.set_hanging(false);
    }
}

impl Disk {
    pub(crate) fn new() -> (Self, Looks) {
        let (sender, begun) = mpsc::unbounded_channel();
        let state = State { file: Ok(Some(executable("/plugin", 1, 1))), hangs: false };
        let disk = Self { state: Arc::new((StdMutex::new(state), Condvar::new())), begun: sender };
        (disk.clone(), Looks { begun, disk })
    }

    pub(crate) fn set_hanging(&self, hangs: bool) {
        self.state.0.lock().unwrap().hangs = hangs;
        self.state.1.notify_all();
    }

    fn put(&self, file: Result<Option<Executable>, io::ErrorKind>) {
        self.state.0.lock().unwrap().file = file;
    }

    pub(crate) fn file(&self, command: Command) -> PluginFile {
        let disk = self.clone();
        PluginFile::with(command, move |_| {
            disk.begun.send(()).ok();
            let state = disk.state.0.lock().unwrap();
            disk.state.1.wait_while(state, |state| state.hangs).unwrap().file.clone().map_err(io::Error::from)
        })
    }
}

impl Looks {
    pub(crate) async fn next(&mut self) {
        timeout(AGES, self.begun.recv()).await.expect("a look begins").unwrap();
    }

    /// How many began and were not waited for.
    pub(crate) fn more(&self) -> usize {
        self.begun.len()
    }
}

fn executable(path: &str, inode: u64, modified: u64) -> Executable {
    Executable {
        path: path.into(),
        inode,
        modified: std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(modified),
    }
}

fn command() -> Command {
    Command::Name("plugin".into())
}

#[test]
fn a_version_is_a_file_that_is_found_and_is_another_than_the_last() {
    let (disk, _looks) = Disk::new();
    let file = disk.file(command());
    assert_eq!(file.version(), 0);
    let there = |path, inode, modified| Ok(Some(executable(path, inode, modified)));
    let steps = [
        (there("/plugin", 1, 1), 1),
        (there("/plugin", 1, 1), 1),
        (Ok(None), 1), // it vanishes
        (there("/plugin", 1, 1), 1),
        (Err(io::ErrorKind::PermissionDenied), 1),
        (there("/plugin", 2, 1), 2), // another inode
        (there("/plugin", 2, 2), 3), // another time
        (Ok(None), 3),
        (there("/other", 2, 2), 4),  // another path
        (there("/plugin", 2, 2), 5), // an old one is another one again
    ];
    for (index, (state, version)) in steps.into_iter().enumerate() {
        disk.put(state.clone());
        file.look_now();
        assert_eq!(file.version(), version, "step {index}");
        match (state, file.found()) {
            (Ok(Some(there)), Ok(found)) => {
                assert_eq!((&*found.executable, found.version), (&there, version));
            }
            (Ok(None), Err(FileError::NotFound)) => {}
            (Err(kind), Err(FileError::Unreadable(error))) => assert_eq!(error.kind(), kind),
            (state, found) => panic!("step {index}: {state:?} {found:?}"),
        }
    }
}

#[test]
fn reading_looks_at_nothing() {
    let (disk, looks) = Disk::new();
    let file = disk.file(command());
    assert!(matches!(file.found(), Err(FileError::Unanswered)), "nothing was looked at yet");
    assert_eq!((file.version(), file.to_string()), (0, "plugin".to_owned()));
    file.look_now();
    assert_eq!(looks.more(), 1);
    disk.set_hanging(true);
    assert_eq!((file.version(), file.to_string()), (1, "/plugin".to_owned()));
    assert!(file.found().is_ok());
    disk.put(Ok(None));
    assert_eq!(looks.more(), 1);
}

#[tokio::test]
async fn a_look_finds_what_is_there_now() {
    let (disk, _looks) = Disk::new();
    let file = Arc::new(disk.file(command()));
    disk.put(Ok(None));
    assert!(matches!(file.look().await, Err(FileError::NotFound)));
    disk.put(Ok(Some(executable("/plugin", 1, 1))));
    assert!(matches!(file.found(), Err(FileError::NotFound)), "without a look nothing changes");
    assert_eq!(file.look().await.unwrap().version, 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_system_that_hangs_costs_one_thread_and_an_error_in_time() {
    let (disk, mut looks) = Disk::new();
    let file = Arc::new(disk.file(command()));
    disk.set_hanging(true);
    for attempt in 0..3 {
        let look = Arc::clone(&file);
        let mut look = std::pin::pin!(async move { look.look().await });
        tokio::select! {
            biased;
            found = &mut look => panic!("{found:?}"),
            () = async { if attempt == 0 { looks.next().await } } => {}
        }
        // Time does not pass by itself while something blocks.
        advance(LOOK_TIMEOUT).await;
        assert!(matches!(look.await, Err(FileError::Unanswered)));
        assert_eq!(looks.more(), 0, "no second look while one is in flight");
    }
    disk.set_hanging(false);
    assert_eq!(file.look().await.unwrap().version, 1, "the first look is over, and another one follows");
    looks.next().await;
}

#[test]
fn a_replaced_file_is_found_as_another_version() {
    let file = PluginFile::new(command(), None);
    for version in 1..3 {
        file.replace();
        assert_eq!((file.version(), file.found().unwrap().version), (version, version));
    }
}
