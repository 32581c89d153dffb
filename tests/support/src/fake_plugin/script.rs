//! The shell text of a fake plugin.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

/// What a run does, as values for the script. `token` and `expires` are shell words.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedAnswer {
    pub(super) token: Option<String>,
    pub(super) pair: Option<(String, String)>,
    pub(super) expires: Option<String>,
    pub(super) exit_code: u8,
    pub(super) sleep: Option<f64>,
    pub(super) stderr: Option<String>,
    pub(super) script: Option<String>,
}

/// The executable: takes the next free run number (noclobber makes that atomic), then does what `behavior` says.
pub(super) fn entry(dir: &Path) -> String {
    let dir = single_quoted(&dir.display().to_string());
    format!(
        r#"#!/bin/sh
dir={dir}
run=1
set -C
until {{ true > "$dir/runs/$run"; }} 2>/dev/null; do run=$((run + 1)); done
set +C
printf '%s\n' "${{KUBERNETES_EXEC_INFO-}}" > "$dir/exec-info/$run"
. "$dir/behavior"
"#
    )
}

/// `text` as one quoted shell word.
pub(super) fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl ScriptedAnswer {
    pub(super) fn script(&self, api_version: &str) -> String {
        if let Some(script) = &self.script {
            return format!("{script}\n");
        }
        let mut out = String::new();
        if let Some(text) = &self.stderr {
            writeln!(out, "printf '%s\\n' {} >&2", single_quoted(text)).expect("a String takes everything");
        }
        if let Some(seconds) = self.sleep {
            writeln!(out, "sleep {seconds}").expect("a String takes everything");
        }
        if let Some(status) = self.status() {
            let document = json!({"apiVersion": api_version, "kind": "ExecCredential", "status": status});
            let document = single_quoted(&document.to_string())
                .replace(TOKEN, "'\"$token\"'")
                .replace(EXPIRES, "'\"$expires\"'");
            let (token, expires) = (self.token.as_deref(), self.expires.as_deref());
            writeln!(out, "token={}\nexpires={}", token.unwrap_or("''"), expires.unwrap_or("''"))
                .expect("a String takes everything");
            writeln!(out, "printf '%s\\n' {document}").expect("a String takes everything");
        }
        writeln!(out, "exit {}", self.exit_code).expect("a String takes everything");
        out
    }

    fn status(&self) -> Option<Value> {
        let mut status = serde_json::Map::new();
        if self.token.is_some() {
            status.insert("token".into(), TOKEN.into());
        }
        if let Some((certificate, key)) = &self.pair {
            status.insert("clientCertificateData".into(), certificate.as_str().into());
            status.insert("clientKeyData".into(), key.as_str().into());
        }
        if status.is_empty() {
            return None;
        }
        if self.expires.is_some() {
            status.insert("expirationTimestamp".into(), EXPIRES.into());
        }
        Some(Value::Object(status))
    }
}

/// Stand in the JSON for values that only the run knows.
const TOKEN: &str = "@TOKEN@";
const EXPIRES: &str = "@EXPIRES@";
