//! `credbroker kubeconfig inject`.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use super::{
    broker_config::BrokerConfig,
    known::{Known, Wanted, wait},
    merge::{Entries, absolute},
    moved::{Moved, MovedUser},
    record::Record,
    shim::{BareArg, Shim},
    swap::{Editable, New},
    wrap::replaced_exec,
};
use crate::{
    cli::{
        EX_CONFIG,
        broker::{SocketArg, fail, timeout},
        files::Locked,
    },
    config::{
        self,
        kubeconfig::{Kubeconfig, Mode, is_shim},
    },
    document::{Node, Value},
    plugin::{Definition, Environment},
};

/// Change your kubeconfig in place: its exec users request credentials from the broker
///
/// Without a context, all exec users of KUBECONFIG or ~/.kube/config are changed. Only their `exec`
/// stanzas are replaced; everything else in the files stays as it is, comments too. First the command
/// writes the stanzas to a file below ~/.config/credbroker/, adds that file to the broker's
/// configuration, and waits until the running broker has read it. So no command fails meanwhile, and
/// if this command is interrupted, run it again. `credbroker kubeconfig restore` undoes it:
///
///   credbroker kubeconfig inject
///   credbroker kubeconfig inject prod
///   credbroker kubeconfig restore
///
/// Users with `interactiveMode: Always` stay as they are. Commands such as `aws eks update-kubeconfig`
/// write their own stanza again; run this command after them.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct InjectArgs {
    /// Change only the users of these contexts
    contexts: Vec<String>,
    /// Change this file only [default: all files of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Configuration of the broker [default: the file that `credbroker serve` uses]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    bare: BareArg,
    #[command(flatten)]
    socket: SocketArg,
    /// Longest time to wait until the broker has the definitions, such as 500ms, 10s, 2m, or a number of seconds
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    timeout: Duration,
}

/// Which users of one file are changed.
#[derive(Debug)]
struct Plan {
    /// The path that identifies the file.
    identity: PathBuf,
    users: Vec<(String, Definition)>,
}

pub(super) fn run(
    args: &InjectArgs,
    environment: &Environment,
    shim: &Path,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (paths, mode) = match &args.kubeconfig {
        Some(path) => (vec![std::path::absolute(path)?], Mode::Named),
        None => (Kubeconfig::default_paths(environment), Mode::Ambient),
    };
    let kubeconfig = match config::read_kubeconfig(&paths, mode) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            writeln!(err, "{error}")?;
            return Ok(EX_CONFIG);
        }
    };
    if let Some(copy) = kubeconfig.files().iter().find(|file| Record::read(&file.root).is_some()) {
        anyhow::bail!(
            "{} is a copy that `credbroker kubeconfig wrap` wrote; set KUBECONFIG to your own kubeconfig, or name it with --kubeconfig",
            copy.path.display()
        );
    }
    let plans = plans(&kubeconfig, &args.contexts, environment, err)?;
    if plans.is_empty() {
        writeln!(out, "Nothing to change: no user runs an exec plugin that the broker can serve.")?;
        return Ok(0);
    }
    let shim = Shim::find(environment, shim, &args.socket, args.bare)?;
    let config = BrokerConfig::find(args.config.as_deref(), environment)?;
    let own = own_directory(environment)?;
    let mut wanted = Wanted::default();
    // A new configuration replaces the default of the broker, which is all of these files.
    let mut named: Vec<_> = if config.exists {
        plans.keys().cloned().collect()
    } else {
        kubeconfig.files().iter().map(|file| file.path.clone()).collect()
    };
    for (path, plan) in &plans {
        let moved = Moved::path(&own, &plan.identity);
        prepare(path, plan, &moved, &shim)?;
        wanted.definitions.extend(plan.users.iter().map(|(_, definition)| definition.digest().to_owned()));
        wanted.files.insert(moved.clone());
        named.push(moved);
    }
    if config.add(&named, environment)? {
        writeln!(out, "{}: names the kubeconfigs and the original definitions now", config.path.display())?;
    }
    match wait(&wanted, &args.socket, args.timeout, environment)? {
        Ok(Known::All) => {}
        Ok(Known::Missing(why)) => anyhow::bail!(
            "your kubeconfig was not changed, because the broker did not get the definitions within {} s: {why}",
            args.timeout.as_secs_f32()
        ),
        Err(failure) => {
            let code = fail(&failure, err)?;
            writeln!(
                err,
                "credbroker: your kubeconfig was not changed; run this command again when the broker runs"
            )?;
            return Ok(code);
        }
    }
    for (path, plan) in &plans {
        swap(path, plan, &Moved::path(&own, &plan.identity), out)?;
    }
    writeln!(out, "Undo it with `credbroker kubeconfig restore`.")?;
    Ok(0)
}

/// Our directory in the home of the user.
pub(in crate::cli) fn own_directory(environment: &Environment) -> anyhow::Result<PathBuf> {
    let home = || environment.set("HOME").map(|home| Path::new(home).join(".config"));
    let config = environment.set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let dir =
        config.or_else(home).context("there is no place for the original definitions: HOME is not set")?;
    Ok(dir.join("credbroker"))
}

/// The users to change, by file.
fn plans(
    kubeconfig: &Kubeconfig,
    contexts: &[String],
    environment: &Environment,
    err: &mut dyn Write,
) -> anyhow::Result<BTreeMap<PathBuf, Plan>> {
    let definitions = config::definitions(kubeconfig, environment);
    for problem in &definitions.warnings {
        writeln!(err, "{}: warning: {}", problem.place(), problem.message)?;
    }
    let wanted = users_of(kubeconfig, contexts)?;
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|user| user == name));
    for name in definitions.at_terminal.iter().filter(|name| is_wanted(name)) {
        let name = name.escape_debug();
        writeln!(
            err,
            "credbroker: warning: user `{name}` stays as it is: its plugin needs a terminal (`interactiveMode: Always`), which the broker does not have"
        )?;
    }
    let users = kubeconfig.users();
    let mut plans: BTreeMap<PathBuf, Plan> = BTreeMap::new();
    for (name, definition) in definitions.served.into_iter().filter(|(name, _)| is_wanted(name)) {
        let Some(user) = users.iter().find(|user| user.name == name) else { continue };
        let identity = user.identity.to_owned();
        let plan = plans.entry(user.file.to_owned()).or_insert(Plan { identity, users: Vec::new() });
        plan.users.push((name, definition));
    }
    Ok(plans)
}

/// The names of the users of `contexts`; `None`: of all contexts.
fn users_of(kubeconfig: &Kubeconfig, contexts: &[String]) -> anyhow::Result<Option<Vec<String>>> {
    if contexts.is_empty() {
        return Ok(None);
    }
    let all = kubeconfig.contexts();
    let user = |wanted: &String| {
        let context = all.iter().find(|context| context.name == wanted).with_context(|| {
            let names: Vec<_> = all.iter().map(|context| context.name.to_owned()).collect();
            format!(
                "context `{}` not found; the contexts are: {}",
                wanted.escape_debug(),
                crate::text::listed(&names)
            )
        })?;
        let user = context.body.get("user").and_then(Node::as_str);
        Ok(user.with_context(|| format!("context `{}` has no user", wanted.escape_debug()))?.to_owned())
    };
    contexts.iter().map(user).collect::<anyhow::Result<_>>().map(Some)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Writes the stanzas of `plan` to the file `moved`, with the texts that will replace them.
fn prepare(path: &Path, plan: &Plan, moved: &Path, shim: &Shim) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let text = read(path)?;
    let editable = Editable::of(&text, &shown)?;
    let connected = || {
        format!(
            "{shown} cannot be changed in place, because YAML anchors or merges connect its users; use `credbroker kubeconfig wrap`"
        )
    };
    let mut file =
        Moved::read(moved)?.unwrap_or_else(|| Moved { origin: plan.identity.clone(), users: Vec::new() });
    let mut new = Vec::new();
    for (name, definition) in &plan.users {
        let stanza = editable.stanza(name).with_context(connected)?;
        let shim = replaced_exec(shim, name, definition, &stanza.exec);
        new.push((name, stanza, shim));
    }
    let edits: Vec<_> = new.iter().map(|(name, _, shim)| (name.as_str(), New::Value(shim))).collect();
    let (_, written) = editable.replaced(&edits).with_context(connected)?;
    for ((name, stanza, _), written) in new.iter().zip(written) {
        let exec = located(&stanza.exec, path);
        let (original, column) = (stanza.text.to_owned(), stanza.column());
        file.set(MovedUser { name: (*name).clone(), exec, original, written, column });
    }
    file.write(moved)
}

/// The stanza with an absolute command, because relative ones are relative to the kubeconfig.
fn located(exec: &Node, path: &Path) -> Node {
    let mut exec = exec.clone();
    if let Value::Mapping(entries) = &mut exec.value {
        let entries: &mut Entries = entries;
        absolute(entries, "command", path.parent().unwrap_or(Path::new("/")), true);
    }
    exec
}

/// Replaces the stanzas in the kubeconfig, if they are still the ones that were moved.
fn swap(path: &Path, plan: &Plan, moved: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let file = Moved::read(moved)?
        .with_context(|| format!("{} is gone; run this command again", moved.display()))?;
    let kubeconfig = Locked::take(path)?;
    let text = String::from_utf8(kubeconfig.read()?.unwrap_or_default())?;
    let editable = Editable::of(&text, &shown)?;
    let changed = || format!("{shown} was changed meanwhile; run this command again");
    let mut new = Vec::new();
    for (name, _) in &plan.users {
        let user = file.users.iter().find(|user| user.name == *name).with_context(changed)?;
        let stanza = editable.stanza(name).filter(|stanza| stanza.text == user.original);
        anyhow::ensure!(stanza.is_some_and(|stanza| !is_shim(&stanza.exec)), changed());
        new.push((name.as_str(), user));
    }
    let values = new.iter().map(|(_, user)| user.meaning(&user.written)).collect::<Option<Vec<_>>>();
    let values = values.with_context(changed)?;
    let edits = new.iter().zip(&values).map(|((name, user), value)| (*name, New::Text(&user.written, value)));
    let (text, _) = editable.replaced(&edits.collect::<Vec<_>>()).with_context(changed)?;
    kubeconfig.rewrite(&text)?;
    if let Some(real) = kubeconfig.target_of_link() {
        writeln!(
            out,
            "{shown} is a symbolic link; the file that it leads to was changed: {}",
            real.display()
        )?;
    }
    let names: Vec<_> = plan.users.iter().map(|(name, _)| name.as_str()).collect();
    let users =
        if names.len() == 1 { "user requests its credential" } else { "users request their credentials" };
    writeln!(out, "{shown}: {} {users} from the broker: {}", names.len(), names.join(", "))?;
    Ok(())
}
