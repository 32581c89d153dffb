//! How a record is written: as a line of JSON, or for the journal of systemd.

use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use tracing::Level;
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime as _, SystemTime},
};

use super::records::{EventFields, FieldValue, LogRecord};
use credbroker_credential::text::escape_json;

/// Ends each record for the journal, where a value can have any other byte.
pub(super) const END: u8 = 0;

/// One line, as an object. A terminal obeys nothing in it. The fields of the event are at the top level; those of the spans around it are in `span`.
pub(super) fn json(record: &LogRecord<'_>) -> String {
    // Never fails: every key is a string, and no value is a map.
    escape_json(&serde_json::to_string(&Line(record)).unwrap_or_default()) + "\n"
}

/// The fields of a datagram for `/run/systemd/journal/socket`: `NAME=VALUE` in lines of text. Every field of the event and
/// of its spans is `CREDBROKER_NAME`, so that `journalctl CREDBROKER_PROVIDER=gke` finds it. The message repeats them for
/// people, since `journalctl` shows only the message.
pub(super) fn journal(record: &LogRecord<'_>) -> String {
    let around = record.span.iter().flat_map(|(_, fields)| &fields.0);
    let fields: Vec<_> = around.chain(&record.fields.0).collect();
    let mut message = record.message.clone();
    for (name, value) in &fields {
        let _infallible = write!(message, " {name}={value}");
    }
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let value = value.replace(['\n', '\0'], " ");
        let _infallible = writeln!(text, "{name}={value}");
    };
    line("MESSAGE", &message);
    line("PRIORITY", priority(record.level));
    line("SYSLOG_IDENTIFIER", "credbroker");
    line("TARGET", record.target);
    for (name, value) in fields {
        line(&format!("CREDBROKER_{}", name.to_ascii_uppercase()), &value.to_string());
    }
    text.push(char::from(END));
    text
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

struct Line<'a>(&'a LogRecord<'a>);

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LogRecord { level, target, message, fields, span } = self.0;
        let mut time = String::new();
        let _infallible = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("timestamp", &time)?;
        map.serialize_entry("level", level.as_str())?;
        map.serialize_entry("target", target)?;
        map.serialize_entry("message", message)?;
        for (name, value) in &fields.0 {
            map.serialize_entry(name, value)?;
        }
        if let Some((name, fields)) = span {
            map.serialize_entry("span", &Span(name, fields))?;
        }
        map.end()
    }
}

struct Span<'a>(&'a str, &'a EventFields);

impl Serialize for Span<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.0)?;
        for (name, value) in &self.1.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Serialize for FieldValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Unsigned(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            Self::List(items) => serializer.collect_seq(items),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_has_no_character_that_a_terminal_obeys_or_hides() {
        let message = "exe\u{202e}gpj \u{9b}2J\u{7f}".to_owned();
        let fields = EventFields(vec![("name", FieldValue::Text("zero\u{200b}".into()))]);
        let record = LogRecord { level: Level::WARN, target: "credbroker", message, fields, span: None };
        let line = json(&record);
        assert!(line.contains(r"exe\u202egpj \u009b2J\u007f") && line.contains(r"zero\u200b"), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&read["message"], &read["name"]),
            (&"exe\u{202e}gpj \u{9b}2J\u{7f}".into(), &"zero\u{200b}".into())
        );
    }
}
