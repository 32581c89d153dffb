//! Reads the values of kinds without parameters, and writes their defaults.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use crate::{problem::Report, reader::Cursor};
use credbroker_plugin::Globs;

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

/// A whole number above zero with its unit: `30s`, `10m`, `12h`. At most `longest`.
pub(super) fn duration(at: &Cursor<'_>, longest: Duration, report: &mut Report) -> Option<Duration> {
    let duration = at.node().as_str().and_then(seconds);
    if duration.is_none() {
        at.problem(report, "must be a whole number above 0 with its unit, like `30s`, `10m` or `12h`");
    }
    let is_long = duration.is_some_and(|duration| duration > longest);
    if is_long {
        at.problem(report, format!("must be at most {}", with_unit(&longest)));
    }
    duration.filter(|_| !is_long)
}

/// A whole number from 1 to `most`.
pub(super) fn count(at: &Cursor<'_>, most: u32, report: &mut Report) -> Option<NonZeroUsize> {
    let count = at.node().as_number().and_then(|number| number.parse::<NonZeroU32>().ok());
    let count =
        count.filter(|count| count.get() <= most).and_then(|count| NonZeroUsize::try_from(count).ok());
    if count.is_none() {
        at.problem(report, format!("must be a whole number from 1 to {most}"));
    }
    count
}

fn seconds(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return None,
    };
    let digits = text.strip_suffix(unit)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None; // `parse` takes a sign
    }
    let count: u32 = digits.parse().ok().filter(|count| *count > 0)?;
    Some(Duration::from_secs(u64::from(count) * seconds))
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
mod tests;
