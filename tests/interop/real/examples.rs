//! The examples in Python, Java and JavaScript reach an API server, by the commands of their READMEs.

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Write as _},
    iter,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use credbroker_test_support::as_user;
use rustix::net::listen;
use serde_json::json;
use tempfile::NamedTempFile;

use super::{
    ControlPlane,
    fleet::{administrator, follower},
};
use crate::{fleet::until, programs::refresh, readme::blocks};

/// For a line that has to come: the API server accepts a revoked token for ten seconds, and the broker replaces a
/// credential that is younger than ten seconds only later.
const PATIENCE: Duration = Duration::from_secs(90);
/// A user that no program here runs as.
const STRANGER: u32 = 1002;

struct Example {
    directory: &'static str,
    source: &'static str,
    /// What its commands need.
    tool: &'static str,
}

const EXAMPLES: [Example; 3] = [
    Example { directory: "examples/python", source: "pods.py", tool: "python3" },
    Example { directory: "examples/java", source: "src/main/java/Pods.java", tool: "mvn" },
    Example { directory: "examples/node", source: "pods.js", tool: "npm" },
];

#[test]
fn an_example_has_at_most_sixty_lines() {
    let is_code = |line: &&str| {
        let line = line.trim();
        let is_comment = ["#", "//", "/**", "\"\"\""].iter().any(|start| line.starts_with(start));
        let is_import =
            line.starts_with("import ") || (line.starts_with("from ") && line.contains(" import "));
        !is_comment && !is_import && line.chars().any(|letter| !"})];".contains(letter))
    };
    for example in &EXAMPLES {
        let file = Path::new(example.directory).join(example.source);
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let count = text.lines().filter(is_code).count();
        assert!((20..=60).contains(&count), "{}: {count} lines", file.display());
    }
}

#[test]
fn python_follows_a_credential_to_an_api_server() {
    follows(&EXAMPLES[0]);
}

#[test]
fn java_follows_a_credential_to_an_api_server() {
    follows(&EXAMPLES[1]);
}

#[test]
fn javascript_follows_a_credential_to_an_api_server() {
    follows(&EXAMPLES[2]);
}

fn follows(example: &Example) {
    let Some(plane) = ControlPlane::shared() else { return };
    if !is_installed(example.tool) {
        return;
    }
    let user = format!("example-of-{}", plane.namespace);
    let kind = plane.file(&format!("kind-{user}"));
    fs::write(&kind, "token").unwrap();
    let plugin = plane.plugin(&format!("\"$(cat '{}')\"", kind.display()), &user, 3600);
    let hub = plane.plugin("token", "hub", 3600);
    let (mut broker, _home) = follower(&plane, &administrator(&hub), &plugin, &json!({}));
    let socket = broker.socket();
    plane.create_profile("paris", &json!({}));
    plane.report("paris", &user);
    until(&broker, |fleet| fleet.contains_key("paris"));
    let pods = format!("/api/v1/namespaces/{}/pods", plane.namespace);
    let container = json!({"name": "main", "image": "main"});
    plane.admin("POST", &pods, &json!({"metadata": {"name": "one"}, "spec": {"containers": [container]}}));

    let commands = Commands::prepare(example, &plane.namespace, "paris");
    commands.refuse(&socket, Some(STRANGER));
    let directory = socket.parent().unwrap();
    fs::set_permissions(directory, Permissions::from_mode(0o770)).unwrap();
    commands.refuse(&socket, None);
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();

    let running = commands.run(&socket, None);
    let mut generation = running.next();
    // From a token to a certificate, and to both.
    for next in ["certificate", "both"] {
        fs::write(&kind, next).unwrap();
        refresh(&socket, "cloud");
        generation = running.until_changed(&generation);
    }
    fs::write(&kind, "token").unwrap();
    broker.restart(|| {
        for _ in 0..3 {
            assert_eq!(running.next(), generation, "it goes on while the broker is away");
        }
    });
    generation = running.until_changed(&generation);

    let runs = plugin.runs();
    plane.revoke_tokens_of(&user);
    running.until_changed(&generation);
    assert_eq!(plugin.runs(), runs + 1, "the example has reported the 401");

    broker.restart(|| {
        let _impostor = Impostor::listen(&socket);
        running.ends_distrustful();
    });
}

/// The commands of a README, in a copy of the files that git has.
struct Commands {
    directory: PathBuf,
    /// The last one, which runs the example.
    program: String,
}

impl Commands {
    /// Runs all but the last command. They are quick if an earlier run left their files in `target`.
    fn prepare(example: &Example, namespace: &str, name: &str) -> Self {
        let readme = format!("{}/README.md", example.directory);
        let copy = root().join("target").join(example.directory);
        fs::create_dir_all(&copy).unwrap();
        let list = format!(
            "git ls-files -z proto '{}' | tar -c --null -T - | tar -x -C '{}'",
            example.directory,
            copy.display()
        );
        shell(&list, root());
        let is_at_top =
            fs::read_to_string(root().join(&readme)).unwrap().contains("in the root of the repository:");
        let directory = if is_at_top { copy } else { copy.join(example.directory) };
        let block = &blocks(&readme, "sh")[0];
        let (preparation, program) = block.trim_end().rsplit_once('\n').unwrap();
        shell(preparation, &directory);
        let program = program.strip_suffix("NAMESPACE NAME").expect("the program and its arguments");
        Self { directory, program: format!("exec env {program} {namespace} {name}") }
    }

    fn run(&self, socket: &Path, broker_uid: Option<u32>) -> Running {
        let mut command = Command::new("bash");
        command.args(["-c", &self.program]).current_dir(&self.directory).env("CREDBROKER_SOCKET", socket);
        command.env_remove("CREDBROKER_BROKER_UID");
        command.envs(broker_uid.map(|uid| ("CREDBROKER_BROKER_UID", uid.to_string())));
        Running::start(command)
    }

    /// The example does not trust the socket.
    fn refuse(&self, socket: &Path, broker_uid: Option<u32>) {
        assert_eq!(self.run(socket, broker_uid).ends_distrustful(), 0, "it uses no credential");
    }
}

/// An example that runs; killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
    stderr: NamedTempFile,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let stderr = NamedTempFile::new().unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr.reopen().unwrap());
        let mut child = command.spawn().unwrap();
        let (stdout, (sender, lines)) = (child.stdout.take().unwrap(), channel());
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines, stderr }
    }

    /// The generation in the next line.
    fn next(&self) -> String {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line in time");
        let (count, generation) = line.split_once(" pods, generation ").unwrap_or_else(|| panic!("{line}"));
        assert_ne!(count.parse(), Ok(0), "{line}");
        generation.to_owned()
    }

    /// The generation in the next line that has another one.
    fn until_changed(&self, generation: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let next = self.next();
            if next != generation {
                return next;
            }
            assert!(Instant::now() < deadline, "another generation in time");
        }
    }

    /// It ends because of the socket. Returns how many lines it has printed before.
    fn ends_distrustful(mut self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        let remaining = || deadline.saturating_duration_since(Instant::now());
        let count = iter::from_fn(|| self.lines.recv_timeout(remaining()).ok()).count();
        assert!(Instant::now() < deadline, "it ends in time");
        let (status, said) = (self.child.wait().unwrap(), self.said());
        assert!(status.code() == Some(1) && said.contains(" is not trusted: "), "{status}: {said}");
        count
    }

    fn said(&self) -> String {
        fs::read_to_string(self.stderr.path()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if thread::panicking() {
            write(&format!("the example's stderr:\n{}\n", self.said()));
        }
    }
}

/// Another user's process at the path of the socket; its file is removed when this is dropped.
struct Impostor<'a>(&'a Path, #[expect(dead_code, reason = "it listens")] UnixListener);

impl<'a> Impostor<'a> {
    fn listen(path: &'a Path) -> Self {
        drop(fs::remove_file(path));
        let listener = UnixListener::bind(path).unwrap();
        chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
        // The kernel reports the user of the last call.
        as_user(STRANGER, || listen(&listener, 16).unwrap());
        Self(path, listener)
    }
}

impl Drop for Impostor<'_> {
    fn drop(&mut self) {
        drop(fs::remove_file(self.0));
    }
}

fn is_installed(tool: &str) -> bool {
    let is_there = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        write(&format!("SKIPPED: this machine has no {tool}\n"));
    }
    is_there
}

/// The harness captures what a macro prints, and shows nothing of tests that pass.
fn write(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

#[track_caller]
fn shell(script: &str, directory: &Path) {
    let output = Command::new("bash").args(["-euc", script]).current_dir(directory).output().unwrap();
    let said = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    assert!(output.status.success(), "{script}: {}{}", said(&output.stdout), said(&output.stderr));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
