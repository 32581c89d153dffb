//! Names that others chose, as they may stand in a log line, a status and at a terminal.

/// At most a hundred letters of `name`, without anything that steers a terminal.
pub(super) fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(100).flat_map(char::escape_debug).collect();
    if name.chars().nth(100).is_some() {
        shown.push('…');
    }
    shown
}

/// Not more than fits a gRPC status, which travels in a header.
pub(super) fn listed(names: &[String]) -> String {
    listed_all(names.iter().map(|name| shown(name)))
}

/// The same of texts that are shown already.
pub(super) fn listed_all(texts: impl ExactSizeIterator<Item = String>) -> String {
    const MOST: usize = 20;
    let count = texts.len();
    let list = texts.take(MOST).collect::<Vec<_>>().join(", ");
    match count {
        0 => "none".to_owned(),
        all if all > MOST => format!("{list} and {} more", all - MOST),
        _ => list,
    }
}
