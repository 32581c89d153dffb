//! `credbroker setup`.

mod manifest;
mod pages;
mod plan;
mod undo;
mod units;

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use self::{
    manifest::Manifest,
    plan::{Plan, Start},
};
use super::{
    files,
    kubeconfig::{self, BrokerConfig},
    programs,
};
use crate::plugin::Environment;

/// Set credbroker up for this user: one command, and one to undo it
///
/// Shows what it will do, and asks. It names your kubeconfigs in the broker's configuration; writes user units of systemd
/// and enables the socket, or without systemd lets credbroker-exec start the broker if none runs; writes a copy of your
/// kubeconfig that uses the broker, completions for bash, zsh and fish, and man pages; and prints the line for the profile
/// of your shell. Files that it did not write stay as they are. Run it again after you have moved the programs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SetupArgs {
    /// Remove exactly what setup wrote; files that were changed since stay, and are named
    #[arg(long)]
    undo: bool,
    /// Do it without a question
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

fn apply(
    plan: &Plan,
    manifest: &mut Manifest,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    configure(plan, manifest, environment)?;
    let mut files: Vec<_> = plan.unit_files.iter().chain(&plan.pages).cloned().collect();
    if let Start::OnDemand(path, mark) = &plan.start {
        files.push((path.clone(), serde_json::to_string_pretty(mark)?));
        manifest.on_demand = Some(mark.program.clone());
        mark.log.parent().map(files::private_directory).transpose()?;
    }
    // Before the files are there, so that an interrupted setup can be undone or continued.
    for (path, text) in &files {
        manifest.will_write(path, text);
    }
    manifest.units |= matches!(plan.start, Start::Units);
    manifest.write(&plan.own)?;
    for (path, text) in &files {
        let dir = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(dir)
            .with_context(|| format!("the directory {} cannot be created", dir.display()))?;
        files::write_private(path, text)?;
        manifest.has_written(path, text);
    }
    manifest.write(&plan.own)?;
    if matches!(plan.start, Start::Units) {
        systemctl(&["daemon-reload"], environment)?;
        systemctl(&["enable", "--now", "credbroker.socket"], environment)?;
    }
    if plan.kubeconfigs.is_empty() {
        writeln!(
            out,
            "No user of your kubeconfig runs an exec plugin. When one does, run `credbroker setup` again."
        )?;
        return Ok(());
    }
    manifest.copy = Some(plan.copy.clone());
    manifest.write(&plan.own)?;
    if let Some(dir) = plan.copy.parent() {
        files::private_directory(dir)?;
    }
    let code = kubeconfig::wrap_to(&plan.copy, environment, shim, out)?;
    anyhow::ensure!(code == 0, "the copy of your kubeconfig was not written; see the message above");
    writeln!(
        out,
        "\nAdd this line to the profile of your shell:\n\n  export KUBECONFIG={}",
        shell_word(&plan.copy)
    )?;
    Ok(())
}

/// Names the kubeconfigs in the configuration of the broker.
fn configure(plan: &Plan, manifest: &mut Manifest, environment: &Environment) -> anyhow::Result<()> {
    if plan.kubeconfigs.is_empty() {
        return Ok(());
    }
    let exists = plan.config.try_exists().unwrap_or(true);
    let config = BrokerConfig { path: plan.config.clone(), exists };
    let missing = config.missing(&plan.kubeconfigs, environment)?;
    let is_ours = manifest.may_write(&plan.config);
    config.add(&plan.kubeconfigs, environment, |text| {
        if is_ours {
            manifest.will_write(&plan.config, text);
        } else {
            let (_, added) = manifest.added.get_or_insert_with(|| (plan.config.clone(), Vec::new()));
            added.extend(missing);
        }
        manifest.write(&plan.own)
    })?;
    Ok(())
}

/// Runs `systemctl --user`.
fn systemctl(args: &[&str], environment: &Environment) -> anyhow::Result<()> {
    let shown = args.join(" ");
    let ran = programs::systemctl(args, environment);
    let ran = ran
        .with_context(|| format!("`systemctl --user {shown}` did not run or did not end; run it yourself"))?;
    anyhow::ensure!(ran.succeeded, "`systemctl --user {shown}` failed: {}", ran.stderr.trim());
    Ok(())
}

fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// This program, with symbolic links followed: a unit or the shim starts it.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().and_then(fs::canonicalize).context("the path of this program cannot be found")
}

#[cfg(test)]
mod tests;
