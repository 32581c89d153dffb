//! Exec plugins made of shell: real processes that count their runs.

mod script;
#[cfg(test)]
mod tests;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use self::script::ScriptedAnswer;
use crate::program_file;

/// An exec plugin in its own directory, which is removed when this is dropped.
///
/// The executable never changes once it is there: what it does is in a file beside it that
/// [`FakePlugin::becomes`] replaces, so that a broker sees the same plugin behave differently.
#[derive(Debug)]
pub struct FakePlugin {
    dir: TempDir,
    api_version: String,
}

impl FakePlugin {
    /// A plugin that prints nothing and exits with 0, by default.
    pub fn builder() -> FakePluginBuilder {
        FakePluginBuilder::default()
    }

    /// A plugin that runs `script` after it has counted its run.
    pub fn script(script: &str) -> Self {
        Self::builder().script(script).build()
    }

    /// The executable.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("plugin")
    }

    /// The plugin's own directory; its script knows it as `$dir`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// How often it was started.
    pub fn runs(&self) -> usize {
        fs::read_dir(self.dir.path().join("runs")).expect("the directory of runs").count()
    }

    /// What `KUBERNETES_EXEC_INFO` held in each run, in their order; empty where it was not set.
    pub fn exec_infos(&self) -> Vec<String> {
        (1..=self.runs())
            .map(|run| {
                let file = self.dir.path().join("exec-info").join(run.to_string());
                fs::read_to_string(file).unwrap_or_default().trim_end().to_owned()
            })
            .collect()
    }

    /// Behaves as `builder` says from the next run on. Counts and path stay.
    pub fn becomes(&self, builder: &FakePluginBuilder) {
        builder.write_behavior(self.dir.path());
    }

    /// The stanza of a kubeconfig user or of a provider's `execConfig`.
    pub fn exec_stanza(&self) -> Value {
        json!({
            "apiVersion": self.api_version,
            "command": self.path(),
            "interactiveMode": "Never",
            "provideClusterInfo": true,
        })
    }

    /// [`FakePlugin::exec_stanza`] as YAML.
    pub fn exec_stanza_yaml(&self) -> String {
        crate::yaml::document(&self.exec_stanza())
    }
}

/// What a [`FakePlugin`] does.
#[derive(Clone, Debug, Default)]
pub struct FakePluginBuilder {
    answer: ScriptedAnswer,
    api_version: Option<String>,
}

impl FakePluginBuilder {
    /// Prints `token`.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.answer.token = Some(script::single_quoted(token));
        self
    }

    /// Prints `token-1` in the first run, `token-2` in the second, …
    #[must_use]
    pub fn token_per_run(self) -> Self {
        self.token_from_shell("token-$run")
    }

    /// Prints what the shell makes of `expression` between double quotes, such as `$AWS_PROFILE-token`. `$run` is the
    /// run's number and `$dir` the plugin's directory; a variable that is not set is empty.
    #[must_use]
    pub fn token_from_shell(mut self, expression: &str) -> Self {
        self.answer.token = Some(format!("\"{expression}\""));
        self
    }

    /// Prints a client certificate and its key, as PEM.
    #[must_use]
    pub fn pair(mut self, certificate: &str, key: &str) -> Self {
        self.answer.pair = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// The credential expires `seconds` after each run; negative is in the past.
    #[must_use]
    pub fn expires_in(mut self, seconds: i64) -> Self {
        self.answer.expires = Some(format!("$(date -u -d '{seconds} seconds' +%Y-%m-%dT%H:%M:%SZ)"));
        self
    }

    /// The credential's `expirationTimestamp`, as it is.
    #[must_use]
    pub fn expires_at(mut self, timestamp: &str) -> Self {
        self.answer.expires = Some(script::single_quoted(timestamp));
        self
    }

    /// The apiVersion of its stanza and of its answer; `client.authentication.k8s.io/v1` if nothing is said.
    #[must_use]
    pub fn api_version(mut self, api_version: &str) -> Self {
        self.api_version = Some(api_version.to_owned());
        self
    }

    /// Waits before it answers; fractions are fine.
    #[must_use]
    pub fn sleep(mut self, seconds: f64) -> Self {
        self.answer.sleep = Some(seconds);
        self
    }

    /// Says `text` on stderr.
    #[must_use]
    pub fn stderr(mut self, text: &str) -> Self {
        self.answer.stderr = Some(text.to_owned());
        self
    }

    /// Exits with `code`. It prints a credential all the same if it was given one.
    #[must_use]
    pub fn exit_code(mut self, code: u8) -> Self {
        self.answer.exit_code = code;
        self
    }

    /// Runs `script` in place of everything else. It may use `$run` and `$dir`.
    #[must_use]
    pub fn script(mut self, script: &str) -> Self {
        self.answer.script = Some(script.to_owned());
        self
    }

    /// Puts the plugin on disk.
    pub fn build(self) -> FakePlugin {
        // A broker refuses a plugin in a directory that a group may write to, as the umask of many users leaves it.
        let mode = Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("plugin-").permissions(mode).tempdir();
        let dir = dir.expect("a temporary directory");
        for name in ["runs", "exec-info"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        self.write_behavior(dir.path());
        program_file(&dir.path().join("plugin"), script::entry(dir.path()));
        FakePlugin { dir, api_version: self.version().to_owned() }
    }

    fn version(&self) -> &str {
        self.api_version.as_deref().unwrap_or("client.authentication.k8s.io/v1")
    }

    /// By rename: a plugin that starts meanwhile reads the old one or the new one.
    fn write_behavior(&self, dir: &Path) {
        let new = dir.join("behavior.new");
        fs::write(&new, self.answer.script(self.version())).expect("the plugin's behavior");
        fs::rename(new, dir.join("behavior")).expect("the plugin's behavior");
    }
}
