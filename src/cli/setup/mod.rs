//! `credbroker setup`.

mod plan;

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use self::plan::{Manifest, Plan, Start};
use super::{
    broker::BrokerArgs,
    console::Console,
    doctor::{
        self,
        users::{few, from_originals, is_without_original, with_users},
    },
    files,
    kubeconfig::{self, BrokerConfig, InjectArgs, RestoreArgs, recorded_plugins},
    programs,
    recorded::{self, profile},
    screen::counted,
    stop,
};
use crate::app;
use credbroker_client::{Client, Socket, safety::shell_word};
use credbroker_config::{
    self as config,
    kubeconfig::{Kubeconfig, is_shim},
};
use credbroker_credential::text::quoted;
use credbroker_exec::running;
use credbroker_plugin::Environment;

/// Set up credbroker for this user, or undo the setup
///
/// Shows what it will do, and asks for confirmation. The command adds your kubeconfigs to the broker's configuration. It
/// writes user units of systemd and enables the socket. Without systemd, it lets credbroker-exec start the broker if no
/// broker runs. It writes completions for bash, zsh and fish, and man pages. It puts credbroker-exec in front of the
/// plugins of your kubeconfigs, like `credbroker kubeconfig inject`. It does not change other files that it did not write.
/// Run the command again after you have moved the programs or changed your PATH: it then also restarts the broker.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker setup
  credbroker setup --yes
  credbroker setup --undo")]
pub(super) struct SetupArgs {
    /// Remove what setup wrote, but keep and list the files that have changed since then
    #[arg(long)]
    undo: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Do not use systemd
    #[arg(long)]
    no_systemd: bool,
}

pub(super) fn run(
    args: &SetupArgs,
    man_pages: &[(String, String)],
    console: &mut Console<'_>,
) -> anyhow::Result<u8> {
    let own = console.environment.base_directory("XDG_CONFIG_HOME", ".config");
    let own =
        own.context("there is no place for the files of credbroker: HOME is not set")?.join("credbroker");
    let manifest = Manifest::read(&own)?;
    if args.undo {
        let Some(manifest) = manifest else {
            writeln!(console.out, "Nothing to undo: `credbroker setup` has not run here.")?;
            return Ok(0);
        };
        if confirmed("This removes:", &undo_lines(&manifest), args.yes, console)? {
            undo(&manifest, &own, console)?;
        }
        return Ok(0);
    }
    let originals = Kubeconfig::default_paths(console.environment);
    if let Some((path, _)) = with_users(originals, is_without_original) {
        let (path, remedy) = (path.display(), from_originals(console.environment));
        anyhow::bail!("{path} is a copy of an earlier version, without the original commands; {remedy}");
    }
    let mut manifest = manifest.unwrap_or_default();
    // With symbolic links followed, because a unit or the shim starts it.
    let program = std::env::current_exe().and_then(fs::canonicalize);
    let program = program.context("the path of this program cannot be found")?;
    let plan = Plan::of(console.environment, own, &program, man_pages, !args.no_systemd, &manifest)?;
    if confirmed("This writes:", &plan.lines(), args.yes, console)? {
        apply(&plan, &mut manifest, console)?;
    }
    Ok(0)
}

fn confirmed(title: &str, lines: &[String], yes: bool, console: &mut Console<'_>) -> anyhow::Result<bool> {
    writeln!(console.out, "{title}")?;
    lines.iter().try_for_each(|line| writeln!(console.out, "  {line}"))?;
    if yes {
        return Ok(true);
    }
    anyhow::ensure!(
        io::stdin().is_terminal(),
        "there is no terminal to ask at; run the command again with --yes"
    );
    write!(console.out, "Continue? [y/N] ")?;
    console.out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let is_yes = matches!(answer.trim(), "y" | "Y" | "yes");
    if !is_yes {
        writeln!(console.out, "Nothing was changed.")?;
    }
    Ok(is_yes)
}

fn apply(plan: &Plan, manifest: &mut Manifest, console: &mut Console<'_>) -> anyhow::Result<()> {
    let environment = console.environment;
    let is_ours = manifest.may_write(&plan.config);
    BrokerConfig::find(Some(&plan.config), environment)?.add(&plan.kubeconfigs, |text, missing| {
        if is_ours {
            manifest.will_write(&plan.config, text);
        } else {
            let (_, added) = manifest.added.get_or_insert_with(|| (plan.config.clone(), Vec::new()));
            added.extend(missing);
        }
        manifest.write(&plan.own)
    })?;
    if let Start::OnDemand(_, mark) = &plan.start {
        manifest.on_demand = Some(mark.program.clone());
        mark.log.parent().map(files::private_directory).transpose()?;
    }
    // Before the files are there, so that an interrupted setup can be undone or continued.
    for (path, text) in &plan.files {
        manifest.will_write(path, text);
    }
    manifest.units |= matches!(plan.start, Start::Units);
    manifest.write(&plan.own)?;
    for (path, text) in &plan.files {
        files::shared_directory(path.parent().unwrap_or(Path::new("/")))?;
        // The time of its last change says whether the running broker knows it.
        if files::read_if_there(path)?.as_deref() != Some(text.as_bytes()) {
            files::write_private(path, text)?;
        }
        manifest.has_written(path, text);
    }
    manifest.write(&plan.own)?;
    if matches!(plan.start, Start::Units) {
        programs::manage(&["daemon-reload"], environment)?;
        programs::manage(&["enable", "--now", "credbroker.socket"], environment)?;
    }
    if !matches!(plan.start, Start::ByHand(_)) {
        restart_if_older(console)?;
    }
    let next = if plan.kubeconfigs.is_empty() {
        "No user of your kubeconfig runs an exec plugin. After you add such a user, run `credbroker setup` again."
    } else if !plan.injects() {
        "When the broker runs, run `credbroker kubeconfig inject` to make your kubeconfig use it."
    } else {
        let code = kubeconfig::inject(&InjectArgs::of_setup(&plan.config), console)?;
        anyhow::ensure!(code == 0, "your kubeconfig was not changed; see the message above");
        "After you add a cluster, run `credbroker kubeconfig inject` again. Undo everything with `credbroker setup --undo`."
    };
    check_plugins(plan, console)?;
    if let Some((profile, directory)) = zsh_profile(plan, environment) {
        let line = format!("fpath=({} $fpath)", shell_word(directory));
        writeln!(console.out, "For completion in zsh, add this line to {profile} before `compinit`: {line}")?;
    }
    Ok(writeln!(console.out, "{next}")?)
}

/// Restarts a broker that has an earlier program, or was started with other variables.
fn restart_if_older(console: &mut Console<'_>) -> anyhow::Result<()> {
    let info = async |client: Client| client.admin().broker_info().await;
    let running = BrokerArgs::default().try_ask(console.environment, info)?.ok();
    if let Some(path) =
        running.and_then(|running| recorded::changed_since(running.started_at, console.environment))
    {
        writeln!(
            console.out,
            "The broker restarts, because {} has changed since it started:",
            path.display()
        )?;
        if let Err(why) = stop::restart(console) {
            writeln!(console.out, "Warning: {why:#}")?;
        }
    }
    Ok(())
}

/// The profile of a user of zsh, which may not look for completions in this directory.
fn zsh_profile<'a>(plan: &'a Plan, environment: &Environment) -> Option<(String, &'a Path)> {
    let profile = Some(profile(environment)).filter(|path| path.ends_with("/.zshrc"))?;
    let (page, _) = plan.files.iter().find(|(path, _)| path.ends_with("site-functions/_credbroker"))?;
    let is_there = fs::read_to_string(&profile).is_ok_and(|text| text.contains("site-functions"));
    if is_there { None } else { Some((profile, page.parent()?)) }
}

fn check_plugins(plan: &Plan, console: &mut Console<'_>) -> anyhow::Result<()> {
    let Ok(loaded) = config::load(Some(&plan.config), console.environment) else { return Ok(()) };
    let problems = doctor::plugin_problems(&loaded, console.environment);
    for (problem, remedy, _) in &problems {
        writeln!(console.out, "Warning: {problem}; {remedy}")?;
    }
    if problems.is_empty() {
        let users = counted(loaded.config.providers.iter().count() as u64, "user");
        writeln!(console.out, "The plugins of {users} can run.")?;
    }
    Ok(())
}

fn undo_lines(manifest: &Manifest) -> Vec<String> {
    let mut lines = vec!["credbroker-exec from your kubeconfigs".to_owned()];
    if manifest.units {
        lines.push("the user units of systemd, which are stopped and disabled".to_owned());
    }
    if let Some(program) = &manifest.on_demand {
        lines.push(format!("the broker that was started on demand: {}", program.display()));
    }
    if let Some((config, added)) = &manifest.added {
        let config = config.display();
        lines.extend(added.iter().map(|path| format!("{} from `kubeconfigs` of {config}", path.display())));
    }
    lines.extend(manifest.files.keys().map(|path| path.display().to_string()));
    lines
}

fn undo(manifest: &Manifest, own: &Path, console: &mut Console<'_>) -> anyhow::Result<()> {
    let environment = console.environment;
    // These steps can need a user; until they are done, nothing is gone.
    let code = kubeconfig::restore(&RestoreArgs::default(), console)?;
    anyhow::ensure!(
        code == 0,
        "nothing was removed, because a kubeconfig still uses credbroker-exec; see the message above"
    );
    refuse_if_used(manifest, environment)?;
    if let Some((path, added)) = &manifest.added {
        BrokerConfig::find(Some(path), environment)?.remove(added)?;
    }
    if let Some(recorded) = recorded_plugins(environment) {
        remove(&recorded)?;
        // Only an empty directory is removed.
        drop(recorded.parent().map(fs::remove_dir));
    }
    // The units may be gone already, or the user manager.
    let mut manage = |args: &[&str]| match manifest.units.then(|| programs::manage(args, environment)) {
        Some(Err(error)) => writeln!(console.out, "{error:#}"),
        _ => Ok(()),
    };
    manage(&["disable", "--now", "credbroker.socket", "credbroker.service"])?;
    let mut left = Vec::new();
    for path in manifest.files.keys() {
        if manifest.may_write(path) { remove(path)? } else { left.push(path.clone()) }
    }
    let runtime = environment.set("XDG_RUNTIME_DIR").map(Path::new);
    if let (Some(program), Some(runtime)) = (&manifest.on_demand, runtime) {
        let socket = Socket::at(runtime.join("credbroker/credbroker.sock"));
        // The broker hides the link to its program; its command line is what the shim gave it.
        let command = [program.as_os_str().as_bytes(), b"\0serve\0--detached\0"].concat();
        let is_it = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == command);
        let _not_running = app::terminate(|| running(&socket).filter(is_it), stop::END);
    }
    manage(&["daemon-reload"])?;
    remove(&Manifest::path(own))?;
    // Only an empty directory is removed.
    drop(fs::remove_dir(own));
    for path in &left {
        let remedy = "remove it if you do not need it";
        writeln!(console.out, "{} has changed since, and stays; {remedy}", path.display())?;
    }
    writeln!(console.out, "Undone.")?;
    Ok(())
}

/// Refuses if a kubeconfig still runs the shim, whose program may be removed next: what was not injected cannot be restored.
fn refuse_if_used(manifest: &Manifest, environment: &Environment) -> anyhow::Result<()> {
    let mut paths = Kubeconfig::default_paths(environment);
    paths.extend(BrokerConfig::find(None, environment)?.named()?);
    paths.retain(|path| !manifest.files.contains_key(path));
    let Some((path, names)) = with_users(paths, is_shim) else { return Ok(()) };
    let (shown, file) = (path.display(), shell_word(&path));
    let name = names.first().map(|name| quoted(name)).unwrap_or_default();
    anyhow::bail!(
        "nothing was removed, because users of {shown} run credbroker-exec and have no original to restore: {}; run `kubectl --kubeconfig {file} config delete-user {name}` for each, or take the file out of KUBECONFIG",
        few(names)
    );
}

fn remove(path: &PathBuf) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
