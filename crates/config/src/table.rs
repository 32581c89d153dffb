//! Every key of the configuration, declared once. The comments are the documentation: `docs/configuration.md` prints
//! them, and the JSON Schema shows them in editors.

use std::num::NonZeroUsize;

use super::{
    keys::{ConfigKey, Is, Optional, Required, Section},
    kinds::{Checked, Constant, Enumeration, ListOf, Map, MapOrMaps, Maps, VariableNames},
    policy::PolicyType,
};

/// A module for each section: a static [`ConfigKey`] for each key, and `SECTION` with all of them.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $section:ident;
        $(
            $(#[doc = $doc:literal])+
            $key:ident: $kind:ty, $absent:ty = ($name:literal, $value:expr, $without:expr, $example:literal);
        )+
    ) => {
        $(#[doc = $about])+
        pub(in crate) mod $section {
            use super::*;

            $(
                $(#[doc = $doc])+
                pub(in crate) static $key: ConfigKey<$kind, $absent> = ConfigKey {
                    name: $name,
                    kind: $value,
                    absent: $without,
                    doc: concat!($($doc, "\n"),+),
                    example: $example,
                };
            )+

            pub(in crate) static SECTION: Section = Section {
                name: stringify!($section),
                doc: concat!($($about, "\n"),+),
                keys: &[$(&$key),+],
            };
        }
    };
}

mod bounds;
mod endpoints;
mod fleet;
mod plugins;
mod rules;

pub(super) use self::{
    bounds::limits,
    endpoints::{audit, listen, metrics},
    fleet::{cluster_profiles, prewarm},
    plugins::{allowlist, exec, issuer, provider, variable},
    rules::{access, allow, peers},
};

section! {
    /// A configuration file of the broker.
    root;

    /// Version of this format.
    API_VERSION: Constant, Required = ("apiVersion", Constant("credbroker.io/v1alpha1"), Required("`apiVersion: credbroker.io/v1alpha1`"), "credbroker.io/v1alpha1");
    /// Kind of the file.
    KIND: Constant, Required = ("kind", Constant("BrokerConfig"), Required("`kind: BrokerConfig`"), "BrokerConfig");
    /// The socket that the broker listens on, or a list of several. With a list, access rules can name the listener that
    /// they are for, and each item after the first needs `name` and `socket`.
    LISTEN: MapOrMaps, Optional = ("listen", MapOrMaps(&listen::SECTION), Optional("the defaults of the section"), "{mode: \"0660\"}");
    /// Which plugins may run, as in kubectl's kuberc: `AllowAll`, `DenyAll`, or `Allowlist` with
    /// `credentialPluginAllowlist`. Others fail with `PLUGIN_NOT_ALLOWED`.
    PLUGIN_POLICY: Enumeration<PolicyType>, Is<PolicyType> = ("credentialPluginPolicy", Enumeration(&[("", PolicyType::AllowAll), ("AllowAll", PolicyType::AllowAll), ("DenyAll", PolicyType::DenyAll), ("Allowlist", PolicyType::Allowlist)]), Is(PolicyType::AllowAll), "Allowlist");
    /// The plugins that `credentialPluginPolicy: Allowlist` permits.
    PLUGIN_ALLOWLIST: Maps, Optional = ("credentialPluginAllowlist", Maps(&allowlist::SECTION), Optional("none"), "[{command: aws}, {command: /usr/bin/gke-gcloud-auth-plugin}]");
    /// The exec plugins that the broker runs.
    PROVIDERS: Maps, Optional = ("providers", Maps(&provider::SECTION), Optional("none"), "[{name: eks, execConfig: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws}, passEnv: [\"AWS_*\"]}]");
    /// Kubeconfig files. Each of their users with an exec plugin becomes a provider with the user's name. If several
    /// files define the same name, requests must say which file they mean, as kubeconfigs from `credbroker kubeconfig
    /// wrap` do. A relative path is resolved against the directory of the configuration file, and `~` is the home
    /// directory.
    KUBECONFIGS: ListOf, Optional = ("kubeconfigs", ListOf(Checked("path", r"^[\s\S]+$")), Optional("none"), "[~/.kube/config]");
    /// Variables of the caller's environment that the plugins of `kubeconfigs` get, besides those with which common
    /// plugins select an identity (`AWS_*`, `AZURE_*`, `GOOGLE_*` and others). `*` matches any text. The shim sends a
    /// variable that is not on that list only if `CREDBROKER_CALLER_ENV` names it.
    CALLER_ENV: VariableNames, Optional = ("callerEnv", VariableNames, Optional("none"), "[SCW_PROFILE]");
    /// Rate limits of the services that issue the credentials.
    ISSUERS: Maps, Optional = ("issuers", Maps(&issuer::SECTION), Optional("the defaults of the section, for every issuer"), "[{name: google, runsPerSecond: 20}]");
    /// The hub that ClusterProfiles are read from. It needs at least one item in `providers`.
    CLUSTER_PROFILES: Map, Optional = ("clusterProfiles", Map(&cluster_profiles::SECTION), Optional("no ClusterProfiles are read"), "{kubeconfig: in-cluster}");
    /// Who may use the broker. Without rules, its own user and root may do everything. As soon as there is a rule,
    /// everyone needs one, its own user and root included. A peer has the rights of all rules that are for it. See
    /// [access.md](access.md).
    ACCESS: Maps, Optional = ("access", Maps(&access::SECTION), Optional("the broker's own user and root may do everything"), "[{name: controllers, peers: {uids: [65532]}, allow: {providers: [gke], verbs: [get, watch, report]}}]");
    /// Metrics and health over HTTP.
    METRICS: Map, Optional = ("metrics", Map(&metrics::SECTION), Optional("neither is served"), "{listen: \"127.0.0.1:9464\"}");
    /// Records of decisions and of plugin runs. See [access.md](access.md).
    AUDIT: Map, Optional = ("audit", Map(&audit::SECTION), Optional("decisions are recorded in the log if there are `access` rules"), "{file: /var/lib/credbroker/audit.jsonl}");
    /// Limits of the whole broker.
    LIMITS: Map, Optional = ("limits", Map(&limits::SECTION), Optional("the defaults of the section"), "{pluginRuns: 16}");
}

/// The largest number of connections, watches or credentials.
const MOST: u32 = 1_000_000;
/// The largest number of plugin runs at the same time.
const MOST_RUNS: u32 = 100_000;
/// The largest number of plugin runs in a second. The rest of the broker relies on one that is far below 10⁹.
const MOST_PER_SECOND: u32 = 1_000_000;

const fn count(count: usize) -> NonZeroUsize {
    match NonZeroUsize::new(count) {
        Some(count) => count,
        None => NonZeroUsize::MIN,
    }
}
