//! The one table from errors to gRPC statuses.

mod reasons;
mod remedies;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use credbroker_proto::{CLUSTER, CONTEXT, DOMAIN, ID, LIMIT, PROVIDER, Reason, to_tonic, v1 as pb};
use tokio::task::JoinError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub(super) use self::reasons::{cache_reason, profile_reason, resolve_reason};
pub use self::remedies::remedy;
use super::convert;
use credbroker_cache::{CacheError, Failed};
use credbroker_credential::text::{chain, quoted, shown};
use credbroker_fleet::resolver::Source;
use credbroker_plugin::{
    Context, PluginKey, PluginSpec, ProfileName, ProviderProblem, ResolveError, access::Verb,
};
use credbroker_runner::{RunError, RunErrorKind};
use credbroker_uds_server::{Full, Limit, Refusal, Who};

/// Retry delay when the broker drains or is busy.
const SUCCESSOR: Duration = Duration::from_secs(1);
/// Shortest retry delay when the answer depends on the hub.
const HUB: Duration = Duration::from_secs(2);

/// Maximum bytes of a metadata value. Longer values, which only callers can send, are left out.
const LONGEST_VALUE: usize = 200;

/// Bytes of headers for the message. gRPC for Java and the C core accept 8 KiB of headers in all, and replace a larger
/// response with an error without the message.
const ROOM: usize = 5632;

/// What a request resolved to, for the metadata of its errors.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) provider: Arc<str>,
    key: PluginKey,
    pub(super) profile: Option<ProfileName>,
    context: Option<Arc<str>>,
}

impl Subject {
    pub(super) fn of(spec: &PluginSpec, context: Option<&Context>) -> Self {
        let profile = spec.target.as_ref().map(|target| target.profile.clone());
        let context = context.map(|context| Arc::clone(&context.id.name));
        Self { provider: Arc::clone(&spec.provider.name), key: spec.key, profile, context }
    }
}

pub(super) fn invalid(message: &str) -> Status {
    status(Reason::InvalidRequest, message, None, [])
}

/// The request, which names `source`, leads to no run.
pub(super) fn unresolved(error: &ResolveError, source: &Source) -> Status {
    let provider = match error {
        ResolveError::Provider(provider, _) => Some(provider.to_string()),
        ResolveError::AmbiguousProvider(name, _)
        | ResolveError::ProviderNotAllowed(name)
        | ResolveError::UnknownDefinition(name, ..)
        | ResolveError::UnknownProvider(name, _) => Some(name.clone()),
        _ => None,
    };
    let cluster = match source {
        Source::Provider(_) => None,
        Source::ClusterProfile(profile) => Some((CLUSTER, profile.to_string())),
        Source::Context(context) => Some((CONTEXT, context.name.to_string())),
    };
    let metadata = provider.map(|provider| (PROVIDER, provider)).into_iter().chain(cluster);
    let retry = match error {
        ResolveError::Provider(_, ProviderProblem::ClusterUnread(_, retry_after))
        | ResolveError::ProfileUnread(_, _, retry_after) => HUB.max(*retry_after),
        _ => HUB,
    };
    status(resolve_reason(error), &chain(error), Some(retry), metadata)
}

pub(super) fn no_hub() -> Status {
    let message =
        "this broker does not read ClusterProfiles: its configuration has no `clusterProfiles`; add it";
    status(Reason::HubNotConfigured, message, None, [])
}

pub(super) fn failed(subject: &Subject, failed: &Failed) -> Status {
    let provider = &*subject.provider;
    tracing::debug!(provider, "request failed: {failed}");
    let retry = match &failed.error {
        CacheError::Draining | CacheError::Pending(_) => SUCCESSOR,
        _ => failed.retry_after,
    };
    let reason = cache_reason(&failed.error);
    let may_wait = matches!(&failed.error, CacheError::Run(error) if error.may_wait_for_person());
    let needs_login = reason == Reason::InteractionRequired || may_wait || failed.is_interactive;
    let is_run =
        matches!(&failed.error, CacheError::Run(error) if !matches!(error.kind, RunErrorKind::Stored(_)));
    let name = subject.profile.as_ref().map(|profile| format!("--cluster-profile {profile}"));
    let name = name.unwrap_or_else(|| quoted(provider));
    let login = format!("run `credbroker login {name}` at a terminal: ");
    let bare = |error: &RunError| chain(&RunError { stderr: Arc::default(), ..error.clone() });
    // What to do comes before a long cause, and the plugin knows it best.
    let (first, cause) = match &failed.error {
        // The code that it has printed is of no more use.
        CacheError::Run(error) if may_wait => (login, bare(error)),
        error if needs_login => (login, chain(error)),
        CacheError::Run(error) if error.ends_with_stderr() => {
            let plugin = error.command.rsplit('/').next().unwrap_or_default();
            (format!("{plugin} wrote: {}; ", error.stderr), bare(error))
        }
        error => (String::new(), chain(error)),
    };
    let last = if is_run && !needs_login {
        remedies::last(reason, &cause, &name, !retry.is_zero())
    } else {
        String::new()
    };
    let message = format!("{first}provider `{provider}`: {cause}{last}");
    let limit = match failed.error {
        CacheError::Full(full) => Some(full.key()),
        _ => None,
    };
    let named = [(PROVIDER, provider.to_owned()), (ID, subject.key.to_string())];
    let cluster = subject.profile.as_ref().map(|profile| (CLUSTER, profile.to_string()));
    let context = subject.context.as_ref().map(|context| (CONTEXT, context.to_string()));
    let limit = limit.map(|limit| (LIMIT, limit.to_owned()));
    status(reason, &message, Some(retry), named.into_iter().chain(cluster).chain(context).chain(limit))
}

pub(super) fn draining() -> Status {
    status(Reason::Draining, &CacheError::Draining.to_string(), Some(SUCCESSOR), [])
}

/// Work on another thread did not end: it panicked, or the runtime ends.
pub(super) fn unfinished_work(error: &JoinError) -> Status {
    if error.is_panic() { defect() } else { draining() }
}

/// A panic ended the request. It has no reason, because there is nothing that a client can do.
pub(super) fn defect() -> Status {
    Status::internal("a bug in the broker ended this request; please report it")
}

/// There are no access rules, and the peer is neither the broker's own user nor root.
pub(super) const STRANGER: &str =
    "it serves only its own uid and root; run your own broker (`credbroker serve`)";
/// No access rule is for the peer.
pub(super) const UNLISTED: &str =
    "no access rule allows this process to use it; ask the operator of the broker for a rule";
/// The peer's uid identifies no user.
pub(super) const UNMAPPED: &str = "the kernel uses that number for all users that it cannot map; run the broker and the client as another user";

/// The policy gives the peer no right at all.
pub(super) fn peer_denied(uid: u32, cause: &str) -> Status {
    status(Reason::PeerDenied, &format!("uid {uid} may not use this broker: {cause}"), None, [])
}

/// The peer has rights, but none for this call.
pub(super) fn verb_denied(verb: Verb) -> Status {
    status(Reason::PeerDenied, &no_rule(verb), None, [])
}

fn no_rule(verb: Verb) -> String {
    let verb = verb.name();
    format!("no access rule allows this process to `{verb}`; ask the operator of the broker for a rule")
}

/// The peer may get the credential of `source`, but not attend its runs.
pub(super) fn login_denied(source: &Source) -> Status {
    let (key, noun, name) = match source {
        Source::Provider(provider) => (PROVIDER, "provider", provider.name.clone()),
        Source::ClusterProfile(profile) => (CLUSTER, "ClusterProfile", profile.to_string()),
        Source::Context(context) => (CONTEXT, "context", context.name.to_string()),
    };
    let message = format!("{noun} `{}`: {}", shown(&name), no_rule(Verb::Login));
    status(Reason::PeerDenied, &message, None, [(key, name)])
}

pub(super) fn descendant() -> Status {
    let message = "a plugin run may not send requests to the broker; give the plugin a kubeconfig whose users do not run credbroker-exec";
    status(Reason::Recursion, message, None, [])
}

pub(super) fn no_peer() -> Status {
    status(
        Reason::PeerDenied,
        "the broker could not determine which process sent this request; connect again",
        None,
        [],
    )
}

/// The status of a call that the server on the socket refuses or ends.
pub(super) fn refusal(why: Refusal) -> Status {
    match why {
        Refusal::Full(full) => too_many(full),
        Refusal::Incomplete(limit) => {
            let message = format!("the request was not received completely within {limit:?}; send it again");
            status(Reason::RequestIncomplete, &message, None, [])
        }
        Refusal::Large(most) => {
            let most = most >> 10;
            invalid(&format!(
                "a message of the stream is larger than {most} KiB, which is the limit; send several messages"
            ))
        }
        Refusal::Draining => draining(),
        Refusal::Defect => defect(),
    }
}

fn too_many(Full { limit, who, most }: Full) -> Status {
    let who = match who {
        Who::Connection => "this connection",
        Who::Process => "all threads of this process",
        Who::Uid => "the processes of this uid",
        Who::All => "all peers",
    };
    let name = match limit {
        Limit::Connections => "limits.connections",
        Limit::OpenFiles => "open files",
        Limit::Silent => "silent connections",
        Limit::Bytes => "limits.bytes",
        Limit::Unfinished => "unfinished requests",
        Limit::Watches => "watches of a connection",
    };
    let message = match limit {
        Limit::Connections => format!(
            "{who} have their share of {most} connections (`limits.connections`), and all are in use; try again when one is closed"
        ),
        Limit::OpenFiles => format!(
            "{who} have their share of {most} connections, as many as the broker's limit of open files allows in addition to plugin runs; try again when one is closed, or raise the limit (`LimitNOFILE=` of systemd, `ulimit -n`)"
        ),
        Limit::Silent => format!(
            "this process has {most} connections without a call, which is the limit; use these connections, or try again"
        ),
        Limit::Bytes => format!(
            "the connections, requests, watches and unread answers of {who} take their share of {most} bytes (`limits.bytes`); finish calls, and read their answers"
        ),
        Limit::Unfinished => format!(
            "the unfinished requests of this connection exceed {} MiB, which is the limit; finish some requests, or open another connection",
            most >> 20
        ),
        Limit::Watches => {
            format!("this connection has {most} watches, which is the limit; open another connection")
        }
    };
    let retry = (who != "this connection").then_some(SUCCESSOR);
    status(Reason::Overloaded, &message, retry, [(LIMIT, name.to_owned())])
}

/// What `status` says, as a message of a stream that goes on.
pub(super) fn failure(status: &Status) -> pb::Failure {
    let details = status.get_error_details();
    let (name, metadata) = details.error_info().map_or_else(Default::default, |info| {
        let metadata = info.metadata.iter().map(|(name, value)| (name.clone(), value.clone()));
        (info.reason.as_str(), metadata.collect())
    });
    let bare = status.message().strip_suffix(&format!(" ({name})")).unwrap_or(status.message());
    let retry_after = details.retry_info().and_then(|retry| retry.retry_delay).and_then(convert::duration);
    let reason = pb::ErrorReason::from_str_name(name).unwrap_or_default().into();
    pb::Failure { reason, message: bare.to_owned(), retry_after, metadata }
}

/// Makes every status. The message ends with the reason, for clients that do not decode details.
fn status(
    reason: Reason,
    message: &str,
    retry: Option<Duration>,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    let mut details = ErrorDetails::new();
    let metadata = metadata.into_iter().filter(|(_, value)| value.len() <= LONGEST_VALUE);
    let metadata: HashMap<_, _> = metadata.map(|(name, value)| (name.to_owned(), value)).collect();
    details.set_error_info(reason.name(), DOMAIN, metadata);
    let code = to_tonic(reason.code());
    if retry.is_some() && matches!(code, Code::Unavailable | Code::ResourceExhausted) {
        details.set_retry_info(retry);
    }
    Status::with_error_details(code, fitted(format!("{message} ({})", reason.name())), details)
}

/// Removes the middle of a message that is too long: it begins with what failed, and ends with the reason.
fn fitted(message: String) -> String {
    let half = |characters: &mut dyn Iterator<Item = char>| {
        let mut used = 0;
        let fitting = characters.take_while(|character| {
            used += thirds(*character);
            used <= 3 * ROOM / 2
        });
        fitting.map(char::len_utf8).sum::<usize>()
    };
    let (head, tail) = (half(&mut message.chars()), half(&mut message.chars().rev()));
    match (message.get(..head), message.get(message.len() - tail..)) {
        (Some(head), Some(tail)) if head.len() + tail.len() < message.len() => format!("{head} … {tail}"),
        _ => message,
    }
}

/// Thirds of a byte that a character takes in `grpc-message` (percent-encoded) and `grpc-status-details-bin` (base64).
fn thirds(character: char) -> usize {
    let length = character.len_utf8();
    let plain = character.is_ascii_graphic() && !"\"#%<>`?{}".contains(character);
    (if plain { 1 } else { 3 * length }) * 3 + length * 4
}
