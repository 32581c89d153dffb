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
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use super::{
    records::{EventFields, LogRecord},
    render,
};

/// The most bytes that are queued; the writer may hold as many again.
const PENDING: usize = 512 * 1024;

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
    Text,
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

    /// Queues an error that ends the process, or counts it as dropped.
    pub fn line(&self, error: &str) {
        if self.form == LogForm::Text {
            return self.push(format!("{error}\n").as_bytes());
        }
        let (level, target, fields) = (Level::ERROR, env!("CARGO_PKG_NAME"), EventFields::default());
        for line in error.lines() {
            let message = line.to_owned();
            self.record(&LogRecord { level, target, message, fields: fields.clone(), span: None });
        }
    }

    /// Queues one event, or counts it as dropped.
    pub(super) fn record(&self, record: &LogRecord<'_>) {
        let text = match self.form {
            LogForm::Journal => render::journal(record),
            LogForm::Json | LogForm::Text => render::json(record),
        };
        self.push(text.as_bytes());
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
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
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

#[cfg(test)]
mod tests;
