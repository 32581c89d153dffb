//! `credbroker shell`: a shell, or one command, whose kubeconfig has one context and leads to the proxy.

mod child;

use std::{
    ffi::{OsStr, OsString},
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use anyhow::Context as _;
use credbroker_credential::text::shown;
use credbroker_plugin::Environment;
use tempfile::TempDir;

use super::{
    console::Console,
    files,
    kubeconfig::{OneArgs, alone},
};

/// Start a shell, or run one command, that sees only one context, through the proxy
///
/// KUBECONFIG is a private file with this context and no other. Its server is the proxy, which adds the
/// credential on the way, so kubectl, helm and agents work, and hold no credential:
///
///   credbroker shell prod
///   credbroker shell prod -- kubectl get pods
///   credbroker shell fleet/paris -- helm list
///
/// This stops accidents, but not a process of your user, which can read your other kubeconfigs and ask the
/// broker. Give an agent a sandbox or a separate user.
///
/// CREDBROKER_SHELL is the name of the context, for your prompt: PS1='${CREDBROKER_SHELL:+($CREDBROKER_SHELL) }'$PS1
///
/// The exit code is that of the command; 128 and the number of a signal that ended it; 126 or 127 if it
/// cannot be run or is not there.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ShellArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Command and its arguments [default: $SHELL, else /bin/sh]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What says that a process is in such a shell.
const SHELL: &str = "CREDBROKER_SHELL";
const KUBECONFIG: &str = "KUBECONFIG";

pub(super) fn run(args: &ShellArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let environment = console.environment;
    if let Some(outer) = environment.set(SHELL) {
        let outer = shown(&outer.to_string_lossy());
        anyhow::bail!("this is a shell of context `{outer}` already; leave it with `exit` first");
    }
    let context = &args.one.context;
    let (text, server) = alone(&args.one, console)?;
    let directory = private_directory(environment).context("cannot make a private directory")?;
    let file = directory.path().join("kubeconfig");
    files::write_private(&file, &text)?;
    let is_shell = args.command.is_empty();
    let what = if is_shell { "this shell" } else { "this command" };
    let leave = if is_shell { "; `exit` leaves it" } else { "" };
    writeln!(
        console.err,
        "credbroker: {what} sees only context `{}`, through the proxy at {server}",
        shown(context)
    )?;
    writeln!(
        console.err,
        "credbroker: it stops accidents, not a process of your user, which can go around it{leave}"
    )?;
    let shell = [environment.set("SHELL").unwrap_or(OsStr::new("/bin/sh")).to_owned()];
    let command = if is_shell { &shell[..] } else { &args.command };
    let mut variables = environment.clone();
    variables.0.extend([(KUBECONFIG.into(), file.into()), (SHELL.into(), context.into())]);
    let code = child::run(command, &variables, console.err);
    drop(directory);
    code
}

/// In memory, where that is possible.
fn private_directory(environment: &Environment) -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("credbroker-shell-");
    let private = builder.permissions(Permissions::from_mode(0o700));
    let runtime = environment.set("XDG_RUNTIME_DIR").map(Path::new).filter(|path| path.is_absolute());
    match runtime.map(|runtime| private.tempdir_in(runtime)) {
        Some(Ok(directory)) => Ok(directory),
        Some(Err(_)) | None => private.tempdir(),
    }
}
