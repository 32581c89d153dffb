//! Completions: the shell calls this program, so that it can offer the names that a running broker has.

mod script;

use std::{ffi::OsString, io::Write, time::Duration};

use clap::{Arg, Command, CommandFactory as _};
use clap_complete::{ArgValueCandidates, CompletionCandidate, env::CompleteEnv};
use credbroker_client::{Client, Error, admin::Selector};
use tokio::time::timeout;

use super::{
    Cli,
    broker::{SocketArg, ask},
};
use crate::app;
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, Mode};
use credbroker_credential::text::one_line;

pub(super) use script::script;

/// The variable by which the script of a shell calls this program. It has the name of the shell.
const VARIABLE: &str = "CREDBROKER_COMPLETE";
/// How long a person waits for names at most. Without a broker there are none.
const LIMIT: Duration = Duration::from_millis(500);

/// Print the completion script of a shell
///
/// The script calls credbroker, which offers commands, flags, and the names that the running broker has.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompletionsArgs {
    /// Shell that reads the script
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(credbroker completions bash)
  source <(credbroker completions zsh)
  credbroker completions fish | source";

/// A shell.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    #[value(name = "powershell")]
    Pwsh,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
            Self::Elvish => "elvish",
            Self::Pwsh => "powershell",
        }
    }
}

/// Prints the script of `credbroker` in `PATH`.
pub(super) fn run(args: &CompletionsArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    out.write_all(script(args.shell, "credbroker").as_bytes())?;
    Ok(0)
}

/// Answers the script of a shell if this is a call of it. Returns whether it was one.
pub(super) fn answer(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<bool> {
    let directory = std::env::current_dir().ok();
    let completion = CompleteEnv::with_factory(|| with_names(Cli::command())).var(VARIABLE);
    Ok(completion.try_complete(arguments, directory.as_deref())?)
}

/// `command` and all commands below it, whose arguments for names offer those that there are.
fn with_names(command: Command) -> Command {
    command
        .mut_args(|arg| match candidates(&arg) {
            Some(candidates) => arg.add(candidates),
            None => arg,
        })
        .mut_subcommands(with_names)
}

fn candidates(arg: &Arg) -> Option<ArgValueCandidates> {
    Some(match arg.get_id().as_str() {
        "provider" => ArgValueCandidates::new(|| names(providers)),
        "definition" => ArgValueCandidates::new(|| names(definitions)),
        "cluster_profile" => ArgValueCandidates::new(|| names(cluster_profiles)),
        "namespaces" => ArgValueCandidates::new(|| names(namespaces)),
        "key" => ArgValueCandidates::new(|| names(keys)),
        "context" => ArgValueCandidates::new(contexts),
        _ => return None,
    })
}

/// A name and what it is.
type Candidate = (String, Option<String>);

/// What the broker offers, within the limit; nothing if there is no broker.
fn names(request: impl AsyncFnOnce(Client) -> Result<Vec<Candidate>, Error>) -> Vec<CompletionCandidate> {
    let answer = ask(&SocketArg::default(), LIMIT, &app::environment(), async |client| {
        timeout(LIMIT, request(client)).await.unwrap_or_else(|_elapsed| Ok(Vec::new()))
    });
    let mut offers = answer.ok().and_then(Result::ok).unwrap_or_default();
    offers.sort();
    offers.dedup_by(|one, other| one.0 == other.0);
    // A shell would insert a control character as it is.
    offers.retain(|(name, _)| one_line(name) == *name);
    let candidate = |(name, help): Candidate| {
        CompletionCandidate::new(name).help(help.map(|help| one_line(&help).into()))
    };
    offers.into_iter().map(candidate).collect()
}

async fn providers(client: Client) -> Result<Vec<Candidate>, Error> {
    let providers = client.admin().providers().await?;
    Ok(providers.into_iter().map(|provider| (provider.name, Some(provider.command))).collect())
}

async fn definitions(client: Client) -> Result<Vec<Candidate>, Error> {
    let providers = client.admin().providers().await?.into_iter();
    Ok(providers.filter_map(|provider| Some((provider.definition?, Some(provider.name)))).collect())
}

async fn cluster_profiles(client: Client) -> Result<Vec<Candidate>, Error> {
    let clusters = client.clusters(None).await?.clusters;
    Ok(clusters.into_iter().map(|cluster| (cluster.profile.to_string(), cluster.provider)).collect())
}

async fn namespaces(client: Client) -> Result<Vec<Candidate>, Error> {
    let clusters = client.clusters(None).await?.clusters;
    Ok(clusters.into_iter().map(|cluster| (cluster.profile.namespace, None)).collect())
}

async fn keys(client: Client) -> Result<Vec<Candidate>, Error> {
    let held = client.admin().credentials(&Selector::All).await?;
    Ok(held.into_iter().map(|held| (held.key, Some(held.provider))).collect())
}

fn contexts() -> Vec<CompletionCandidate> {
    let paths = Kubeconfig::default_paths(&app::environment());
    let kubeconfig = config::read_kubeconfig(&paths, Mode::Ambient).ok();
    let names = kubeconfig.map(|kubeconfig| kubeconfig.context_names()).unwrap_or_default();
    names.into_iter().filter(|name| one_line(name) == *name).map(CompletionCandidate::new).collect()
}
