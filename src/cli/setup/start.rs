//! How the broker is started.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use credbroker_client::{Socket, SocketSources, safety::unsafe_file};
use credbroker_exec::OnDemand;

use crate::cli::programs;
use credbroker_plugin::{Environment, Globs};

/// The variables that a broker which the shim starts gets besides those that plugins inherit from it.
const RECORDED: [&str; 2] = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"];

/// How the broker is started.
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
    /// As it can be started here.
    pub(super) fn of(
        environment: &Environment,
        program: &Path,
        state: &Path,
        with_systemd: bool,
    ) -> anyhow::Result<Self> {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return Ok(Self::ByHand(
                "you are root, whose broker is that of the machine; see docs/operations.md for its units",
            ));
        }
        let uid = user.as_raw();
        let runtime = environment.set("XDG_RUNTIME_DIR").map(Path::new).filter(|path| path.is_absolute());
        anyhow::ensure!(
            runtime.is_some(),
            "XDG_RUNTIME_DIR is not set, as after su and in cron, so there is no place for the socket; log in with a session of your own user, or run `export XDG_RUNTIME_DIR=/run/user/{uid}` if that directory exists"
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
        let path = OnDemand::path(
            environment.set("XDG_CONFIG_HOME").map(Path::new),
            environment.set("HOME").map(Path::new),
        );
        let path = path.context("HOME is not set, so there is no place for the files; set it")?;
        let log = state.join("credbroker/broker.log");
        Ok(Self::OnDemand(path, OnDemand { program: program.to_owned(), log, environment: pairs.collect() }))
    }
}
