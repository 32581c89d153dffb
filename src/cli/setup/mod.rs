//! `credbroker setup`.

mod apply;
mod manifest;
mod pages;
mod plan;
mod start;
mod undo;
mod units;

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use self::{apply::apply, manifest::Manifest, plan::Plan};
use super::kubeconfig;
use credbroker_plugin::Environment;

/// Set credbroker up for this user: one command, and one to undo it
///
/// Shows what it will do, and asks for confirmation. It names your kubeconfigs in the broker's configuration; writes user
/// units of systemd and enables the socket, or without systemd lets credbroker-exec start the broker if none runs; writes
/// a copy of your kubeconfig that uses the broker, completions for bash, zsh and fish, and man pages; and prints the line
/// for the profile of your shell. Files that it did not write stay as they are. Run it again after you have moved the
/// programs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SetupArgs {
    /// Remove what setup wrote, except files that have changed since then, which it lists
    #[arg(long)]
    undo: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Do not use systemd
    #[arg(long)]
    no_systemd: bool,
}

const EXAMPLES: &str = "\
Examples:
  credbroker setup
  credbroker setup --yes
  credbroker setup --undo";

pub(super) fn run(
    args: &SetupArgs,
    environment: &Environment,
    program: &Path,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let own = kubeconfig::own_directory(environment)?;
    let manifest = Manifest::read(&own)?;
    if args.undo {
        let Some(manifest) = manifest else {
            writeln!(out, "Nothing to undo: `credbroker setup` has not run here.")?;
            return Ok(0);
        };
        writeln!(out, "This removes:")?;
        undo::lines(&manifest).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        if confirmed(args.yes, out)? {
            undo::undo(&manifest, &own, environment, out)?;
        }
        return Ok(0);
    }
    let mut manifest = manifest.unwrap_or_default();
    let plan = Plan::of(environment, program, !args.no_systemd, &manifest)?;
    writeln!(out, "This writes:")?;
    plan.lines().iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    if confirmed(args.yes, out)? {
        apply(&plan, &mut manifest, environment, shim, out)?;
    }
    Ok(0)
}

/// Asks at a terminal, unless `yes` is set.
fn confirmed(yes: bool, out: &mut dyn Write) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    anyhow::ensure!(
        io::stdin().is_terminal(),
        "there is no terminal to ask at; run the command again with --yes"
    );
    write!(out, "Continue? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let is_yes = matches!(answer.trim(), "y" | "Y" | "yes");
    if !is_yes {
        writeln!(out, "Nothing was changed.")?;
    }
    Ok(is_yes)
}

/// This program, with symbolic links followed: a unit or the shim starts it.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().and_then(fs::canonicalize).context("the path of this program cannot be found")
}

#[cfg(test)]
mod tests;
