//! The peer may not ask.

use credbroker_proto::{CLUSTER, PROVIDER, Reason};
use tonic::Status;

use super::status;
use credbroker_credential::text::shown;
use credbroker_fleet::resolver::Source;
use credbroker_plugin::access::Verb;

/// Why a peer has no right at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoRights {
    /// There are no access rules, and it is neither the broker's own user nor root.
    Stranger,
    /// No access rule is for it.
    Unlisted,
    /// Its uid identifies no user.
    Unmapped,
}

/// The policy gives the peer no right.
pub(crate) fn peer_denied(uid: u32, why: NoRights) -> Status {
    let cause = match why {
        NoRights::Stranger => "it serves its own uid and root; run a broker of your own (`credbroker serve`)",
        NoRights::Unlisted => {
            "no access rule allows this process to use it; ask the operator of the broker for a rule"
        }
        NoRights::Unmapped => {
            "the kernel uses that number for all users that it cannot map; run the broker and the client as another user"
        }
    };
    let message = format!("uid {uid} may not use this broker: {cause}");
    status(Reason::PeerDenied, &message, None, [])
}

/// The peer has rights, but none for this call.
pub(crate) fn verb_denied(verb: Verb) -> Status {
    let message = format!(
        "no access rule allows this process to `{}`; ask the operator of the broker for a rule",
        verb.name()
    );
    status(Reason::PeerDenied, &message, None, [])
}

/// The peer may get the credential of `source`, but not attend its runs.
pub(crate) fn login_denied(source: &Source) -> Status {
    let (key, noun, name) = match source {
        Source::Provider(provider) => (PROVIDER, "provider", provider.name.clone()),
        Source::ClusterProfile(profile) => (CLUSTER, "ClusterProfile", profile.to_string()),
    };
    let message = format!(
        "{noun} `{}`: no access rule allows this process to `login`; ask the operator of the broker for a rule",
        shown(&name)
    );
    status(Reason::PeerDenied, &message, None, [(key, name)])
}

/// The peer is a process of a plugin run.
pub(crate) fn descendant() -> Status {
    let message = "a plugin run may not send requests to the broker; give the plugin a kubeconfig whose users do not run credbroker-exec";
    status(Reason::Recursion, message, None, [])
}

/// The request has no peer.
pub(crate) fn no_peer() -> Status {
    status(Reason::PeerDenied, "the connection has no identity", None, [])
}
