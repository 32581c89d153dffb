//! `credbroker get`: asks a running broker, as the shim does, and says the answer to a person or a script.

use std::{
    ffi::OsString,
    io::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use credbroker_exec::{ApiVersion, Failure, ask_patiently, document, request, socket};
use credbroker_proto::v1::{ClusterProfileRef, Credential, ProviderRef, credential_ref::Source};
use prost_types::Timestamp;
use rustix::process::geteuid;

use super::table;
use crate::{
    clock::{Clock, SystemClock},
    plugin::Environment,
};

/// Ask a running broker for a credential
///
/// The broker answers from its cache, or runs the provider's plugin if it holds no valid credential. The default output
/// says what the broker holds, without the secret. As with credbroker-exec, variables that choose an identity
/// (AWS_PROFILE and the like) are sent along, and the broker uses what the provider's callerEnv names.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "clap prints it on terminals, which show no Markdown")]
pub(super) struct Args {
    /// The provider: a name in the broker's config, or a user of its kubeconfig [env: CREDBROKER_PROVIDER]
    #[arg(long, value_name = "NAME", conflicts_with = "cluster_profile")]
    provider: Option<String>,
    /// A cluster of the fleet that the broker knows; see `credbroker clusters`
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = cluster_profile)]
    cluster_profile: Option<ClusterProfileRef>,
    /// How to print the credential
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The broker's socket, a path or unix:///absolute/path [env: CREDBROKER_SOCKET] [default: the user's broker if
    /// its socket exists, else /run/credbroker/credbroker.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<OsString>,
    /// Give up after so many seconds [default: 45]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,
}

/// What `credbroker get` prints.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Output {
    /// What the broker holds, without the secret
    Table,
    /// The ExecCredential, as credbroker-exec prints it
    Json,
    /// The bearer token alone, for a script
    Token,
}

/// The certificate of a provider that issues no token cannot be printed as one.
const NO_TOKEN: &str = "it issues a certificate and no token; use -o json";

/// Prints the credential on `out`, or why there is none on stderr; the exit code is the shim's.
pub(super) fn run(args: &Args, environment: &Environment, out: &mut dyn Write) -> anyhow::Result<u8> {
    answer(args, environment, &SystemClock, out, &mut io::stderr())
}

fn answer(
    args: &Args,
    environment: &Environment,
    clock: &dyn Clock,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let Some(source) = source(args, environment) else {
        writeln!(
            err,
            "credbroker get: --provider NAME or --cluster-profile NAMESPACE/NAME is missing, and CREDBROKER_PROVIDER is not set"
        )?;
        return Ok(2);
    };
    let outcome = match ask(args, source.clone(), environment) {
        Ok(credential) => rendered(args.output, &source, &credential, clock.now().wall),
        Err(failure) => Err((failure.line(Some(&source)), failure.exit_code())),
    };
    match outcome {
        Ok(text) => {
            print(out, &text)?;
            Ok(0)
        }
        Err((line, code)) => {
            print(err, &format!("credbroker get: {line}\n"))?;
            Ok(code)
        }
    }
}

fn source(args: &Args, environment: &Environment) -> Option<Source> {
    if let Some(profile) = &args.cluster_profile {
        return Some(Source::ClusterProfile(profile.clone()));
    }
    let variable = || environment.get("CREDBROKER_PROVIDER")?.to_str().map(str::to_owned);
    args.provider.clone().or_else(variable).filter(|name| !name.is_empty()).map(provider)
}

fn provider(name: String) -> Source {
    Source::Provider(ProviderRef { name, definition: None })
}

fn cluster_profile(text: &str) -> Result<ClusterProfileRef, String> {
    let parts = text
        .split_once('/')
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'));
    let (namespace, name) = parts.ok_or("expected NAMESPACE/NAME")?;
    Ok(ClusterProfileRef { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Whoever types this waits for it: with a person's patience.
fn ask(args: &Args, source: Source, environment: &Environment) -> Result<Credential, Failure> {
    let socket = socket(args.socket.as_deref(), &environment.0, || geteuid().is_root())?;
    let request = request(source, None, &environment.0, String::new(), true)?;
    ask_patiently(&socket, &request, args.timeout.map(Duration::from_secs), true, None)
}

fn rendered(
    output: Output,
    source: &Source,
    credential: &Credential,
    now: SystemTime,
) -> Result<String, (String, u8)> {
    // Also checks that there is something in it that authenticates.
    let json = document(ApiVersion::V1, credential, now).map_err(Failure::from);
    let json = json.map_err(|failure| (failure.line(Some(source)), failure.exit_code()))?;
    let [kind, name] = named(source);
    match output {
        Output::Json => Ok(json),
        Output::Table => Ok(summary(source, credential, now)),
        Output::Token => match &credential.token {
            Some(token) => Ok(format!("{token}\n")),
            None => Err((format!("{kind} {name}: {NO_TOKEN}"), 1)),
        },
    }
}

/// What kind of thing it is, and its name.
fn named(source: &Source) -> [String; 2] {
    match source {
        Source::Provider(provider) => ["provider".to_owned(), provider.name.clone()],
        Source::ClusterProfile(profile) => {
            ["cluster".to_owned(), format!("{}/{}", profile.namespace, profile.name)]
        }
    }
}

fn summary(source: &Source, credential: &Credential, now: SystemTime) -> String {
    let kind = match (&credential.token, &credential.client_certificate_data) {
        (Some(_), None) => "token",
        (None, _) => "certificate",
        (Some(_), Some(_)) => "token and certificate",
    };
    let expires = credential.expiration_time.map_or_else(|| "unknown".to_owned(), |at| expires(at, now));
    let [head, name] = named(source);
    let head = [head.to_uppercase(), "KIND".to_owned(), "EXPIRES".to_owned(), "GENERATION".to_owned()];
    let head = head.each_ref().map(String::as_str);
    table::text(head, &[[name, kind.to_owned(), expires, credential.generation.clone()]])
}

/// `2026-11-20T10:00:00Z (in 42m)`.
pub(super) fn expires(at: Timestamp, now: SystemTime) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let at = Timestamp { nanos: 0, ..at };
    let left = match u64::try_from(at.seconds).unwrap_or_default().saturating_sub(now) {
        0 => "expired".to_owned(),
        left @ 1..120 => format!("in {left}s"),
        left @ 120..7200 => format!("in {}m", left / 60),
        left @ 7200..172_800 => format!("in {}h", left / 3600),
        left => format!("in {}d", left / 86_400),
    };
    format!("{at} ({left})")
}

fn print(to: &mut dyn Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

#[cfg(test)]
mod tests;
