//! Log events as records of typed fields, for programs that read the log.

use std::{error::Error, fmt};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record as SpanRecord},
};
use tracing_subscriber::{
    layer::{Context, Layer},
    registry::{LookupSpan, Scope},
};

use super::logs::LogQueue;
use credbroker_credential::text::chain;

/// The field of an event that has its text.
const MESSAGE: &str = "message";

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue {
    Text(String),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<String>),
}

/// Fields in the order in which they were recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct EventFields(pub(super) Vec<(&'static str, FieldValue)>);

/// One event.
#[derive(Debug)]
pub(super) struct LogRecord<'a> {
    pub(super) level: Level,
    pub(super) target: &'a str,
    pub(super) message: String,
    pub(super) fields: EventFields,
    /// The innermost span, with the fields of all spans around the event.
    pub(super) span: Option<(&'static str, EventFields)>,
}

/// Collects events and queues each as one record.
#[derive(Debug)]
pub(super) struct RecordLayer {
    pub(super) queue: LogQueue,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for RecordLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = EventFields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &SpanRecord<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<EventFields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let message = fields.take_message();
        let mut around = EventFields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            for (name, value) in extensions.get::<EventFields>().into_iter().flat_map(|fields| &fields.0) {
                around.set(name, value.clone());
            }
        }
        let span = context.event_span(event).map(|span| (span.name(), around));
        let metadata = event.metadata();
        let record = LogRecord { level: *metadata.level(), target: metadata.target(), message, fields, span };
        self.queue.record(&record);
    }
}

impl EventFields {
    fn set(&mut self, name: &'static str, value: FieldValue) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    fn take_message(&mut self) -> String {
        match self.0.iter().position(|(name, _)| *name == MESSAGE) {
            Some(at) => self.0.remove(at).1.to_string(),
            None => String::new(),
        }
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        // A list of names is recorded with its `Debug`, which for plain names is JSON.
        let list = text.starts_with('[').then(|| serde_json::from_str(&text).ok()).flatten();
        let value = match list {
            Some(list) if field.name() != MESSAGE => FieldValue::List(list),
            _ => FieldValue::Text(text),
        };
        self.set(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), FieldValue::Text(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), FieldValue::Unsigned(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), FieldValue::Signed(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), FieldValue::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), FieldValue::Boolean(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.set(field.name(), FieldValue::Text(chain(value)));
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Unsigned(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::List(items) => f.write_str(&items.join(",")),
        }
    }
}
