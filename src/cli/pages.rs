//! Man pages, and completions, for which the shell calls this program: it offers the names that a running broker has.

use std::{ffi::OsString, fs, io::Write, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Arg, Command};
use clap_complete::{
    ArgValueCandidates, CompletionCandidate,
    env::{CompleteEnv, Shells},
};
use clap_mangen::Man;
use credbroker_client::{Client, Error, admin::Selector};
use tokio::time::timeout;

use super::broker::BrokerArgs;
use crate::app;
use credbroker_config::{
    self as config,
    kubeconfig::{Kubeconfig, Mode},
};
use credbroker_credential::text::one_line;

/// The variable by which the script of a shell calls this program. It has the name of the shell.
const VARIABLE: &str = "CREDBROKER_COMPLETE";
/// How long a user waits for names at most. Without a broker there are none.
const LIMIT: Duration = Duration::from_millis(500);

/// The library's script divides words as bash does, at `:`, `=` and `@`, which names of providers often have, and inserts
/// candidates without quotes: bash would run what a name has in `$()`.
const BASH: &str = include_str!("complete.bash");

/// Changes of the library's other scripts: the words reach this program as the user means them, without quotes.
const UNQUOTED: [(&str, &str); 2] = [
    (r#""${words[@]}""#, r#""${(@Q)words}""#),
    ("(commandline --current-token)", "(commandline --current-token | string unescape)"),
];

/// The first completion loads the file of a function, and calls what is in it as that function: then it must complete.
const ZSH_AUTOLOADED: &str = r#"
if [[ "$funcstack[1]" == _credbroker ]]; then
    _clap_dynamic_completer_credbroker "$@"
fi
"#;

/// Print the completion script of a shell
///
/// The script calls credbroker, which completes commands, flags, and the names that the running broker has.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(credbroker completions bash)
  source <(credbroker completions zsh)
  credbroker completions fish | source")]
pub(super) struct CompletionsArgs {
    /// Shell that reads the script
    #[arg(value_parser = ["bash", "zsh", "fish", "elvish", "powershell"])]
    shell: String,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    out.write_all(script(&args.shell, "credbroker").as_bytes())?;
    Ok(0)
}

/// Answers the script of a shell with what `command` offers, if this is a call of it. Returns whether it was one.
pub(super) fn answer(
    command: fn() -> Command,
    arguments: impl Iterator<Item = OsString>,
) -> anyhow::Result<bool> {
    let directory = std::env::current_dir().ok();
    let completion = CompleteEnv::with_factory(|| with_names(command())).var(VARIABLE);
    Ok(completion.try_complete(arguments, directory.as_deref())?)
}

/// `command` and all commands below it, whose arguments for names offer those that there are.
fn with_names(command: Command) -> Command {
    let takes_contexts = command.get_name() != "status";
    let with_candidates = |arg: Arg| {
        let id = arg.get_id().to_string();
        match id.as_str() {
            "context" => arg.add(ArgValueCandidates::new(contexts)),
            "provider" if takes_contexts => {
                arg.add(ArgValueCandidates::new(move || offered(&id).into_iter().chain(contexts()).collect()))
            }
            "provider" | "definition" | "cluster_profile" | "namespaces" | "id" => {
                arg.add(ArgValueCandidates::new(move || offered(&id)))
            }
            _ => arg,
        }
    };
    command.mut_args(with_candidates).mut_subcommands(with_names)
}

type Candidate = (String, Option<String>);

/// What the broker has for the argument `id`.
async fn names(id: &str, client: &Client) -> Result<Vec<Candidate>, Error> {
    let admin = client.admin();
    Ok(match id {
        "provider" => {
            let providers = admin.providers().await?.into_iter();
            providers.map(|provider| (provider.name, Some(provider.command))).collect()
        }
        "definition" => {
            let providers = admin.providers().await?.into_iter();
            providers.filter_map(|provider| Some((provider.definition?, Some(provider.name)))).collect()
        }
        "cluster_profile" => {
            let clusters = client.clusters(None).await?.clusters.into_iter();
            clusters.map(|cluster| (cluster.profile.to_string(), cluster.provider)).collect()
        }
        "namespaces" => {
            let clusters = client.clusters(None).await?.clusters.into_iter();
            clusters.map(|cluster| (cluster.profile.namespace, None)).collect()
        }
        _ => {
            let held = admin.credentials(&Selector::All).await?.into_iter();
            held.map(|held| (held.id, Some(held.provider))).collect()
        }
    })
}

/// The same, within the limit; nothing if there is no broker.
fn offered(id: &str) -> Vec<CompletionCandidate> {
    let broker = BrokerArgs { timeout: LIMIT, ..BrokerArgs::default() };
    let answer = broker.ask(&app::environment(), async |client| {
        timeout(LIMIT, names(id, &client)).await.unwrap_or_else(|_elapsed| Ok(Vec::new()))
    });
    let mut offers = answer.unwrap_or_default();
    offers.sort();
    offers.dedup_by(|one, other| one.0 == other.0);
    // A shell would insert a control character as it is.
    offers.retain(|(name, _)| one_line(name) == *name);
    let candidate = |(name, help): Candidate| {
        CompletionCandidate::new(name).help(help.map(|help| one_line(&help).into()))
    };
    offers.into_iter().map(candidate).collect()
}

fn contexts() -> Vec<CompletionCandidate> {
    let paths = Kubeconfig::default_paths(&app::environment());
    let kubeconfig = config::read_kubeconfig(&paths, Mode::Ambient).ok();
    let names = kubeconfig.map(|kubeconfig| kubeconfig.context_names()).unwrap_or_default();
    names.into_iter().filter(|name| one_line(name) == *name).map(CompletionCandidate::new).collect()
}

/// The script that lets `shell` complete `credbroker` by calling `program`, a path or a name in `PATH`.
pub(super) fn script(shell: &str, program: &str) -> String {
    if shell == "bash" {
        let program = format!("'{}'", program.replace('\'', r"'\''"));
        return BASH.replace("VARIABLE", VARIABLE).replace("PROGRAM", &program);
    }
    let mut script = Vec::new();
    if let Some(completer) = Shells::builtins().completer(shell) {
        // Writing to a vector does not fail.
        drop(completer.write_registration(VARIABLE, "credbroker", "credbroker", program, &mut script));
    }
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = UNQUOTED.iter().fold(script, |script, (quoted, unquoted)| script.replace(quoted, unquoted));
    if shell == "zsh" { script + ZSH_AUTOLOADED } else { script }
}

/// Write the man pages of all commands into a directory
///
/// Packages install the man pages below share/man/man1.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker man ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// An existing directory
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub(super) fn write_pages(args: &ManArgs, command: Command, out: &mut dyn Write) -> anyhow::Result<u8> {
    let pages = pages(command);
    for (name, text) in &pages {
        let path = args.directory.join(name);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    writeln!(out, "wrote {} pages to {}", pages.len(), args.directory.display())?;
    Ok(0)
}

pub(super) fn pages(command: Command) -> Vec<(String, String)> {
    let mut command = command.disable_help_subcommand(true);
    // Gives the commands below their whole names.
    command.build();
    let mut pages = Vec::new();
    add_page(&command, &mut pages);
    pages
}

fn add_page(command: &Command, pages: &mut Vec<(String, String)>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add_page(below, pages);
    }
    let (page, mut text) = (Man::new(command.clone()), Vec::new());
    // Writing to a vector does not fail.
    drop(page.render(&mut text));
    pages.push((page.get_filename(), String::from_utf8_lossy(&text).into_owned()));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_command_has_a_page() {
        let directory = credbroker_test_support::private_directory();
        let mut out = Vec::new();
        write_pages(&ManArgs { directory: directory.path().to_owned() }, Cli::command(), &mut out).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
        assert!(read("credbroker.1").contains(".TH credbroker 1"));
        assert!(read("credbroker-status.1").contains("\\-\\-watch"));
        assert!(read("credbroker-kubeconfig-wrap.1").contains(".SH SYNOPSIS"));
        assert!(!directory.path().join("credbroker-shim.1").exists(), "it is hidden");
        let error =
            write_pages(&ManArgs { directory: directory.path().join("none") }, Cli::command(), &mut out)
                .unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
    }
}
