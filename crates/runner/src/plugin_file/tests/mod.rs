//! Looks at files that only the test knows.

mod command;
mod trust;

use std::sync::{Condvar, Mutex};

use tokio::{
    sync::mpsc,
    time::{advance, sleep, timeout},
};

use super::*;
use credbroker_plugin::{
    Environment, PluginPolicy, Provider, ProviderProblem, ResolveError, Sandbox, testing::provider,
};
use credbroker_test_support::{private_directory, private_file};

/// Longer than anything here takes, on any machine, also where time passes a hundred times as fast.
const AGES: Duration = Duration::from_secs(60 * 100);

/// A file system with one file, which may hang.
#[derive(Clone)]
struct Disk {
    state: Arc<(Mutex<State>, Condvar)>,
    begun: mpsc::UnboundedSender<()>,
}

struct State {
    file: Result<Option<Executable>, io::ErrorKind>,
    hangs: bool,
}

/// Each look that begins. When it is dropped the disk hangs no more: a runtime waits for threads that block.
struct Looks {
    begun: mpsc::UnboundedReceiver<()>,
    disk: Disk,
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.disk.set_hanging(false);
    }
}

impl Disk {
    fn new() -> (Self, Looks) {
        let (sender, begun) = mpsc::unbounded_channel();
        let state = State { file: Ok(Some(executable("/plugin", 1, 1))), hangs: false };
        let disk = Self { state: Arc::new((Mutex::new(state), Condvar::new())), begun: sender };
        (disk.clone(), Looks { begun, disk })
    }

    fn set_hanging(&self, hangs: bool) {
        self.state.0.lock().unwrap().hangs = hangs;
        self.state.1.notify_all();
    }

    fn put(&self, file: Result<Option<Executable>, io::ErrorKind>) {
        self.state.0.lock().unwrap().file = file;
    }

    /// Looks at it instead of the real one.
    fn look(
        &self,
    ) -> impl Fn(&PluginFile, &mut LastDigest) -> io::Result<Option<FoundFile>> + Send + 'static {
        let disk = self.clone();
        move |_, _| {
            disk.begun.send(()).ok();
            let state = disk.state.0.lock().unwrap();
            let found = disk.state.1.wait_while(state, |state| state.hangs).unwrap().file.clone()?;
            Ok(found.map(|executable| FoundFile {
                executable: executable.into(),
                version: 0,
                refusal: None,
                is_first_in_path: false,
            }))
        }
    }
}

impl Looks {
    async fn next(&mut self) {
        timeout(AGES, self.begun.recv()).await.expect("a look begins").unwrap();
    }

    /// How many began and were not waited for.
    fn more(&self) -> usize {
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

fn plugin() -> Arc<PluginFile> {
    Arc::new(PluginFile::new(Command::Name("plugin".into()), None))
}

#[test]
fn a_version_is_a_file_that_is_found_and_is_another_than_the_last() {
    let ((disk, _looks), file) = (Disk::new(), plugin());
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
        look_up(&[Arc::clone(&file)], disk.look());
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

#[tokio::test]
async fn a_look_finds_what_is_there_now() {
    let ((disk, _looks), file) = (Disk::new(), plugin());
    disk.put(Ok(None));
    assert!(matches!(find_with(&file, disk.look()).await, Err(FileError::NotFound)));
    disk.put(Ok(Some(executable("/plugin", 1, 1))));
    assert!(matches!(file.found(), Err(FileError::NotFound)), "without a look nothing changes");
    assert_eq!(find_with(&file, disk.look()).await.unwrap().version, 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_system_that_hangs_costs_one_thread_and_an_error_in_time() {
    let ((disk, mut looks), file) = (Disk::new(), plugin());
    disk.set_hanging(true);
    for attempt in 0..3 {
        let mut look = std::pin::pin!(find_with(&file, disk.look()));
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
    let found = find_with(&file, disk.look()).await;
    assert_eq!(found.unwrap().version, 1, "the first look is over, and another one follows");
    looks.next().await;
}

/// Time passes until `event`, a hundred times as fast as it does. By itself it does not pass while a thread hangs.
async fn while_time_passes<T>(event: impl Future<Output = T>) -> T {
    let passing = async {
        loop {
            advance(Duration::from_millis(100)).await;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    tokio::select! {
        biased;
        met = event => met,
        () = passing => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_on_a_hung_mount_holds_up_its_own_provider_only() {
    let [(one, mut at_one), (two, mut at_two)] = [Disk::new(), Disk::new()];
    one.set_hanging(true);
    let files = [plugin(), plugin()];
    let looking = async {
        loop {
            let (files, disks) = (files.clone(), [one.look(), two.look()]);
            let which = files.clone();
            let look = move |file: &PluginFile, last: &mut LastDigest| {
                let [one, two] = &disks;
                if std::ptr::eq(file, &raw const *which[0]) { one(file, last) } else { two(file, last) }
            };
            drop(spawn_blocking(move || look_up(&files, look)));
            sleep(Duration::from_secs(2)).await;
        }
    };
    let test = async {
        while_time_passes(async {
            at_one.next().await;
            for _ in 0..4 {
                at_two.next().await;
            }
        })
        .await;
        let [version_one, version_two] = [0, 1].map(|index: usize| files[index].version());
        assert_eq!((at_one.more(), version_one, version_two), (0, 0, 1), "one look at a time");
        one.set_hanging(false);
        while_time_passes(at_one.next()).await;
        assert_eq!(files[0].version(), 1, "the look that hung has ended, and another one follows");
    };
    tokio::select! {
        () = looking => unreachable!(),
        () = test => {}
    }
}

#[test]
fn what_is_missing_is_named_with_its_remedy_and_is_runnable_once_it_is_there() {
    let dir = private_directory();
    let of = |command| {
        let providers = Providers::new([Provider {
            install_hint: Some("Install it with `apt install plugin`.".into()),
            inherited: Environment::from_iter([("PATH", dir.path())]).into(),
            ..provider("p", command)
        }]);
        assert!(providers.configured("p").unwrap().runnable().is_ok(), "it was not looked at yet");
        look_up_files(&providers);
        providers
    };
    let missing = |command| of(command).configured("p").unwrap().runnable().unwrap_err().to_string();
    let path = dir.path().display();
    assert_eq!(
        missing(Command::Name("plugin".into())),
        format!(
            "provider `p`: plugin `plugin` is not installed in the broker's PATH, {path}. Install it with `apt install plugin`."
        )
    );
    insta::assert_snapshot!(missing(Command::Path("/nowhere/plugin".into())), @"provider `p`: plugin `/nowhere/plugin` is not installed. Install it with `apt install plugin`.");
    let named = of(Command::Name("plugin".into()));
    private_file(&dir.path().join("plugin"), "");
    assert!(named.configured("p").unwrap().runnable().is_err());
    look_up_files(&named);
    assert!(named.configured("p").unwrap().runnable().is_ok());
    let below_a_file: PathBuf = dir.path().join("plugin/x".repeat(4096));
    let error = of(Command::Path(below_a_file)).configured("p").unwrap().runnable().unwrap_err();
    assert!(
        matches!(error, ResolveError::Provider(_, ProviderProblem::PluginUnreadable(..))),
        "too long a name: {error:?}"
    );
}

const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn a_file_with_other_contents_is_refused_also_after_its_time_was_set_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("plugin");
    fs::write(&path, "abc").unwrap();
    let mut last = None;
    let mut refusal = |path: &Path| other_digest(path, Sha256::from_hex(OF_ABC).unwrap(), &mut last);
    assert_eq!(refusal(&path).unwrap(), None);
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "abd").unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    let refused = refusal(&path).unwrap();
    assert!(matches!(refused, Some(Refusal::Digest(actual)) if actual.starts_with("a52d159f")));
    fs::write(&path, "abc").unwrap();
    assert_eq!(refusal(&path).unwrap(), None);
    assert!(refusal(&home.path().join("absent")).is_err());
}

/// The scenarios of KEP-3104: two directories with a plugin of the same name, of which `search` has both.
#[test]
fn an_entry_permits_the_command_as_written_or_the_file_that_runs() {
    let home = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| home.path().join(name));
    for directory in [&first, &second] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("plugin"), "").unwrap();
        fs::set_permissions(directory.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let search = std::env::join_paths([&first, &second]).unwrap();
    let [first, second] = [first, second].map(|directory| directory.join("plugin"));
    let [first_text, second_text] = [&first, &second].map(|path| path.to_str().unwrap().to_owned());
    let name = || Command::Name("plugin".into());
    let path = |path: &Path| Command::Path(path.to_owned());
    for (entry, command, runs, is_permitted) in [
        ("plugin", name(), &first, true),
        (&*first_text, name(), &first, true),
        (&*second_text, name(), &first, false),
        ("plugin", path(&first), &first, true), // the name leads there
        ("plugin", path(&second), &second, false),
        (&*second_text, path(&second), &second, true),
        (&*first_text, path(&second), &second, false),
        ("other", name(), &first, false),
    ] {
        let provider = Provider {
            policy: Arc::new(PluginPolicy::Allowlist(vec!["unrelated".into(), entry.into()])),
            inherited: Environment::from_iter([("PATH", &search)]).into(),
            sandbox: Sandbox::Compatible,
            ..provider("p", command.clone())
        };
        let providers = Providers::new([provider]);
        look_up_files(&providers);
        assert_eq!(providers.files[0].found().unwrap().executable.path, *runs);
        assert_eq!(providers.configured("p").unwrap().runnable().is_ok(), is_permitted, "{entry} {command}");
    }
}
