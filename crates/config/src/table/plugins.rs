//! The exec plugins that the broker runs, and the services that issue their credentials.

use std::{num::NonZeroUsize, time::Duration};

use super::{MOST_PER_SECOND, MOST_RUNS, count};
use crate::{
    keys::{ConfigKey, Is, Optional, Required, Section},
    kinds::{Boolean, Checked, Count, Enumeration, ListOf, Map, Maps, Name, Text, TimeSpan, VariableNames},
};
use credbroker_plugin::{ArgsPolicy, ClusterInfo, EnvPolicy, Interactive, Sandbox, Verify};

section! {
    /// An exec plugin that the broker runs.
    provider;

    /// Name of the provider, which requests use. For ClusterProfiles it is the name of the access provider.
    NAME: Name, Required = ("name", Name, Required(""), "gke");
    /// How the plugin is run: the `exec` stanza of a kubeconfig.
    EXEC_CONFIG: Map, Required = ("execConfig", Map(&exec::SECTION), Required("the `exec` stanza of a kubeconfig"), "{apiVersion: client.authentication.k8s.io/v1, command: gke-gcloud-auth-plugin, interactiveMode: Never}");
    /// Variables of the broker's own environment that the plugin gets, besides the standard ones. `*` matches any text.
    PASS_ENV: VariableNames, Optional = ("passEnv", VariableNames, Optional("none"), "[\"GOOGLE_*\"]");
    /// Variables of the caller's environment that the plugin gets. They are part of the identity of the credential, and
    /// they are never taken from the broker. `*` matches any text. Variables that name programs are refused with
    /// `VARIABLE_NOT_ALLOWED`, and so are those that name files or services, unless the caller has the broker's own uid,
    /// mount namespace and PID namespace. A caller that selects an identity with a variable that is not listed, such as
    /// `AWS_PROFILE`, gets `IDENTITY_CONFLICT` unless the plugin would receive the same value. If the list is written out
    /// as `[]`, such a caller gets the broker's identity.
    CALLER_ENV: VariableNames, Optional = ("callerEnv", VariableNames, Optional("none; other identities are refused"), "[CLOUDSDK_ACTIVE_CONFIG_NAME]");
    /// How far the plugin is confined. Each run has its own session and limits (1,024 open files, files of at most 64 MiB,
    /// and CPU time of two minutes or the `timeout`, whichever is longer). All of its processes end when it fails or takes
    /// too long, and when the broker ends. `strict`: the plugin gains no privileges through setuid programs, its processes
    /// also end when it succeeds, and it does not run (`PLUGIN_NOT_ALLOWED`) if users other than the broker's and root can
    /// write its file or a directory above it. `compatible`: processes that a successful run leaves behind, such as a
    /// browser or an agent, continue without these limits, and a file that others can write only causes a warning.
    SANDBOX: Enumeration<Sandbox>, Is<Sandbox> = ("sandbox", Enumeration(&[("strict", Sandbox::Strict), ("compatible", Sandbox::Compatible)]), Is(Sandbox::Strict), "compatible");
    /// SHA-256 that the file of the plugin must have, as `sha256sum` prints it. Another file fails with
    /// `PLUGIN_NOT_ALLOWED`, so change the value when you upgrade the plugin.
    SHA256: Checked, Optional = ("sha256", Checked("64 hexadecimal digits", "^[0-9a-fA-F]{64}$"), Optional("any file"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    /// Time limit of a plugin run that no person attends. A run that takes longer is killed.
    TIMEOUT: TimeSpan, Is<Duration> = ("timeout", TimeSpan::RUN, Is(Duration::from_secs(30)), "20s");
    /// Upper bound on the lifetime of a credential.
    MAX_AGE: TimeSpan, Optional = ("maxAge", TimeSpan::AGE, Optional("no bound besides the credential's own expiry"), "12h");
    /// Lifetime of a credential that has no expiry.
    UNKNOWN_EXPIRY_MAX_AGE: TimeSpan, Is<Duration> = ("unknownExpiryMaxAge", TimeSpan::AGE, Is(Duration::from_secs(10 * 60)), "5m");
    /// Whether an API server that the broker knows is asked about a credential that seems to be rejected.
    VERIFY: Enumeration<Verify>, Is<Verify> = ("verify", Enumeration(&[("auto", Verify::Auto), ("never", Verify::Never)]), Is(Verify::Auto), "never");
    /// What happens with the cluster that a caller sends. `fromCaller`: the plugin gets it, and it is part of the
    /// identity of the credential. `match`: it must be a cluster that the broker knows for this provider, and the plugin
    /// gets what the broker knows; other clusters fail with `CLUSTER_MISMATCH`. Without `provideClusterInfo` the default is
    /// `fromCaller`: the plugin gets no cluster, and the caller's only selects the API server that verifies a rejection.
    CLUSTER_INFO: Enumeration<ClusterInfo>, Optional = ("clusterInfo", Enumeration(&[("fromCaller", ClusterInfo::FromCaller), ("match", ClusterInfo::Match)]), Optional("`fromCaller`; `match` if there are `access` rules and the plugin gets the cluster"), "match");
    /// Name of the issuer, whose rate limits apply. See `issuers`.
    ISSUER: Name, Optional = ("issuer", Name, Optional("an issuer with the provider's name"), "google");
    /// Whether the plugin gets the arguments in a ClusterProfile, after its own.
    ARGS_POLICY: Enumeration<ArgsPolicy>, Is<ArgsPolicy> = ("profileSourcedCLIArgsPolicy", Enumeration(&[("", ArgsPolicy::Ignore), ("Ignore", ArgsPolicy::Ignore), ("Append", ArgsPolicy::Append)]), Is(ArgsPolicy::Ignore), "Append");
    /// Whether the plugin gets the variables in a ClusterProfile that `profileEnv` allows. `AppendIfNotExists`: except those
    /// in `execConfig.env`. `Replace`: all of them.
    ENV_POLICY: Enumeration<EnvPolicy>, Is<EnvPolicy> = ("profileSourcedEnvVarsPolicy", Enumeration(&[("", EnvPolicy::Ignore), ("Ignore", EnvPolicy::Ignore), ("AppendIfNotExists", EnvPolicy::AppendIfNotExists), ("Replace", EnvPolicy::Replace)]), Is(EnvPolicy::Ignore), "AppendIfNotExists");
    /// Variables that a ClusterProfile may set, if `profileSourcedEnvVarsPolicy` takes any. `*` matches any text. A profile
    /// that sets another variable cannot be used. Some variables are never taken from a profile, such as `PATH`, proxies
    /// and variables that name programs, files or services; see [fleet.md](fleet.md).
    PROFILE_ENV: VariableNames, Optional = ("profileEnv", VariableNames, Optional("none; `*` in a provider file of cluster-inventory-api"), "[CLUSTER_NAME, AWS_REGION]");
    /// Accept `client.authentication.k8s.io/v1alpha1` in `execConfig`, for a plugin that supports no other version.
    ACCEPT_V1ALPHA1: Boolean, Is<bool> = ("acceptV1alpha1", Boolean, Is(false), "true");
    /// Time limit of a plugin run while a person attends it, counted from its start. When the last person leaves, `timeout`
    /// applies again. A person attends a run at a terminal, or with `credbroker login`; see [logins.md](logins.md).
    INTERACTIVE_TIMEOUT: TimeSpan, Is<Duration> = ("interactiveTimeout", TimeSpan::RUN, Is(Duration::from_secs(5 * 60)), "3m");
}

section! {
    /// A plugin that `credentialPluginPolicy: Allowlist` permits.
    allowlist;

    /// Name or absolute path of the plugin, without `.`, `..` and double separators. A path permits that file; symbolic
    /// links are not followed. A name permits that `command`, and the file that it leads to in `PATH`. In the kuberc of
    /// Kubernetes 1.35, this key is `name`.
    COMMAND: Checked, Required = ("command", Checked("name or absolute path", r"^(/[^\u0000]*|[^/\u0000]+)$"), Required("the name or the path of a plugin"), "/usr/bin/gke-gcloud-auth-plugin");
}

section! {
    /// How a plugin is run. The keys are those of the `exec` stanza of a kubeconfig, so a stanza can be pasted.
    exec;

    /// Version of the exec protocol that the plugin supports: `client.authentication.k8s.io/v1` or
    /// `client.authentication.k8s.io/v1beta1`. `client.authentication.k8s.io/v1alpha1` needs `acceptV1alpha1`.
    API_VERSION: Enumeration<()>, Required = ("apiVersion", Enumeration(&[("client.authentication.k8s.io/v1", ()), ("client.authentication.k8s.io/v1beta1", ()), ("client.authentication.k8s.io/v1alpha1", ())]), Required("`client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`"), "client.authentication.k8s.io/v1");
    /// The plugin. A name is looked up in `PATH`. A relative path is resolved against the directory of the file.
    COMMAND: Checked, Required = ("command", Checked("name or path", r"^[^\u0000]+$"), Required("the name or the path of the plugin"), "gke-gcloud-auth-plugin");
    /// Arguments of the plugin, passed as they are: there is no shell and no expansion.
    ARGS: ListOf, Optional = ("args", ListOf(Checked("string", r"^[^\u0000]*$")), Optional("none"), "[--use_application_default_credentials]");
    /// Environment variables of the plugin. They override all others.
    ENV: Maps, Optional = ("env", Maps(&variable::SECTION), Optional("none"), "[{name: CLOUDSDK_CONFIG, value: /var/gcloud}]");
    /// Whether the plugin gets the cluster in `KUBERNETES_EXEC_INFO`.
    PROVIDE_CLUSTER_INFO: Boolean, Is<bool> = ("provideClusterInfo", Boolean, Is(false), "true");
    /// Whether the plugin reads from a terminal. Required with `client.authentication.k8s.io/v1`. The broker has no
    /// terminal, so it lets the person who requests the credential run the plugin in theirs; see [logins.md](logins.md).
    /// `Always`: for every run, except one attempt to renew without a person. `IfAvailable`: only after the plugin has
    /// tried to use a terminal. ClusterProfiles cannot use a plugin with `Always`.
    INTERACTIVE_MODE: Enumeration<Interactive>, Optional = ("interactiveMode", Enumeration(&[("", Interactive::IfAvailable), ("Never", Interactive::Never), ("IfAvailable", Interactive::IfAvailable), ("Always", Interactive::Always)]), Optional("`IfAvailable`"), "Never");
    /// A text for the error message when the plugin is not installed.
    INSTALL_HINT: Text, Optional = ("installHint", Text, Optional("none"), "apt install google-cloud-cli-gke-gcloud-auth-plugin");
}

section! {
    /// An environment variable of a plugin.
    variable;

    /// Name of the variable.
    NAME: Checked, Required = ("name", Checked("variable name", r"^[^=\u0000]+$"), Required(""), "CLOUDSDK_CONFIG");
    /// Value of the variable.
    VALUE: Checked, Optional = ("value", Checked("string", r"^[^\u0000]*$"), Optional("empty"), "/var/gcloud");
}

section! {
    /// A service that issues credentials. All providers of an issuer share its rate limits.
    issuer;

    /// Name of the issuer: the `issuer` of a provider, or the name of a provider without one. A name that users of several
    /// kubeconfigs have is one issuer for all of them; without the section each is its own issuer.
    NAME: Name, Required = ("name", Name, Required("the `issuer` of a provider, or the name of a provider without one"), "google");
    /// Plugin runs that are started per second.
    RUNS_PER_SECOND: Count, Is<NonZeroUsize> = ("runsPerSecond", Count(MOST_PER_SECOND), Is(count(10)), "20");
    /// Plugin runs at the same time.
    CONCURRENCY: Count, Optional = ("concurrency", Count(MOST_RUNS), Optional("`limits.pluginRunsPerProvider`"), "6");
}
