//! Every key of the configuration, declared once. The comments are the documentation: `docs/configuration.md` prints
//! them, and the JSON Schema shows them in editors.

use std::{num::NonZeroUsize, time::Duration};

use super::schema::{
    Boolean, Checked, ConfigKey, Count, Enumeration, Id, Is, ListOf, MOST, MOST_PER_SECOND, MOST_RUNS, Map,
    MapOrMaps, Optional, Required, Section, SocketMode, Text, TimeSpan, count, text_if,
};
use credbroker_plugin::{ClusterInfo, EnvPolicy, Interactive, Sandbox, Sha256, access::Verb};

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
        pub(crate) mod $section {
            use crate::table::*;

            $(
                $(#[doc = $doc])+
                pub(crate) static $key: ConfigKey<$kind, $absent> = ConfigKey {
                    name: $name,
                    kind: $value,
                    absent: $without,
                    #[cfg(test)]
                    doc: concat!($($doc, "\n"),+),
                    #[cfg(test)]
                    example: $example,
                };
            )+

            pub(crate) static SECTION: Section = Section {
                names: &[$($name),+],
                #[cfg(test)]
                name: stringify!($section),
                #[cfg(test)]
                doc: concat!($($about, "\n"),+),
                #[cfg(test)]
                keys: &[$(&$key),+],
            };
        }
    };
}

mod limits;

pub use self::limits::Limits;

/// Whether this is a label of DNS.
fn is_label(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (1..64).contains(&text.len()) && letters && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether this is `NAMESPACE/NAME`.
fn is_profile(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
}

/// The values of `credentialPluginPolicy`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PolicyType {
    AllowAll,
    DenyAll,
    Allowlist,
}

section! {
    /// A configuration file of the broker.
    root;

    /// Version of this format.
    API_VERSION: Enumeration<()>, Required = ("apiVersion", Enumeration(&[("credbroker.io/v1alpha1", ())]), Required("`apiVersion: credbroker.io/v1alpha1`"), "credbroker.io/v1alpha1");
    /// Kind of the file.
    KIND: Enumeration<()>, Required = ("kind", Enumeration(&[("BrokerConfig", ())]), Required("`kind: BrokerConfig`"), "BrokerConfig");
    /// The socket that the broker listens on, or a list of several. With a list, access rules can name the listener that
    /// they are for, and each item after the first needs `name` and `socket`.
    LISTEN: MapOrMaps, Optional = ("listen", MapOrMaps(&listen::SECTION), Optional("the defaults of the section"), "{mode: \"0660\"}");
    /// Which plugins may run, as in kubectl's kuberc: `AllowAll`, `DenyAll`, or `Allowlist` with
    /// `credentialPluginAllowlist`. Others fail with `PLUGIN_NOT_ALLOWED`.
    PLUGIN_POLICY: Enumeration<PolicyType>, Is<PolicyType> = ("credentialPluginPolicy", Enumeration(&[("", PolicyType::AllowAll), ("AllowAll", PolicyType::AllowAll), ("DenyAll", PolicyType::DenyAll), ("Allowlist", PolicyType::Allowlist)]), Is(PolicyType::AllowAll), "Allowlist");
    /// The plugins that `credentialPluginPolicy: Allowlist` permits.
    PLUGIN_ALLOWLIST: ListOf<Map>, Optional = ("credentialPluginAllowlist", ListOf(Map(&allowlist::SECTION)), Optional("none"), "[{command: aws}, {command: /usr/bin/gke-gcloud-auth-plugin}]");
    /// The exec plugins that the broker runs.
    PROVIDERS: ListOf<Map>, Optional = ("providers", ListOf(Map(&provider::SECTION)), Optional("none"), "[{name: eks, execConfig: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws}, passEnv: [\"AWS_*\"]}]");
    /// Kubeconfig files. Each of their users with an exec plugin becomes a provider with the user's name. If several
    /// files define the same name, requests must say which file they mean, as kubeconfigs from `credbroker kubeconfig
    /// wrap` do. A relative path is resolved against the directory of the configuration file, and `~` is the home
    /// directory.
    KUBECONFIGS: ListOf<Text>, Optional = ("kubeconfigs", ListOf(Text("path", Some(r"^[\s\S]+$"), |text| text_if(!text.is_empty(), text), "must be the path of a kubeconfig")), Optional("none"), "[~/.kube/config]");
    /// Variables of the caller's environment that the plugins of `kubeconfigs` get, besides those with which common
    /// plugins select an identity (`AWS_*`, `AZURE_*`, `GOOGLE_*` and others). `*` matches any text. The shim sends a
    /// variable that is not on that list only if `CREDBROKER_CALLER_ENV` names it.
    CALLER_ENV: ListOf<Text>, Optional = ("callerEnv", ListOf(Text::VARIABLES), Optional("none"), "[SCW_PROFILE]");
    /// Rate limits of the services that issue the credentials.
    ISSUERS: ListOf<Map>, Optional = ("issuers", ListOf(Map(&issuer::SECTION)), Optional("the defaults of the section, for every issuer"), "[{name: google, runsPerSecond: 20}]");
    /// The hub that ClusterProfiles are read from. It needs at least one item in `providers`.
    CLUSTER_PROFILES: Map, Optional = ("clusterProfiles", Map(&cluster_profiles::SECTION), Optional("no ClusterProfiles are read"), "{kubeconfig: in-cluster}");
    /// Who may use the broker. Without rules, its own user and root may do everything. As soon as there is a rule,
    /// everyone needs one, its own user and root included. A peer has the rights of all rules that are for it. See
    /// [access.md](access.md).
    ACCESS: ListOf<Map>, Optional = ("access", ListOf(Map(&access::SECTION)), Optional("the broker's own user and root may do everything"), "[{name: controllers, peers: {uids: [65532]}, allow: {providers: [gke], verbs: [get, watch, report]}}]");
    /// Metrics and health over HTTP.
    METRICS: Map, Optional = ("metrics", Map(&metrics::SECTION), Optional("neither is served"), "{listen: \"127.0.0.1:9464\"}");
    /// Records of decisions and of plugin runs. See [access.md](access.md).
    AUDIT: Map, Optional = ("audit", Map(&audit::SECTION), Optional("decisions are recorded in the log if there are `access` rules"), "{file: /var/lib/credbroker/audit.jsonl}");
    /// Limits of the whole broker.
    LIMITS: Map, Optional = ("limits", Map(&limits::limits::SECTION), Optional("the defaults of the section"), "{pluginRuns: 16}");
}

section! {
    /// A socket that the broker listens on.
    listen;

    /// Name of the listener, for access rules. Each listener needs a different one.
    NAME: Text, Optional = ("name", Text::NAME, Optional("`default`"), "apps");
    /// Absolute path of the socket.
    SOCKET: Checked, Optional = ("socket", Checked("absolute path", "^$|^/|^~(/|$)"), Optional("`$XDG_RUNTIME_DIR/credbroker/credbroker.sock`, or `/run/credbroker/credbroker.sock` without that variable"), "/run/credbroker/credbroker.sock");
    /// Permission bits of the socket, as an octal number in quotes. If the socket's directory does not exist, the broker
    /// creates it with mode 0700, with 0750 if the group may connect, or with 0755 if every user may.
    MODE: SocketMode, Is<u32> = ("mode", SocketMode, Is(0o600), "\"0660\"");
    /// Group of the socket and of a directory that the broker creates for it, as a name or a number. The broker must be a
    /// member of the group or run as root.
    GROUP: Text, Optional = ("group", Text::ANY, Optional("the group of the broker's process"), "staff");
    /// The socket is in a directory that other users can write to, or one level below it, such as a Kubernetes `emptyDir`.
    /// The broker puts the socket into a folder in which only the broker can replace it. It creates that folder with mode
    /// 0711, or with 0710 if `group` is set and other users may not connect. If `socket` is directly in the shared
    /// directory, as in `/shared/credbroker.sock`, the folder is `/shared/credbroker.sock.d`, which clients find.
    SHARED_DIRECTORY: Boolean, Is<bool> = ("sharedDirectory", Boolean, Is(false), "true");
}

section! {
    /// Metrics and health over HTTP: `/metrics`, `/livez`, `/readyz` and `/readyz/PROVIDER`. The answers never have a secret.
    metrics;

    /// Where to listen: a loopback address with a port, which every user of the machine can connect to, or a
    /// separate Unix socket, which only the broker's user and group can.
    LISTEN: Checked, Required = ("listen", Checked("`127.0.0.1:PORT`, `[::1]:PORT` or `unix:///PATH`", r"^(127\.[0-9.]+|\[::1\]):[0-9]+$|^unix:///.*[^/]"), Required("`127.0.0.1:9464`, or `unix:///run/credbroker-metrics/http.sock`"), "\"127.0.0.1:9464\"");
    /// Whether the answers have the names of providers. Without them, `/metrics` leaves out what has the label `provider`,
    /// `/readyz` reports all providers as `*`, and `/readyz/PROVIDER` is not found.
    PROVIDER_NAMES: Boolean, Optional = ("providerNames", Boolean, Optional("`true`; `false` on a loopback address while there are `access` rules, because the broker cannot know who connects to it"), "true");
}

section! {
    /// Records of decisions and of plugin runs.
    audit;

    /// Absolute path of the file for the records: one JSON object in each line. The broker creates it with mode 0600, and
    /// begins a new one if another program moves it. No user but the broker's own and root may be able to change it, or a
    /// directory on the way to it.
    FILE: Checked, Optional = ("file", Checked("absolute path", "^/|^~(/|$)"), Optional("the broker's log, which has decisions only"), "/var/lib/credbroker/audit.jsonl");
}

section! {
    /// The hub that ClusterProfiles are read from. In the hub the broker needs the verbs `list` and `watch` for
    /// `clusterprofiles` in the namespaces that it reads.
    cluster_profiles;

    /// Path of the kubeconfig of the hub, or `in-cluster` for the service account of the broker's pod. The kubeconfig's
    /// user can have an exec plugin. A relative path is resolved against the directory of the file.
    KUBECONFIG: Checked, Required = ("kubeconfig", Checked("path", r"^[\s\S]+$"), Required("a path, or `in-cluster`"), "~/.kube/hub");
    /// Context of that kubeconfig.
    CONTEXT: Text, Optional = ("context", Text::ANY, Optional("its current context"), "hub");
    /// Namespaces to read.
    NAMESPACES: ListOf<Text>, Optional = ("namespaces", ListOf(Text("namespace", Some("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), |text| text_if(is_label(text), text), "must be the name of a namespace; to read all namespaces, remove `namespaces`")), Optional("all namespaces"), "[fleet]");
    /// Label selector of the ClusterProfiles to read, as for `kubectl get -l`.
    LABEL_SELECTOR: Text, Optional = ("labelSelector", Text::ANY, Optional("all ClusterProfiles"), "env in (prod, staging)");
    /// Accept servers with an `http://` URL. Their credentials are sent without TLS.
    ALLOW_HTTP: Boolean, Is<bool> = ("allowHttp", Boolean, Is(false), "true");
    /// Credentials to fetch before they are requested: when the broker starts, and when a ClusterProfile is new or leads
    /// to another cluster or plugin run. The first rule that covers a ClusterProfile applies. Requests of callers run
    /// first.
    PREWARM: ListOf<Map>, Optional = ("prewarm", ListOf(Map(&prewarm::SECTION)), Optional("none"), "[{clusterProfiles: [\"fleet/*\"]}]");
}

section! {
    /// A rule for credentials that are fetched before they are requested.
    prewarm;

    /// ClusterProfiles that the rule covers, as `NAMESPACE/NAME`. `*` matches any text.
    CLUSTER_PROFILES: ListOf<Text>, Optional = ("clusterProfiles", ListOf(Text("`NAMESPACE/NAME` with `*`", Some("^[^/]*/[^/]*$"), |text| text_if(text.matches('/').count() == 1, text), "must be `NAMESPACE/NAME`, in which `*` matches any text")), Optional("all ClusterProfiles"), "[\"fleet/*\"]");
    /// Providers that the rule covers.
    PROVIDERS: ListOf<Text>, Optional = ("providers", ListOf(Text::ANY), Optional("all providers"), "[gke]");
    /// Plugin runs at the same time, for each provider.
    CONCURRENCY: Count, Is<NonZeroUsize> = ("concurrency", Count(MOST_RUNS), Is(count(2)), "4");
    /// Plugin runs that are started per second, for each provider.
    RUNS_PER_SECOND: Count, Is<NonZeroUsize> = ("runsPerSecond", Count(MOST_PER_SECOND), Is(count(5)), "10");
}

section! {
    /// An exec plugin that the broker runs.
    provider;

    /// Name of the provider, which requests use. For ClusterProfiles it is the name of the access provider.
    NAME: Text, Required = ("name", Text::NAME, Required(""), "gke");
    /// How the plugin is run: the `exec` stanza of a kubeconfig.
    EXEC_CONFIG: Map, Required = ("execConfig", Map(&exec::SECTION), Required("the `exec` stanza of a kubeconfig"), "{apiVersion: client.authentication.k8s.io/v1, command: gke-gcloud-auth-plugin, interactiveMode: Never}");
    /// Variables of the broker's own environment that the plugin gets, besides the standard ones. `*` matches any text.
    PASS_ENV: ListOf<Text>, Optional = ("passEnv", ListOf(Text::VARIABLES), Optional("none"), "[\"GOOGLE_*\"]");
    /// Variables of the caller's environment that the plugin gets. They are part of the identity of the credential, and
    /// they are never taken from the broker. `*` matches any text. Variables that name programs are refused with
    /// `VARIABLE_NOT_ALLOWED`, and so are those that name files or services, unless the caller has the broker's own uid,
    /// mount namespace and PID namespace. A caller that selects an identity with a variable that is not listed, such as
    /// `AWS_PROFILE`, gets `IDENTITY_CONFLICT` unless the plugin would receive the same value. If the list is written out
    /// as `[]`, such a caller gets the broker's identity.
    CALLER_ENV: ListOf<Text>, Optional = ("callerEnv", ListOf(Text::VARIABLES), Optional("none; other identities are refused"), "[CLOUDSDK_ACTIVE_CONFIG_NAME]");
    /// How far the plugin is confined. Each run has its own session and limits (1,024 open files, files of at most 64 MiB,
    /// and CPU time of two minutes or the `timeout`, whichever is longer). All of its processes end when it fails or takes
    /// too long, and when the broker ends. `strict`: the plugin gains no privileges through setuid programs, its processes
    /// also end when it succeeds, and it does not run (`PLUGIN_NOT_ALLOWED`) if users other than the broker's and root can
    /// write its file or a directory above it. `compatible`: processes that a successful run leaves behind, such as a
    /// browser or an agent, continue without these limits, and a file that others can write only causes a warning.
    SANDBOX: Enumeration<Sandbox>, Is<Sandbox> = ("sandbox", Enumeration(&[("strict", Sandbox::Strict), ("compatible", Sandbox::Compatible)]), Is(Sandbox::Strict), "compatible");
    /// SHA-256 that the file of the plugin must have, as `sha256sum` prints it. Another file fails with
    /// `PLUGIN_NOT_ALLOWED`, so change the value when you upgrade the plugin.
    SHA256: Text<Sha256>, Optional = ("sha256", Text("64 hexadecimal digits", Some("^[0-9a-fA-F]{64}$"), Sha256::from_hex, "must be 64 hexadecimal digits, as `sha256sum` prints them"), Optional("any file"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    /// Time limit of a plugin run that no person attends. A run that takes longer is killed.
    TIMEOUT: TimeSpan, Is<Duration> = ("timeout", TimeSpan::RUN, Is(Duration::from_secs(30)), "20s");
    /// Upper bound on the lifetime of a credential.
    MAX_AGE: TimeSpan, Optional = ("maxAge", TimeSpan::AGE, Optional("no bound besides the credential's own expiry"), "12h");
    /// Lifetime of a credential that has no expiry.
    UNKNOWN_EXPIRY_MAX_AGE: TimeSpan, Is<Duration> = ("unknownExpiryMaxAge", TimeSpan::AGE, Is(Duration::from_secs(10 * 60)), "5m");
    /// Whether an API server that the broker knows is asked about a credential that seems to be rejected.
    VERIFY: Enumeration<bool>, Is<bool> = ("verify", Enumeration(&[("auto", true), ("never", false)]), Is(true), "never");
    /// What happens with the cluster that a caller sends. `fromCaller`: the plugin gets it, and it is part of the
    /// identity of the credential. `match`: it must be a cluster that the broker knows for this provider, and the plugin
    /// gets what the broker knows; other clusters fail with `CLUSTER_MISMATCH`. Without `provideClusterInfo` the default is
    /// `fromCaller`: the plugin gets no cluster, and the caller's only selects the API server that verifies a rejection.
    CLUSTER_INFO: Enumeration<ClusterInfo>, Optional = ("clusterInfo", Enumeration(&[("fromCaller", ClusterInfo::FromCaller), ("match", ClusterInfo::Match)]), Optional("`fromCaller`; `match` if there are `access` rules and the plugin gets the cluster"), "match");
    /// Name of the issuer, whose rate limits apply. See `issuers`.
    ISSUER: Text, Optional = ("issuer", Text::NAME, Optional("an issuer with the provider's name"), "google");
    /// Whether the plugin gets the arguments in a ClusterProfile, after its own.
    ARGS_POLICY: Enumeration<bool>, Is<bool> = ("profileSourcedCLIArgsPolicy", Enumeration(&[("", false), ("Ignore", false), ("Append", true)]), Is(false), "Append");
    /// Whether the plugin gets the variables in a ClusterProfile that `profileEnv` allows. `AppendIfNotExists`: except those
    /// in `execConfig.env`. `Replace`: all of them.
    ENV_POLICY: Enumeration<EnvPolicy>, Is<EnvPolicy> = ("profileSourcedEnvVarsPolicy", Enumeration(&[("", EnvPolicy::Ignore), ("Ignore", EnvPolicy::Ignore), ("AppendIfNotExists", EnvPolicy::AppendIfNotExists), ("Replace", EnvPolicy::Replace)]), Is(EnvPolicy::Ignore), "AppendIfNotExists");
    /// Variables that a ClusterProfile may set, if `profileSourcedEnvVarsPolicy` takes any. `*` matches any text. A profile
    /// that sets another variable cannot be used. Some variables are never taken from a profile, such as `PATH`, proxies
    /// and variables that name programs, files or services; see [fleet.md](fleet.md).
    PROFILE_ENV: ListOf<Text>, Optional = ("profileEnv", ListOf(Text::VARIABLES), Optional("none; `*` in a provider file of cluster-inventory-api"), "[CLUSTER_NAME, AWS_REGION]");
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
    ARGS: ListOf<Text>, Optional = ("args", ListOf(Text::ARGUMENT), Optional("none"), "[--use_application_default_credentials]");
    /// Environment variables of the plugin. They override all others.
    ENV: ListOf<Map>, Optional = ("env", ListOf(Map(&variable::SECTION)), Optional("none"), "[{name: CLOUDSDK_CONFIG, value: /var/gcloud}]");
    /// Whether the plugin gets the cluster in `KUBERNETES_EXEC_INFO`.
    PROVIDE_CLUSTER_INFO: Boolean, Is<bool> = ("provideClusterInfo", Boolean, Is(false), "true");
    /// Whether the plugin reads from a terminal. Required with `client.authentication.k8s.io/v1`. The broker has no
    /// terminal, so it lets the person who requests the credential run the plugin in theirs; see [logins.md](logins.md).
    /// `Always`: for every run, except one attempt to renew without a person. `IfAvailable`: only after the plugin has
    /// tried to use a terminal. ClusterProfiles cannot use a plugin with `Always`.
    INTERACTIVE_MODE: Enumeration<Interactive>, Optional = ("interactiveMode", Enumeration(&[("", Interactive::IfAvailable), ("Never", Interactive::Never), ("IfAvailable", Interactive::IfAvailable), ("Always", Interactive::Always)]), Optional("`IfAvailable`"), "Never");
    /// A text for the error message when the plugin is not installed.
    INSTALL_HINT: Text, Optional = ("installHint", Text::ANY, Optional("none"), "apt install google-cloud-cli-gke-gcloud-auth-plugin");
}

section! {
    /// An environment variable of a plugin.
    variable;

    /// Name of the variable.
    NAME: Checked, Required = ("name", Checked("variable name", r"^[^=\u0000]+$"), Required(""), "CLOUDSDK_CONFIG");
    /// Value of the variable.
    VALUE: Text, Optional = ("value", Text::ARGUMENT, Optional("empty"), "/var/gcloud");
}

section! {
    /// A service that issues credentials. All providers of an issuer share its rate limits.
    issuer;

    /// Name of the issuer: the `issuer` of a provider, or the name of a provider without one. A name that users of several
    /// kubeconfigs have is one issuer for all of them; without the section each is its own issuer.
    NAME: Text, Required = ("name", Text::NAME, Required("the `issuer` of a provider, or the name of a provider without one"), "google");
    /// Plugin runs that are started per second.
    RUNS_PER_SECOND: Count, Is<NonZeroUsize> = ("runsPerSecond", Count(MOST_PER_SECOND), Is(count(10)), "20");
    /// Plugin runs at the same time.
    CONCURRENCY: Count, Is<NonZeroUsize> = ("concurrency", Count(MOST_RUNS), Is(count(4)), "6");
}

section! {
    /// A rule: which processes may do what.
    access;

    /// Name of the rule, for messages and audit records.
    NAME: Text, Required = ("name", Text::NAME, Required("a name for messages and audit records"), "controllers");
    /// The processes that the rule is for. A process must match every list that is not empty.
    PEERS: Map, Required = ("peers", Map(&peers::SECTION), Required("the processes that the rule is for"), "{uids: [65532]}");
    /// What the rule allows.
    ALLOW: Map, Required = ("allow", Map(&allow::SECTION), Required("what the rule allows"), "{providers: [gke], verbs: [get, watch, report]}");
}

section! {
    /// The processes that a rule is for. At least one list must have an item.
    peers;

    /// Uids. The number that the kernel uses for users that it cannot map, 65534, identifies a user only if the broker's
    /// user namespace maps every uid to itself.
    UIDS: ListOf<Id>, Optional = ("uids", ListOf(Id), Optional("any uid"), "[65532]");
    /// Gids, of the process or supplementary. Of a process in another PID namespace, such as another container, only the
    /// gid of the process is known.
    GIDS: ListOf<Id>, Optional = ("gids", ListOf(Id), Optional("any gid"), "[5000]");
    /// Absolute paths of executables. The broker can read the executable of processes of the broker's user, or with
    /// `CAP_SYS_PTRACE` of all; other processes match no path, and neither do processes in another PID namespace or mount
    /// namespace. A script has the path of its interpreter. Such a rule does not protect against processes of the same
    /// user, which can make the executable do anything.
    EXECUTABLES: ListOf<Text>, Optional = ("executables", ListOf(Text("absolute path", Some("^/"), |text| text_if(text.starts_with('/'), text), "must be an absolute path")), Optional("any executable"), "[/usr/local/bin/controller]");
    /// Names of listeners that the process is connected to: `name` in `listen`.
    LISTENERS: ListOf<Text>, Optional = ("listeners", ListOf(Text("name of a listener", Some("^[^\\s]+$"), |text| text_if(!text.is_empty() && !text.contains(char::is_whitespace), text), "must be the name of a listener")), Optional("any listener"), "[default]");
}

section! {
    /// What a rule allows. `providers` or `clusterProfiles` must have an item. If both have one, a request for a
    /// ClusterProfile must match both.
    allow;

    /// Names of providers that requests may name. `*` matches any text.
    PROVIDERS: ListOf<Text>, Optional = ("providers", ListOf(Text("name with `*`", Some(r"^[\s\S]+$"), |text| text_if(!text.is_empty(), text), "must be the name of a provider, in which `*` matches any text")), Optional("requests may not name a provider"), "[gke]");
    /// ClusterProfiles that requests may name, as `NAMESPACE/NAME`. `*` matches any text; a single `*` means all.
    CLUSTER_PROFILES: ListOf<Text>, Optional = ("clusterProfiles", ListOf(Text("`NAMESPACE/NAME` with `*`", Some(r"^(\*|[^/]+/[^/]+)$"), |text| text_if(text == "*" || is_profile(text), text), "must be `NAMESPACE/NAME`, in which `*` matches any text, or `*`")), Optional("requests may not name a ClusterProfile"), "[\"fleet/*\"]");
    /// `get`, `watch` and `report` are for credentials, and `list` is for the lists of clusters, credentials and providers.
    /// `admin` is for refreshing and evicting, and includes `list`. `login` is for
    /// attending plugin runs, which also needs `get`; the broker's own user needs only `get`.
    VERBS: ListOf<Enumeration<Verb>>, Required = ("verbs", ListOf(Enumeration(&[("get", Verb::Get), ("watch", Verb::Watch), ("report", Verb::Report), ("list", Verb::List), ("login", Verb::Login), ("admin", Verb::Admin)])), Required("some of `get`, `watch`, `report`, `list`, `login`, `admin`"), "[get, watch, report]");
}
