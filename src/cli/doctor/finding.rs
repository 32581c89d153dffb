//! What `credbroker doctor` finds.

use std::io::{self, Write};

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

/// The result of one check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Finding {
    /// What was checked.
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// What was found.
    pub(super) text: String,
    /// What to do about it.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), remedy: None }
    }

    pub(super) fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Note, text: text.into(), remedy: None }
    }

    pub(super) fn warning(check: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, level: Level::Warning, text: text.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn error(check: &'static str, code: u8, text: impl Into<String>) -> Self {
        Self { check, level: Level::Error(code), text: text.into(), remedy: None }
    }

    #[must_use]
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn level(&self) -> &'static str {
        match self.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error(_) => "error",
        }
    }
}

/// `found`, or if there is none, that `check` is as it should be.
pub(super) fn or_ok(
    mut found: Vec<Finding>,
    check: &'static str,
    text: impl FnOnce() -> String,
) -> Vec<Finding> {
    if found.is_empty() {
        found.push(Finding::ok(check, text()));
    }
    found
}

/// The exit code: that of the first error, else 0. A warning does not change it.
pub(super) fn exit_code(findings: &[Finding]) -> u8 {
    let errors = findings.iter().filter_map(|finding| match finding.level {
        Level::Error(code) => Some(code),
        _ => None,
    });
    errors.into_iter().next().unwrap_or_default()
}

/// One line for each finding, and one for its remedy.
pub(super) fn print(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        let Finding { check, text, remedy, .. } = finding;
        writeln!(out, "{:<7}  {check:<13}  {}", finding.level(), one_line(text))?;
        if let Some(remedy) = remedy {
            writeln!(out, "{:24}-> {}", "", one_line(remedy))?;
        }
    }
    Ok(())
}

/// The same for programs.
pub(super) fn json(findings: &[Finding]) -> Value {
    let findings = findings.iter().map(|finding| {
        let Finding { check, text, remedy, .. } = finding;
        json!({"check": check, "level": finding.level(), "text": text, "remedy": remedy})
    });
    json!({ "findings": findings.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_a_line_with_its_remedy_below_and_the_first_error_decides() {
        let mut findings = vec![
            Finding::ok("socket", "/run/x.sock"),
            Finding::warning("clock", "it is not synchronised", "start a time service"),
        ];
        assert_eq!(exit_code(&findings), 0);
        findings.push(Finding::error("kubeconfig", 78, "\x1b[31mbroken\n").remedy("repair it"));
        findings.push(Finding::error("plugins", 1, "missing"));
        assert_eq!(exit_code(&findings), 78);
        let mut out = Vec::new();
        print(&findings, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r"
        ok       socket         /run/x.sock
        warning  clock          it is not synchronised
                                -> start a time service
        error    kubeconfig     U+001B[31mbroken
                                -> repair it
        error    plugins        missing
        ");
        assert_eq!(json(&findings)["findings"][1]["level"], "warning");
    }
}
