//! Programs in real pseudo terminals.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Generous: a loaded machine may be slow, and a program that ends is noticed immediately.
const LIMIT: Duration = Duration::from_secs(60);

/// A program whose standard input and standard error are a separate terminal. Its standard output is a pipe, as API
/// clients read it. It is killed when this is dropped.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<(Mutex<Screen>, Condvar)>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Screen {
    shown: String,
    stdout: String,
    /// The number of streams that have ended.
    ended: usize,
}

impl Terminal {
    /// Starts `program` as the leader of a new session with this terminal. The environment has `variables` and `PATH`.
    pub fn start<A: AsRef<OsStr>, V: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
        variables: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("our terminal");
        unlockpt(&master).expect("our terminal");
        let name = ptsname(&master, Vec::new()).expect("our terminal");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = || open(&*name, flags, Mode::empty()).expect("our terminal");
        let mut command = Command::new("setsid");
        // A test that runs in the background, or with nohup, has these signals ignored, and would pass that on.
        command.args(["--ctty", "--wait", "env", "--default-signal=HUP,INT,QUIT"]);
        command.arg(program.as_ref()).args(args);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).envs(variables);
        command.stdin(line()).stderr(line()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("setsid, of util-linux");
        let stdout = child.stdout.take().expect("a pipe");
        let screen = Arc::<(Mutex<Screen>, Condvar)>::default();
        let keyboard = File::from(master);
        let shown = keyboard.try_clone().expect("a descriptor");
        let readers = vec![
            follow(shown, &screen, |screen| &mut screen.shown),
            follow(stdout, &screen, |screen| &mut screen.stdout),
        ];
        drop(command); // its copies of the terminal
        Self { child, keyboard, screen, readers }
    }

    /// Waits until the terminal shows `text`. Panics if the program ends before.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let (screen, changed) = &*self.screen;
        let screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |screen: &mut Screen| !screen.shown.contains(text) && screen.ended < self.readers.len();
        let (screen, late) =
            changed.wait_timeout_while(screen, LIMIT, waits).unwrap_or_else(PoisonError::into_inner);
        let is_late = if late.timed_out() { " in time" } else { "" };
        assert!(screen.shown.contains(text), "the terminal does not show {text:?}{is_late}: {screen:?}");
    }

    /// What the terminal shows.
    pub fn shown(&self) -> String {
        self.screen.0.lock().unwrap_or_else(PoisonError::into_inner).shown.clone()
    }

    /// Types `text`.
    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("our terminal");
    }

    /// Presses Ctrl-C.
    pub fn interrupt(&mut self) {
        self.types("\u{3}");
    }

    /// The program's process, whose parent waits for it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the program, and returns how it ended, its standard output, and what the terminal showed.
    pub fn end(mut self) -> (ExitStatus, String, String) {
        let status = self.child.wait().expect("our own child");
        for reader in std::mem::take(&mut self.readers) {
            reader.join().expect("the reader");
        }
        let screen = self.screen.0.lock().unwrap_or_else(PoisonError::into_inner);
        (status, screen.stdout.clone(), screen.shown.clone())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads to the end. That of a terminal is an error (EIO), when no process has it open.
fn follow(
    mut from: impl Read + Send + 'static,
    screen: &Arc<(Mutex<Screen>, Condvar)>,
    into: fn(&mut Screen) -> &mut String,
) -> JoinHandle<()> {
    let screen = Arc::clone(screen);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            let count = from.read(&mut bytes).unwrap_or_default();
            let (screen, changed) = &*screen;
            let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
            into(&mut screen).push_str(&String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()));
            screen.ended += usize::from(count == 0);
            changed.notify_all();
            if count == 0 {
                return;
            }
        }
    })
}

#[cfg(test)]
mod tests;
