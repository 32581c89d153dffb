//! Reads the values of kinds without parameters, and writes their defaults.

use std::time::Duration;

use crate::{
    config::{problem::Report, reader::Cursor},
    plugin::Globs,
};

pub(super) fn text(at: &Cursor<'_>, report: &mut Report) -> Option<String> {
    at.text(report).map(str::to_owned)
}

pub(super) fn name(at: &Cursor<'_>, report: &mut Report) -> Option<String> {
    let name = at.text(report)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        at.problem(report, "must be a name: not empty, without control characters");
        return None;
    }
    Some(name.to_owned())
}

pub(super) fn socket_mode(at: &Cursor<'_>, report: &mut Report) -> Option<u32> {
    let mode = at.node().as_str().and_then(mode);
    if mode.is_none() {
        at.problem(report, "must be an octal mode in quotes from \"0600\" to \"0666\" with read and write for the owner, like \"0660\"");
    }
    mode
}

fn mode(text: &str) -> Option<u32> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| octal)?;
    (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(mode)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as for the other kinds")]
pub(super) fn octal(mode: &u32) -> String {
    format!("\"{mode:04o}\"")
}

pub(super) fn with_unit(duration: &Duration) -> String {
    match duration.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

pub(super) fn ids(at: &Cursor<'_>, report: &mut Report) -> Vec<u32> {
    let mut ids = Vec::new();
    for item in at.items(report) {
        let id = item.node().as_number().and_then(|number| number.parse().ok());
        match id.filter(|id| *id != u32::MAX) {
            Some(id) => ids.push(id),
            None => item.problem(report, "must be a number from 0 to 4294967294"),
        }
    }
    ids
}

pub(super) fn variable_names(at: &Cursor<'_>, report: &mut Report) -> Globs {
    let items = at.items(report);
    let mut patterns = Vec::new();
    for item in &items {
        let Some(pattern) = item.text(report) else { continue };
        if pattern.is_empty() || pattern.contains(['=', '\0', '?', '[', '{', ' ', '$']) {
            item.problem(report, "must be the name of a variable, in which `*` matches any text");
        } else {
            patterns.push(pattern);
        }
    }
    Globs::new(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_one_that_a_socket_can_use() {
        for (text, expected) in
            [("0600", 0o600), ("600", 0o600), ("0660", 0o660), ("0666", 0o666), ("0620", 0o620)]
        {
            assert_eq!(mode(text), Some(expected), "{text}");
        }
        for text in ["", "0", "0400", "0060", "0700", "0670", "4600", "00600", "0o600", "+600", "0680", "rw"]
        {
            assert_eq!(mode(text), None, "{text}");
        }
    }
}
