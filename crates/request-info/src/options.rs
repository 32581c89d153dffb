//! What a request without a name asks for: the parts of `ListOptions` that its attributes depend on.

use super::{fields, labels, query::Query};

/// The options of a list or watch.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct ListOptions {
    pub(super) watch: bool,
    /// The only name that the field selector admits.
    pub(super) name: Option<String>,
}

impl ListOptions {
    /// Reads the options. If one of them cannot be decoded, all others are lost, except `watch`.
    pub(super) fn of(query: &Query) -> Self {
        Self::decode(query).unwrap_or_else(|| {
            let watch = query.first("watch");
            Self { watch: watch.is_some_and(|value| !is_false(value)), name: None }
        })
    }

    pub(super) fn decode(query: &Query) -> Option<Self> {
        // Go's strings are bytes; the parsers of selectors find no meaning in what is not UTF-8.
        let text = |name| query.first(name).map(String::from_utf8_lossy).unwrap_or_default();
        for number in ["timeoutSeconds", "limit"] {
            let _decodes: i64 = match query.first(number) {
                Some(value) => str::from_utf8(value).ok()?.parse().ok()?,
                None => continue,
            };
        }
        let labels = text("labelSelector");
        let name = fields::exact(&text("fieldSelector"), "metadata.name");
        if !labels::is_valid(&labels) {
            return None;
        }
        let watch = query.first("watch").is_some_and(|value| !is_false_folded(value));
        Some(Self { watch, name: name.ok()? })
    }
}

fn is_false(value: &[u8]) -> bool {
    value == b"0" || value.eq_ignore_ascii_case(b"false")
}

/// As `strings.EqualFold`, to which the long s is an s.
fn is_false_folded(value: &[u8]) -> bool {
    is_false(value) || str::from_utf8(value).is_ok_and(|value| is_false(value.replace('ſ', "s").as_bytes()))
}
