//! What to do about each error: for its message, and for `docs/errors.md`.

use credbroker_proto::Reason;

/// What to do about an error with this reason. `NAME` is a provider. Errors that know more say more.
pub const fn remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::AmbiguousProvider => {
            "name a context instead, or set KUBECONFIG to one of the files that define the provider; programs name the definition in the request"
        }
        Reason::BadTimestamp | Reason::OutputInvalid | Reason::OutputTooLarge | Reason::NoCredential => {
            "run the plugin by hand and check its output"
        }
        Reason::CertExpired | Reason::ExpiredOutput => {
            "check the plugin's own cache and this machine's clock"
        }
        Reason::ClusterMismatch => {
            "if the cluster has moved, write the kubeconfig again with `credbroker kubeconfig wrap` or `credbroker kubeconfig fleet`"
        }
        Reason::ClusterProfileInvalid => "correct the field of the ClusterProfile that the message names",
        Reason::Draining => "try again; the next broker answers",
        Reason::ExecInfoTooLarge => {
            "use a smaller bundle of certificate authorities for the cluster, or pass fewer variables"
        }
        Reason::HubNotConfigured => "add `clusterProfiles` to the broker's configuration",
        Reason::HubUnavailable => "try again; `credbroker clusters` shows the problem of the hub",
        Reason::IdentityConflict => {
            "add the variable to the provider's `callerEnv`, or write `callerEnv: []` to use the broker's identity for all callers"
        }
        Reason::InteractionRequired => "run `credbroker login NAME` at a terminal",
        Reason::InvalidRequest => "correct the request",
        Reason::IssuerThrottled => {
            "wait; `credbroker refresh NAME` runs the plugin despite the pause; set `issuers` to limit the rate"
        }
        Reason::KeyMismatch => "correct the certificate or the key that the plugin prints",
        Reason::NoMatchingProvider => "add a provider with a name that the ClusterProfile lists",
        Reason::Overloaded => "raise the limit that the message names, or close connections and watches",
        Reason::PeerDenied => {
            "run a separate broker for this user, or ask the operator of the broker for an access rule"
        }
        Reason::PluginExit => "read the plugin's output in the message, then run `credbroker refresh NAME`",
        Reason::PluginNotAllowed => {
            "change the owner or mode that the message names, or the provider's `sha256`, `sandbox`, or `credentialPluginAllowlist`"
        }
        Reason::PluginNotFound => "install the plugin where the broker runs, or correct `command`",
        Reason::PluginSignal => {
            "after signal 9, raise the memory limit of the broker or lower `limits.pluginRuns`: memory may have run out; otherwise read the plugin's output in the message"
        }
        Reason::PluginTimeout => {
            "if the plugin waits for a user, run `credbroker login NAME` at a terminal; otherwise raise the provider's `timeout`"
        }
        Reason::ProviderChanged => "try again to get the next credential",
        Reason::Recursion => "give the plugin a kubeconfig whose users do not run credbroker-exec",
        Reason::RequestIncomplete => "send the request again",
        Reason::RunPending => "try again later, or wait longer",
        Reason::SpawnFailed => {
            "check that the plugin and its interpreter are executable, and that the machine has memory, processes and disk space left"
        }
        Reason::UnknownClusterProfile => {
            "check the name, and `namespaces` and `labelSelector` of `clusterProfiles` in the broker's configuration"
        }
        Reason::UnknownContext => {
            "use a context that `credbroker clusters --contexts` lists, or add its kubeconfig to `kubeconfigs`"
        }
        Reason::UnknownDefinition => {
            "run `credbroker kubeconfig inject` if you edited the `exec` section; write a copy again with `credbroker kubeconfig wrap`; or add the kubeconfig that defines it to `kubeconfigs`"
        }
        Reason::UnknownProvider => "use one of the names that the message lists",
        Reason::VariableNotAllowed => "unset the variable, or set it in the provider's `env`",
        Reason::VersionMismatch => "set `apiVersion` of the provider to the version that the plugin prints",
        // Of a later version of the contract.
        _ => "",
    }
}

/// What the message of a failed plugin run ends with. `cause` is what it has so far, and `is_held` whether callers get the
/// failure again without a run. Another run cannot correct what a plugin prints.
pub(super) fn last(reason: Reason, cause: &str, name: &str, is_held: bool) -> String {
    match reason {
        Reason::BadTimestamp
        | Reason::KeyMismatch
        | Reason::NoCredential
        | Reason::OutputInvalid
        | Reason::OutputTooLarge
        | Reason::VersionMismatch
            if !cause.contains(remedy(reason)) =>
        {
            format!("; {}", remedy(reason))
        }
        Reason::PluginExit | Reason::PluginSignal | Reason::PluginTimeout | Reason::SpawnFailed
            if is_held =>
        {
            format!("; to run it now, use `credbroker refresh {name}`")
        }
        _ => String::new(),
    }
}
