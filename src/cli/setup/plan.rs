//! What `credbroker setup` would do here, and what it wrote, so that `--undo` removes exactly that.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use credbroker_client::{Socket, SocketSources, safety::unsafe_file};
use credbroker_exec::OnDemand;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cli::{
    files::{self, joined},
    kubeconfig,
    pages::script,
    programs,
    recorded::{UNITS, assignment},
    screen::counted,
};
use credbroker_plugin::{Environment, Globs, Sha256};

/// The variables that a broker which the shim starts gets besides those that plugins inherit from it.
const RECORDED: [&str; 2] = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"];
const SERVICE: &str = include_str!("../../../systemd/user/credbroker.service");
const SOCKET: &str = include_str!("../../../systemd/user/credbroker.socket");
const START: &str = "ExecStart=/usr/bin/credbroker serve\n";

/// Everything that is done, in this order.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) own: PathBuf,
    /// The configuration, and the kubeconfigs that it must name; none: there is nothing to serve.
    pub(super) config: PathBuf,
    pub(super) kubeconfigs: Vec<PathBuf>,
    pub(super) start: Start,
    /// Units, completions and man pages, and in `own` what the shim starts, with their contents.
    pub(super) files: Vec<(PathBuf, String)>,
    /// Files of these that another program wrote; they stay.
    pub(super) foreign: Vec<(PathBuf, String)>,
}

impl Plan {
    pub(super) fn of(
        environment: &Environment,
        own: PathBuf,
        program: &Path,
        man_pages: &[(String, String)],
        with_systemd: bool,
        manifest: &Manifest,
    ) -> anyhow::Result<Self> {
        let home = environment.set("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.context("HOME is not set, so there is no place for the files; set it")?;
        let base =
            |variable, default| environment.base_directory(variable, default).unwrap_or(home.join(default));
        let (data, state) = (base("XDG_DATA_HOME", ".local/share"), base("XDG_STATE_HOME", ".local/state"));
        let config = own.join("config.yaml");
        let kubeconfigs = kubeconfig::with_plugins(environment)?;
        let has_config = !kubeconfigs.is_empty() || config.exists();
        let mut start = Start::of(environment, program, &state, with_systemd)?;
        let mut files = Vec::new();
        if matches!(start, Start::Units) {
            let name = program.to_str().context("the path of this program is not UTF-8")?;
            let units = units(name, has_config.then_some(config.as_path()), environment);
            files.extend(units.map(|(name, text)| (home.join(".config").join(UNITS).join(name), text)));
        }
        files.extend(completions(&data, own.parent().unwrap_or(&home)));
        files.extend(man_pages.iter().map(|(name, text)| (data.join("man/man1").join(name), text.clone())));
        if let Start::OnDemand(path, mark) = &start {
            files.push((path.clone(), serde_json::to_string_pretty(mark)?));
        }
        let foreign: Vec<_> = files.extract_if(.., |(path, _)| !manifest.may_write(path)).collect();
        if matches!(&start, Start::OnDemand(mark, _) if foreign.iter().any(|(path, _)| path == mark)) {
            start = Start::ByHand("setup did not write the file that says what credbroker-exec starts");
        }
        let log = if let Start::OnDemand(_, mark) = &start { mark.log.parent() } else { None };
        let directories =
            files.iter().filter_map(|(path, _)| path.parent()).chain(log).chain([own.as_path()]);
        directories.collect::<BTreeSet<_>>().into_iter().try_for_each(files::check_directory)?;
        Ok(Self { own, config, kubeconfigs, start, files, foreign })
    }

    /// Whether the kubeconfigs are changed. Not if the broker has to be started by hand: until then kubectl would fail.
    pub(super) fn injects(&self) -> bool {
        !self.kubeconfigs.is_empty() && !matches!(self.start, Start::ByHand(_))
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let (mut lines, kubeconfigs) = (Vec::new(), joined(&self.kubeconfigs, ", "));
        if !self.kubeconfigs.is_empty() {
            let config = self.config.display();
            lines.push(format!("{config}: the broker serves the exec users of {kubeconfigs}"));
        }
        let files = self.files.iter().map(|(path, _)| path);
        let is_unit = |path: &&PathBuf| path.parent().is_some_and(|directory| directory.ends_with(UNITS));
        let (units, pages): (Vec<_>, Vec<_>) = files.partition(is_unit);
        if !units.is_empty() {
            lines.push(format!("{}: user units of systemd", joined(&units, ", ")));
        }
        let start = match &self.start {
            Start::Units => {
                "systemctl --user enable --now credbroker.socket: the first client starts the broker"
                    .to_owned()
            }
            Start::OnDemand(path, OnDemand { program, log, .. }) => format!(
                "{}: without systemd, credbroker-exec starts {} if no broker runs; it logs to {}",
                path.display(),
                program.display(),
                log.display()
            ),
            Start::ByHand(why) => format!("(start the broker yourself with `credbroker serve`: {why})"),
        };
        lines.push(start);
        if self.injects() {
            let what = "credbroker-exec in front of the plugins; everything else stays the same";
            lines.push(format!("{kubeconfigs}: {what}"));
        }
        let mut directories: BTreeMap<&Path, u64> = BTreeMap::new();
        for above in pages.iter().filter_map(|path| path.parent()).filter(|above| *above != self.own) {
            *directories.entry(above).or_default() += 1;
        }
        for (directory, count) in directories {
            let files = counted(count, "file");
            lines.push(format!("{}: {files} for completion and man", directory.display()));
        }
        let foreign = self.foreign.iter().map(|(path, _)| path.display());
        lines.extend(
            foreign.map(|path| format!("({path} was not written by setup, and setup does not change it)")),
        );
        lines
    }
}

#[derive(Debug)]
pub(super) enum Start {
    /// By systemd, when a client connects.
    Units,
    /// By the shim, when no broker runs. The path of the mark and what is in it.
    OnDemand(PathBuf, OnDemand),
    /// By hand, for this reason.
    ByHand(&'static str),
}

impl Start {
    fn of(
        environment: &Environment,
        program: &Path,
        state: &Path,
        with_systemd: bool,
    ) -> anyhow::Result<Self> {
        let user = rustix::process::geteuid();
        if user.is_root() {
            let why =
                "you are root, and root's broker serves the machine; see docs/operations.md for its units";
            return Ok(Self::ByHand(why));
        }
        let variable = |name| environment.set(name).map(Path::new);
        let runtime = variable("XDG_RUNTIME_DIR").filter(|path| path.is_absolute());
        anyhow::ensure!(
            runtime.is_some(),
            "XDG_RUNTIME_DIR is not set, as after su and in cron, so there is no place for the socket; log in with a session of your own user, or run `export XDG_RUNTIME_DIR=/run/user/{}` if that directory exists",
            user.as_raw()
        );
        let sources = SocketSources::new().runtime_directory(runtime.map(Path::as_os_str));
        if let Some(ignored) = Socket::locate(&sources)?.ignored_runtime_directory() {
            anyhow::bail!("there is no place for the socket: {ignored}");
        }
        let is_there =
            || programs::systemctl(&["show-environment"], environment).is_some_and(|ran| ran.succeeded);
        if with_systemd && is_there() {
            return Ok(Self::Units);
        }
        let found = program.metadata().and_then(|found| unsafe_file(program, &found));
        let found = found.with_context(|| format!("{} cannot be checked", program.display()))?;
        if let Some(by) = found.first() {
            anyhow::bail!(
                "the program cannot be started on demand: {}: {}",
                program.display(),
                by.problem("decide what is started")
            );
        }
        let recorded = environment.inherited(&Globs::new(RECORDED), &Globs::default()).0.into_iter();
        let pairs =
            recorded.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let path = OnDemand::path(variable("XDG_CONFIG_HOME"), variable("HOME"));
        let path = path.context("HOME is not set, so there is no place for the files; set it")?;
        let log = state.join("credbroker/broker.log");
        Ok(Self::OnDemand(path, OnDemand { program: program.to_owned(), log, environment: pairs.collect() }))
    }
}

fn completions(data: &Path, config: &Path) -> [(PathBuf, String); 3] {
    [
        (data.join("bash-completion/completions/credbroker"), "bash"),
        (data.join("zsh/site-functions/_credbroker"), "zsh"),
        (config.join("fish/completions/credbroker.fish"), "fish"),
    ]
    .map(|(path, shell)| (path, script(shell, "credbroker")))
}

/// Names and contents. The service runs `program`, with the configuration `config`, and the `PATH` and the proxies of the
/// shell.
fn units(program: &str, config: Option<&Path>, shell: &Environment) -> [(&'static str, String); 2] {
    let config = config.map(|config| format!(" --config {}", quoted(&config.to_string_lossy())));
    let mut start = format!("ExecStart={} serve{}\n", quoted(program), config.unwrap_or_default());
    let variables = shell.0.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let is_its = |name: &str| name == "PATH" || name.to_ascii_lowercase().ends_with("_proxy");
    start.extend(variables.filter(|(name, _)| is_its(name)).map(|(name, value)| assignment(name, value)));
    // The comments before it are advice for another path of the program, and for another PATH.
    let service = SERVICE.find("[Unit]").and_then(|at| SERVICE.get(at..)).unwrap_or(SERVICE);
    let service = service.replacen(START, &start, 1);
    [("credbroker.service", service), ("credbroker.socket", SOCKET.to_owned())]
}

/// A word of a command line, as systemd reads it: the escapes of JSON, and no specifiers or variables.
fn quoted(word: &str) -> String {
    json!(word).to_string().replace('%', "%%").replace('$', "$$")
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Manifest {
    /// The files that were written, and the SHA-256 of what was written. If setup was interrupted, also of what it wrote
    /// before.
    pub(super) files: BTreeMap<PathBuf, BTreeSet<String>>,
    /// A configuration that was there before, and the kubeconfigs that were added to it.
    pub(super) added: Option<(PathBuf, Vec<PathBuf>)>,
    pub(super) units: bool,
    pub(super) on_demand: Option<PathBuf>,
}

impl Manifest {
    pub(super) fn path(own: &Path) -> PathBuf {
        own.join("setup.json")
    }

    /// `None`: setup has not run.
    pub(super) fn read(own: &Path) -> anyhow::Result<Option<Self>> {
        let path = Self::path(own);
        let read = files::read_if_there(&path)?.map(|text| serde_json::from_slice(&text)).transpose();
        read.with_context(|| format!("{} is not a file of `credbroker setup`", path.display()))
    }

    pub(super) fn write(&self, own: &Path) -> anyhow::Result<()> {
        files::private_directory(own)?;
        files::write_private(&Self::path(own), &serde_json::to_string_pretty(self)?)
    }

    /// Whether setup may write `path`: it is not there, or it is as setup wrote it.
    pub(super) fn may_write(&self, path: &Path) -> bool {
        let is_known =
            |contents: &[u8]| self.files.get(path).is_some_and(|known| known.contains(&hash(contents)));
        files::read_if_there(path).is_ok_and(|contents| contents.is_none_or(|contents| is_known(&contents)))
    }

    /// Records that `contents` will be written to `path`, which may fail.
    pub(super) fn will_write(&mut self, path: &Path, contents: &str) {
        self.files.entry(path.to_owned()).or_default().insert(hash(contents.as_bytes()));
    }

    pub(super) fn has_written(&mut self, path: &Path, contents: &str) {
        self.files.insert(path.to_owned(), [hash(contents.as_bytes())].into());
    }
}

fn hash(contents: &[u8]) -> String {
    Sha256::of(contents).to_string()
}

#[cfg(test)]
mod tests;
