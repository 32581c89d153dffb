//! What the checks find, and how it is printed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use credbroker_credential::text::one_line;

/// How bad it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// It cannot be checked here, or it is only worth knowing.
    Note,
    /// It works, but not as a person may expect.
    Warning,
    /// It does not work. The exit code of the command.
    Error(u8),
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error(_) => "error",
        }
    }
}

/// The result of one check.
#[derive(Debug)]
struct Finding {
    /// What was checked.
    check: &'static str,
    level: Level,
    /// What was found.
    text: String,
    /// What to do about it; empty: nothing, or the text says it.
    remedy: String,
}

/// The results of all checks, in their order.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    /// Adds what `check` has found, and what to do about it, if the text does not say it.
    pub(super) fn add(
        &mut self,
        check: &'static str,
        level: Level,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.0.push(Finding { check, level, text: text.into(), remedy: remedy.into() });
    }

    /// Adds this at `level`, if `check` has found nothing.
    pub(super) fn or(&mut self, check: &'static str, level: Level, text: impl FnOnce() -> String) {
        if !self.0.iter().any(|finding| finding.check == check) {
            self.add(check, level, text(), "");
        }
    }

    /// The exit code: that of the first error, else 0. A warning does not change it.
    pub(super) fn exit_code(&self) -> u8 {
        let code = |finding: &Finding| match finding.level {
            Level::Error(code) => Some(code),
            _ => None,
        };
        self.0.iter().find_map(code).unwrap_or_default()
    }

    /// One line for each finding, and one for its remedy.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Finding { check, level, text: found, remedy } in &self.0 {
            let _infallible = writeln!(text, "{:<7}  {check:<13}  {}", level.name(), one_line(found));
            if !remedy.is_empty() {
                let _infallible = writeln!(text, "{:24}-> {}", "", one_line(remedy));
            }
        }
        text
    }

    /// The same for programs.
    pub(super) fn document(&self) -> Value {
        let findings = self.0.iter().map(|Finding { check, level, text, remedy }| {
            let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
            json!({"check": check, "level": level.name(), "text": text, "remedy": remedy})
        });
        json!({ "findings": findings.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
mod tests;
