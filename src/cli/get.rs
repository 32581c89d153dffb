//! `credbroker get`: one credential, for a user or a script. `credbroker login`: a run that a user attends.

use std::{
    ffi::OsStr,
    io::{self, IsTerminal as _},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use credbroker_client::{Cluster, Credential, ExposeSecret, Socket, blocking::CredentialRequest};
use credbroker_exec::{
    ApiVersion, Failure, Notice, Source, document, find_or_start, log_in_patiently, request,
    request_patiently, timeout, with_notice,
};

use super::{
    broker::{SocketArg, SourceArgs, note_ignored},
    console::Console,
    context::{Target, resolve},
    screen::{dated, unfitted},
};
use credbroker_config::{self as config, kubeconfig::Kubeconfig};
use credbroker_credential::{self as credential, text::escape_json};
use credbroker_observe::clock::{Clock as _, SystemClock};
use credbroker_plugin::Environment;

/// Get a credential from a running broker
///
/// The broker returns the credential that it holds. If it holds no valid credential, it runs the provider's plugin. The
/// default output describes the credential without the secret. Like credbroker-exec, this command sends the variables that
/// select an identity, such as AWS_PROFILE. The broker uses the variables that the provider's callerEnv names.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker get
  credbroker get gke
  credbroker get gke -o token
  credbroker get gke -o token --min-lifetime 10m
  credbroker get --cluster-profile fleet/paris
  credbroker get gke --context paris")]
#[command(mut_arg("provider", |arg| arg.help(PROVIDER)))]
#[command(mut_arg("cluster_profile", |arg| arg.help("Cluster that the credential is for, as `credbroker clusters` lists it")))]
pub(super) struct GetArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = CredentialFormat::Table)]
    output: CredentialFormat,
    #[command(flatten)]
    socket: SocketArg,
    /// Longest time to wait, such as 500ms, 10s or 1h30m [default: 45s; at a terminal, as long as the plugin may run]
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Minimum remaining lifetime of the credential, such as 10m: the plugin runs if the broker's credential expires sooner
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    min_lifetime: Option<Duration>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

const PROVIDER: &str = "Provider of the credential: a name in the broker's configuration, a user of its kubeconfig, or the \
                        context of one [env: CREDBROKER_PROVIDER] [default: the current context]";

/// The output of `credbroker get`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum CredentialFormat {
    /// A table for people, without the secret
    Table,
    /// The ExecCredential, as credbroker-exec prints it
    Json,
    /// Only the bearer token
    Token,
}

const NO_TOKEN: &str = "the credential has a certificate instead of a token; use -o json";

/// Prints the credential, or the error. The exit codes are those of the shim.
pub(super) fn run(args: &GetArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let mut named = args.source.clone();
    if named.source().is_none() && args.cluster.context.is_none() {
        let variable = console.environment.set("CREDBROKER_PROVIDER").and_then(OsStr::to_str);
        named.provider = variable.map(str::to_owned);
    }
    let cluster = args.cluster.read(console.environment)?;
    let context = (args.cluster.context.as_deref(), args.cluster.kubeconfig.as_deref());
    let (target, credential) = resolve(&named, context, console, |target, console| {
        let cluster = cluster.clone().or_else(|| target.cluster.clone());
        let target = Target { cluster, ..target.clone() };
        let call = |socket: &_, request: &CredentialRequest, start, notice: Option<Notice<'_>>| {
            let lasting = args.min_lifetime.map(|lifetime| request.clone().min_lifetime(lifetime));
            let request = lasting.as_ref().unwrap_or(request);
            request_patiently(socket, request, (start, args.timeout), true, notice)
        };
        Ok(noticed("credbroker get", &args.socket, &target, console, call))
    })?;
    let source = &target.source;
    let credential = credential.map_err(|failure| failed(&failure, source));
    let now = SystemClock.now().wall;
    if let (Ok(credential), Some(needed)) = (&credential, args.min_lifetime)
        && credential.expires_at().is_some_and(|at| at.duration_since(now).unwrap_or_default() < needed)
    {
        let named = self::named(source).join(" ");
        let note = "the credential expires sooner than --min-lifetime requires: its plugin issued no better credential, or may not run now";
        writeln!(console.err, "credbroker get: {named}: {note}")?;
    }
    let text = credential.and_then(|it| rendered(args.output, source, &it, now));
    Ok(finish("get", text, console)?)
}

/// Calls `call` with the request for the credential of `target`, how long to wait for a broker to start, and a notice if
/// there is a terminal.
pub(super) fn noticed<T>(
    command: &str,
    socket: &SocketArg,
    Target { source, cluster }: &Target,
    console: &mut Console<'_>,
    mut call: impl FnMut(&Socket, &CredentialRequest, Option<Duration>, Option<Notice<'_>>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (environment, starter) = (&(&console.environment.0).into(), socket.starter(console.environment));
    let (socket, is_terminal) = (socket.locate(console.environment)?, io::stderr().is_terminal());
    let request = request(source.clone(), cluster.clone(), environment, None, is_terminal)?;
    let answer = find_or_start(&socket, starter, |socket, start| {
        if !is_terminal {
            return call(socket, &request, start, None);
        }
        with_notice(command, source, console.err, |notice| call(socket, &request, start, Some(notice)))
    })?;
    // The answer counts, not the note.
    drop(note_ignored(&socket, console.err));
    Ok(answer)
}

fn failed(failure: &Failure, source: &Source) -> (String, u8) {
    (failure.line(Some(source)), failure.exit_code())
}

/// Prints the outcome of `command`, a text or the line and the exit code of a failure; returns the exit code.
fn finish(command: &str, outcome: Result<String, (String, u8)>, console: &mut Console<'_>) -> io::Result<u8> {
    match outcome {
        Ok(text) => write!(console.out, "{text}").and_then(|()| console.out.flush()).map(|()| 0),
        Err((line, code)) => writeln!(console.err, "credbroker {command}: {line}").map(|()| code),
    }
}

fn rendered(
    output: CredentialFormat,
    source: &Source,
    credential: &Credential,
    now: SystemTime,
) -> Result<String, (String, u8)> {
    match output {
        CredentialFormat::Json => {
            let json = document(ApiVersion::V1, credential, now);
            json.map(|json| escape_json(&json)).map_err(|error| failed(&error.into(), source))
        }
        CredentialFormat::Table => Ok(summary(source, credential, now)),
        CredentialFormat::Token => {
            let token = credential.token().map(|token| format!("{}\n", token.expose_secret()));
            token.ok_or_else(|| (format!("{}: {NO_TOKEN}", named(source).join(" ")), 1))
        }
    }
}

fn named(source: &Source) -> [String; 2] {
    match source {
        Source::Provider { name, .. } => ["provider".to_owned(), name.clone()],
        Source::ClusterProfile(profile) => ["cluster".to_owned(), profile.to_string()],
        Source::Context { name, .. } => ["context".to_owned(), name.clone()],
    }
}

fn summary(source: &Source, credential: &Credential, now: SystemTime) -> String {
    let kind = match (credential.token(), credential.identity()) {
        (Some(_), None) => "token",
        (None, _) => "certificate",
        (Some(_), Some(_)) => "token and certificate",
    };
    let expires =
        credential.expires_at().map_or_else(|| "unknown".to_owned(), |at| dated(at, now, "expired"));
    let [head, name] = named(source);
    let cells = [name, kind.to_owned(), expires, credential.generation().to_owned()];
    unfitted([&head.to_uppercase(), "KIND", "EXPIRES", "GENERATION"], [cells])
}

/// Log in: run a provider's plugin now, and see what it asks for
///
/// The plugin runs even if the broker holds a valid credential. Callers get that credential during the run. This command
/// shows what the plugin writes. The run may take as long as the provider's interactiveTimeout. One login serves all
/// callers. If a run is in progress, this command joins it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  credbroker login
  credbroker login azure
  credbroker login --cluster-profile fleet/paris")]
#[command(mut_arg("provider", |arg| arg.help("Provider to log in to: a name in the broker's configuration, a user of its kubeconfig, or the context of one [default: the current context]")))]
#[command(mut_arg("cluster_profile", |arg| arg.help("Log in for this cluster, as `credbroker clusters` lists it")))]
pub(super) struct LoginArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    socket: SocketArg,
    /// Longest time to wait, such as 500ms, 10s or 1h30m [default: as long as the plugin may run]
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<Duration>,
}

pub(super) fn log_in(args: &LoginArgs, console: &mut Console<'_>) -> anyhow::Result<u8> {
    if !io::stderr().is_terminal() {
        let why = "standard error is not a terminal; run this command at a terminal";
        writeln!(console.err, "credbroker login: {why}")?;
        return Ok(2);
    }
    let (Target { source, .. }, logged_in) =
        resolve(&args.source, (None, None), console, |target, console| {
            let call = |socket: &_, request: &_, start, notice: Option<Notice<'_>>| {
                let patience = (start, args.timeout);
                match notice {
                    Some(notice) => log_in_patiently(socket, request, patience, notice),
                    None => request_patiently(socket, request, patience, false, None),
                }
            };
            Ok(noticed("credbroker login", &args.socket, target, console, call))
        })?;
    let logged_in = logged_in.map_err(|failure| failed(&failure, &source));
    let text = logged_in.map(|credential| summary(&source, &credential, SystemClock.now().wall));
    Ok(finish("login", text, console)?)
}

/// The cluster that the plugin receives, for providers with provideClusterInfo
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster, for plugins that receive it (provideClusterInfo)")]
struct ClusterArgs {
    /// Use the cluster of this context in a kubeconfig, and without the argument NAME also its user
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    context: Option<String>,
    /// Kubeconfig of --context [default: files in KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// URL of the API server
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// PEM file with the cluster's certificate authorities
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
    /// Name in the server certificate, if it differs from the host of the URL
    #[arg(long, value_name = "NAME", requires = "server")]
    tls_server_name: Option<String>,
    /// Do not verify the server certificate
    #[arg(long, requires = "server")]
    insecure_skip_tls_verify: bool,
    /// Proxy for requests to the API server
    #[arg(long, value_name = "URL", requires = "server")]
    proxy_url: Option<String>,
    /// Do not request compressed responses from the API server
    #[arg(long, requires = "server")]
    disable_compression: bool,
    /// The cluster's extension client.authentication.k8s.io/exec
    #[arg(long, value_name = "JSON", requires = "server")]
    exec_config: Option<String>,
}

impl ClusterArgs {
    fn read(&self, environment: &Environment) -> anyhow::Result<Option<Cluster>> {
        if let Some(context) = &self.context {
            let (paths, mode) = Kubeconfig::chosen(self.kubeconfig.as_deref(), environment);
            return Ok(Some(message(config::read_kubeconfig(&paths, mode)?.cluster_of(context)?)));
        }
        let Some(server) = &self.server else { return Ok(None) };
        let read = |path: &PathBuf| {
            config::authorities(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut cluster = Cluster::at(server);
        cluster.certificate_authority_data = self.certificate_authority.as_ref().map(read).transpose()?;
        cluster.tls_server_name.clone_from(&self.tls_server_name);
        cluster.insecure_skip_tls_verify = self.insecure_skip_tls_verify;
        cluster.proxy_url.clone_from(&self.proxy_url);
        cluster.disable_compression = self.disable_compression;
        cluster.config = self.exec_config.clone().map(String::into_bytes);
        Ok(Some(cluster))
    }
}

pub(super) fn message(cluster: credential::Cluster) -> Cluster {
    let bytes = |bytes: bytes::Bytes| Some(bytes.to_vec()).filter(|bytes| !bytes.is_empty());
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let mut message = Cluster::at(cluster.server);
    message.tls_server_name = text(cluster.tls_server_name);
    message.insecure_skip_tls_verify = cluster.insecure_skip_tls_verify;
    message.certificate_authority_data = bytes(cluster.certificate_authority_data);
    message.proxy_url = text(cluster.proxy_url);
    message.disable_compression = cluster.disable_compression;
    message.config = bytes(cluster.config);
    message
}

#[cfg(test)]
mod tests;
