//! An exec plugin that works once, and then does its worst.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::FakePlugin;

const SCRIPT: &str = include_str!("evil_plugin.sh");

/// A plugin that prints the token `good` until it [turns evil](Self::turn_evil). Its argument says how it is evil.
#[derive(Debug)]
pub struct EvilPlugin {
    plugin: FakePlugin,
}

impl EvilPlugin {
    /// A plugin that has not turned evil.
    pub fn new() -> Self {
        Self { plugin: FakePlugin::script(SCRIPT) }
    }

    /// The ways in which it can be evil.
    pub fn ways() -> Vec<&'static str> {
        let names = SCRIPT.lines().filter_map(|line| line.strip_suffix(')'));
        names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')).collect()
    }

    /// A provider `name` with a short timeout, whose plugin is evil in this `way`.
    pub fn provider(&self, name: &str, way: &str) -> Value {
        let stanza = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": self.plugin.path(), "args": [way],
            "env": [{"name": "EVIL_HOME", "value": self.plugin.dir()}], "interactiveMode": "Never",
        });
        json!({"name": name, "timeout": "2s", "execConfig": stanza})
    }

    /// From now on it does its worst. It can run `client` to call the broker at `socket`.
    pub fn turn_evil(&self, client: &Path, socket: &Path) {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        for (name, text) in [("client", text(client)), ("socket", text(socket)), ("evil", String::new())] {
            fs::write(self.file(name), text).expect("a file");
        }
    }

    /// A file that the plugin writes.
    pub fn file(&self, name: &str) -> PathBuf {
        self.plugin.dir().join(name)
    }

    /// How often it was started.
    pub fn runs(&self) -> usize {
        self.plugin.runs()
    }

    /// The processes of all of its runs that are left.
    pub fn processes(&self) -> Vec<u32> {
        let own = format!("EVIL_HOME={}", self.plugin.dir().display());
        let entries = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_own = |id: &u32| {
            let variables = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(|variable| variable == own.as_bytes())
        };
        ids.filter(is_own).collect()
    }
}

impl Default for EvilPlugin {
    fn default() -> Self {
        Self::new()
    }
}
