//! What the checks find, for people and for programs, and the exit code.

use std::fmt::Write as _;

use credbroker_credential::text::one_line;
use serde_json::{Value, json};

use crate::cli::console::EX_CONFIG;

/// The name of a level, and the exit code of the command.
pub(super) type Level = (&'static str, u8);
pub(super) const GOOD: Level = ("ok", 0);
/// It cannot be checked here, or it is only worth knowing.
pub(super) const NOTE: Level = ("note", 0);
/// It works, but not as a user may expect.
pub(super) const WARNING: Level = ("warning", 0);
pub(super) const BAD: Level = ("error", 1);
pub(super) const BAD_CONFIG: Level = ("error", EX_CONFIG);

#[derive(Debug)]
pub(super) struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    /// What to do about it; empty: nothing, or the text says it.
    remedy: String,
}

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

    pub(super) fn or(&mut self, check: &'static str, level: Level, text: impl FnOnce() -> String) {
        if !self.0.iter().any(|finding| finding.check == check) {
            self.add(check, level, text(), "");
        }
    }

    /// The exit code of the first error, else 0. A warning does not change it.
    pub(super) fn exit_code(&self) -> u8 {
        self.0.iter().map(|finding| finding.level.1).find(|code| *code > 0).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Finding { check, level, text: found, remedy } in &self.0 {
            let _infallible = writeln!(text, "{:<7}  {check:<13}  {}", level.0, one_line(found));
            if !remedy.is_empty() {
                let _infallible = writeln!(text, "{:24}-> {}", "", one_line(remedy));
            }
        }
        text
    }

    pub(super) fn document(&self) -> Value {
        let findings = self.0.iter().map(|Finding { check, level, text, remedy }| {
            let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
            json!({"check": check, "level": level.0, "text": text, "remedy": remedy})
        });
        json!({ "findings": findings.collect::<Vec<_>>() })
    }
}
