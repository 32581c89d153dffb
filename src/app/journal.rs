//! The journal of systemd: whether stderr leads to it, and formatting and sending records for it.

use std::{
    error::Error,
    fmt::{self, Write as _},
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    path::{Path, PathBuf},
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormattedFields,
        format::{FormatEvent, FormatFields, Writer},
    },
    registry::{LookupSpan, Scope},
};

use credbroker_credential::text::chain;
use credbroker_plugin::Environment;

/// Ends each record in the queue. A value can have any other byte.
const END: char = '\0';

/// Where journald takes records.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Whether `stderr` is the stream to the journal that systemd opened: `JOURNAL_STREAM` has its device and inode. A process
/// that was started by the service with another stderr inherits the variable, too.
pub(super) fn is_stream(stderr: impl AsFd, environment: &Environment) -> bool {
    let Some(named) = environment.get("JOURNAL_STREAM").and_then(|value| value.to_str()) else {
        return false;
    };
    rustix::fs::fstat(stderr).is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == named)
}

/// The fields of a datagram for journald: `NAME=VALUE` in lines of text. Every field of the event and of its spans is
/// `CREDBROKER_NAME`, so that `journalctl CREDBROKER_PROVIDER=gke` finds it. The message repeats them for people, since
/// `journalctl` shows only the message.
#[derive(Debug)]
pub(super) struct JournalFormat;

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut lines = String::new();
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            lines.push_str(span.extensions().get::<FormattedFields<N>>().map_or("", |fields| fields));
        }
        context.format_fields(Writer::new(&mut lines), event)?;
        let (mut message, mut fields) = (String::new(), String::new());
        // The subscriber puts a space before what is recorded late.
        for (name, value) in lines.lines().filter_map(|line| line.trim_start().split_once('=')) {
            if name == "message" {
                message.insert_str(0, value);
            } else {
                write!(message, " {name}={value}")?;
                writeln!(fields, "CREDBROKER_{}={value}", name.to_ascii_uppercase())?;
            }
        }
        let (priority, target) = (priority(*event.metadata().level()), event.metadata().target());
        writeln!(
            writer,
            "MESSAGE={message}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=credbroker\nTARGET={target}"
        )?;
        write!(writer, "{fields}{END}")
    }
}

impl<'w> FormatFields<'w> for JournalFormat {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        fields.record(&mut FieldLines(writer));
        Ok(())
    }
}

/// Writes each field as a line `name=value`.
struct FieldLines<'w>(Writer<'w>);

impl Visit for FieldLines<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _infallible = writeln!(self.0, "{field}={}", value.replace(['\n', END], " "));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_str(field, &chain(value));
    }
}

/// The levels of syslog.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// Sends one datagram per record. Only the thread of the log queue waits for journald.
#[derive(Debug)]
pub(super) struct JournalSink {
    socket: UnixDatagram,
    /// Resolved for each record: a journald that was restarted has another socket at this path.
    path: PathBuf,
}

impl JournalSink {
    /// Fails if journald does not take records there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self { socket: UnixDatagram::unbound()?, path: path.to_owned() })
    }
}

impl Write for JournalSink {
    /// Takes the first record of `batch`.
    fn write(&mut self, batch: &[u8]) -> io::Result<usize> {
        let end = batch.iter().position(|byte| char::from(*byte) == END).unwrap_or(batch.len());
        let record = batch.get(..end).unwrap_or_default();
        match self.socket.send_to(record, &self.path) {
            // Without its largest values, which no event of ours has, it would fit. It is lost instead of all others.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {}
            sent => drop(sent?),
        }
        Ok((end + 1).min(batch.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for JournalSink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
