//! A bounded queue of log lines for stderr. It drops lines and counts them, so that nothing waits for a reader of the log.

use std::{
    io::{self, Write},
    mem,
    os::fd::AsFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio_util::sync::CancellationToken;
use tracing::error;
use tracing_subscriber::fmt::MakeWriter;

use super::filter::FATAL;
use credbroker_credential::text::escape_json;

/// The most bytes that are queued; the writer may hold as many again.
const PENDING: usize = 512 * 1024;
/// What the subscriber writes after an escape character.
const COLOURS: [&str; 9] = ["[0m", "[1m", "[2m", "[3m", "[31m", "[32m", "[33m", "[34m", "[35m"];

/// Takes whole lines without waiting. Clones share one queue.
#[derive(Clone, Debug)]
pub struct LogQueue {
    shared: Arc<SharedLog>,
    form: LogForm,
}

/// What the sink takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LogForm {
    /// Lines for people.
    Text { colours: bool },
    /// JSON objects, one per line.
    Json,
    /// Records for the journal.
    Journal,
}

#[derive(Debug)]
struct SharedLog {
    state: Mutex<LogState>,
    /// Signals that there is something to write.
    filled: Condvar,
    /// Signals that everything is written.
    emptied: Condvar,
    /// Cancelled when the thread that writes has ended.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct LogState {
    pending: Vec<u8>,
    /// Lines that were dropped since the last report.
    dropped: u64,
    writing: bool,
}

impl LogQueue {
    /// A queue with a thread that writes to `sink`. `report` is called with the number of dropped lines as soon as writing
    /// works again.
    pub(super) fn start(sink: impl Write + AsFd + Send + 'static, form: LogForm, report: fn(u64)) -> Self {
        let queue = Self {
            form,
            shared: Arc::new(SharedLog {
                state: Mutex::default(),
                filled: Condvar::new(),
                emptied: Condvar::new(),
                ended: CancellationToken::new(),
            }),
        };
        let (writer, ended) = (queue.clone(), queue.shared.ended.clone().drop_guard());
        let started = thread::Builder::new().name("log".to_owned()).spawn(move || {
            let _ended = ended;
            writer.run(sink, report);
        });
        // Without a thread it has ended.
        drop(started);
        queue
    }

    /// Resolves when the thread that writes has ended, which happens only if it panics or could not be started.
    pub(super) async fn ended(&self) {
        self.shared.ended.cancelled().await;
    }

    pub(super) fn form(&self) -> LogForm {
        self.form
    }

    /// Queues an error that ends the process, or counts it as dropped. People get it without time and level.
    pub fn line(&self, error: &str) {
        match self.form {
            LogForm::Text { .. } => self.push(format!("{error}\n").as_bytes()),
            LogForm::Json | LogForm::Journal => {
                for line in error.lines() {
                    error!(target: FATAL, "{line}");
                }
            }
        }
    }

    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.pending.len() + line.len() > PENDING {
            state.dropped += 1;
            return;
        }
        state.pending.extend_from_slice(line);
        drop(state);
        self.shared.filled.notify_one();
    }

    /// Waits until everything is written, at most for `limit`. If the thread that writes has ended, what it left is written
    /// to stderr.
    pub fn flush(&self, limit: Duration) {
        if self.shared.ended.is_cancelled() {
            let rest = mem::take(&mut self.lock().pending);
            let (done, written) = mpsc::channel::<()>();
            // On a thread, because the reader may be stuck.
            let _unwritten = thread::Builder::new().spawn(move || {
                drop(io::stderr().write_all(&rest));
                drop(done);
            });
            let _in_time = written.recv_timeout(limit);
            return;
        }
        let is_busy = |state: &mut LogState| state.writing || !state.pending.is_empty();
        drop(self.shared.emptied.wait_timeout_while(self.lock(), limit, is_busy));
    }

    fn run(&self, mut sink: impl Write + AsFd, report: fn(u64)) {
        loop {
            let batch = self.next_batch();
            // If the reader is gone or the disk is full, the lines are lost.
            let is_written = write_batch(&mut sink, &batch).is_ok();
            let dropped = {
                let mut state = self.lock();
                state.writing = false;
                if is_written { mem::take(&mut state.dropped) } else { 0 }
            };
            if dropped > 0 {
                report(dropped);
            }
            if self.lock().pending.is_empty() {
                self.shared.emptied.notify_all();
            }
        }
    }

    fn next_batch(&self) -> Vec<u8> {
        let waited = self.shared.filled.wait_while(self.lock(), |state| state.pending.is_empty());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.writing = true;
        mem::take(&mut state.pending)
    }

    /// The state is consistent whenever the lock is free, so a poisoned lock is still usable.
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As `write_all`, but also if another process made the pipe or terminal non-blocking.
fn write_batch(sink: &mut (impl Write + AsFd), mut batch: &[u8]) -> io::Result<()> {
    while !batch.is_empty() {
        match sink.write(batch) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => batch = batch.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::new(sink, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The subscriber writes each event with one call.
impl Write for &LogQueue {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match (self.form, str::from_utf8(event)) {
            (LogForm::Text { colours }, Ok(text)) => self.push(one_line(text, colours).as_bytes()),
            (LogForm::Json, Ok(text)) => self.push(escape_json(text).as_bytes()),
            (LogForm::Journal, _) | (_, Err(_)) => self.push(event),
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// `event` with escaped control characters, also line breaks, so that no value looks like another event or controls a
/// terminal: the subscriber escapes few of them, and only in messages. Tabs stay, and `colours`.
fn one_line(event: &str, colours: bool) -> String {
    let event = event.trim_end_matches('\n');
    let mut line = String::with_capacity(event.len() + 1);
    for (at, character) in event.char_indices() {
        let is_colour =
            || event.get(at + 1..).is_some_and(|rest| COLOURS.iter().any(|colour| rest.starts_with(colour)));
        match character {
            '\x1b' if colours && is_colour() => line.push(character),
            _ if character.is_control() && character != '\t' => line.extend(character.escape_debug()),
            _ => line.push(character),
        }
    }
    line + "\n"
}

#[cfg(test)]
mod tests;
