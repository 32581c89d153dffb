//! Every key of the configuration: its kind, its bounds and what applies without it. `docs/configuration.md` says what the
//! keys mean; a test takes the types and defaults there, and the JSON Schema, from here.

use std::{num::NonZeroUsize, time::Duration};

use super::endpoints::Exposure;
use super::schema::{
    Boolean, Checked, ConfigKey, Count, Cursor, Enumeration, Id, Is, Kind, ListOf, MOST, MOST_PER_SECOND,
    MOST_RUNS, Map, MapOrMaps, Optional, Required, Section, Size, SocketMode, Text, TimeSpan, count,
};
use credbroker_plugin::{ClusterInfo, EnvPolicy, Interactive, Sandbox, Sha256, access::Verb};

/// A module for each section: a static [`ConfigKey`] for each key, and `SECTION` with all of them.
macro_rules! sections {
    ($($section:ident {
        $($key:ident: $kind:ty, $absent:ty = ($name:literal, $value:expr, $without:expr);)+
    })+) => {
        $(pub(crate) mod $section {
            use crate::table::*;

            $(pub(crate) static $key: ConfigKey<$kind, $absent> =
                ConfigKey { name: $name, kind: $value, absent: $without };)+

            pub(crate) static SECTION: Section = Section {
                names: &[$($name),+],
                #[cfg(test)]
                name: stringify!($section),
                #[cfg(test)]
                keys: &[$(&$key),+],
            };
        })+
    };
}

fn is_dns_label(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    (1..64).contains(&text.len()) && letters && !text.starts_with('-') && !text.ends_with('-')
}

fn is_profile(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PolicyType {
    AllowAll,
    DenyAll,
    Allowlist,
}

const METRICS_ADDRESS: Checked = Checked(
    "`127.0.0.1:PORT`, `[::1]:PORT` or `unix:///PATH`; with `exposure: Pod`, `0.0.0.0:PORT` or `[::]:PORT`",
    r"^(127\.[0-9.]+|0\.0\.0\.0|\[::1?\]):[0-9]+$|^unix:///.*[^/]",
);
const EXPOSURES: Enumeration<Exposure> = Enumeration(&[("Local", Exposure::Local), ("Pod", Exposure::Pod)]);

sections! {
    root {
        API_VERSION: Enumeration<()>, Required = ("apiVersion", Enumeration(&[("credbroker.io/v1alpha1", ())]), Required("`apiVersion: credbroker.io/v1alpha1`"));
        KIND: Enumeration<()>, Required = ("kind", Enumeration(&[("BrokerConfig", ())]), Required("`kind: BrokerConfig`"));
        LISTEN: MapOrMaps, Optional = ("listen", MapOrMaps(&listen::SECTION), Optional);
        PLUGIN_POLICY: Enumeration<PolicyType>, Is<PolicyType> = ("credentialPluginPolicy", Enumeration(&[("", PolicyType::AllowAll), ("AllowAll", PolicyType::AllowAll), ("DenyAll", PolicyType::DenyAll), ("Allowlist", PolicyType::Allowlist)]), Is(PolicyType::AllowAll));
        PLUGIN_ALLOWLIST: ListOf<Map>, Optional = ("credentialPluginAllowlist", ListOf(&allowlist::SECTION), Optional);
        PROVIDERS: ListOf<Map>, Optional = ("providers", ListOf(&provider::SECTION), Optional);
        KUBECONFIGS: ListOf<Text>, Optional = ("kubeconfigs", ListOf(Text("path", Some(r"^[\s\S]+$"), |text| !text.is_empty(), "must be the path of a kubeconfig")), Optional);
        CALLER_ENV: ListOf<Text>, Optional = ("callerEnv", ListOf(Text::VARIABLES), Optional);
        ISSUERS: ListOf<Map>, Optional = ("issuers", ListOf(&issuer::SECTION), Optional);
        CLUSTER_PROFILES: Map, Optional = ("clusterProfiles", &cluster_profiles::SECTION, Optional);
        ACCESS: ListOf<Map>, Optional = ("access", ListOf(&access::SECTION), Optional);
        PROXY: Map, Optional = ("proxy", &proxy::SECTION, Optional);
        METRICS: Map, Optional = ("metrics", &metrics::SECTION, Optional);
        AUDIT: Map, Optional = ("audit", &audit::SECTION, Optional);
        LIMITS: Map, Optional = ("limits", &limits::SECTION, Optional);
    }

    listen {
        NAME: Text, Optional = ("name", Text::NAME, Optional);
        SOCKET: Checked, Optional = ("socket", Checked("absolute path", "^$|^/|^~(/|$)"), Optional);
        MODE: SocketMode, Is<u32> = ("mode", SocketMode, Is(0o600));
        GROUP: Text, Optional = ("group", Text::ANY, Optional);
        SHARED_DIRECTORY: Boolean, Is<bool> = ("sharedDirectory", Boolean, Is(false));
    }

    proxy {
        DIRECTORY: Checked, Optional = ("directory", Checked("absolute path", "^/|^~(/|$)"), Optional);
        LISTEN: MapOrMaps, Optional = ("listen", MapOrMaps(&proxy_listen::SECTION), Optional);
        TLS: Map, Optional = ("tls", &proxy_tls::SECTION, Optional);
        METRICS: Map, Optional = ("metrics", &proxy_metrics::SECTION, Optional);
        AUDIT: Map, Optional = ("audit", &proxy_audit::SECTION, Optional);
    }

    proxy_listen {
        NAME: Text, Optional = ("name", Text::NAME, Optional);
        SOCKET: Checked, Optional = ("socket", Checked("absolute path", "^$|^/|^~(/|$)"), Optional);
        MODE: SocketMode, Is<u32> = ("mode", SocketMode, Is(0o600));
        GROUP: Text, Optional = ("group", Text::ANY, Optional);
        SHARED_DIRECTORY: Boolean, Is<bool> = ("sharedDirectory", Boolean, Is(false));
    }

    proxy_tls {
        LISTEN: Checked, Optional = ("listen", Checked("`127.0.0.1:PORT` or `[::1]:PORT`", r"^(127\.0\.0\.1|\[::1\]):[0-9]+$"), Optional);
        HANDLE_LIFETIME: TimeSpan, Is<Duration> = ("handleLifetime", TimeSpan::RUN, Is(Duration::from_secs(3600)));
        REQUIRE_UID: Boolean, Is<bool> = ("requireUid", Boolean, Is(true));
    }

    proxy_metrics {
        LISTEN: Checked, Required = ("listen", METRICS_ADDRESS, Required("`127.0.0.1:9466`, or `unix:///run/credbroker-proxy-metrics/http.sock`"));
        EXPOSURE: Enumeration<Exposure>, Optional = ("exposure", EXPOSURES, Optional);
    }

    proxy_audit {
        FILE: Checked, Required = ("file", Checked("absolute path", "^/|^~(/|$)"), Required("the path of a file"));
    }

    metrics {
        LISTEN: Checked, Required = ("listen", METRICS_ADDRESS, Required("`127.0.0.1:9464`, or `unix:///run/credbroker-metrics/http.sock`"));
        EXPOSURE: Enumeration<Exposure>, Optional = ("exposure", EXPOSURES, Optional);
        PROVIDER_NAMES: Boolean, Optional = ("providerNames", Boolean, Optional);
    }

    audit {
        FILE: Checked, Optional = ("file", Checked("absolute path", "^/|^~(/|$)"), Optional);
    }

    cluster_profiles {
        KUBECONFIG: Checked, Required = ("kubeconfig", Checked("path", r"^[\s\S]+$"), Required("a path, or `InCluster`"));
        CONTEXT: Text, Optional = ("context", Text::ANY, Optional);
        NAMESPACES: ListOf<Text>, Optional = ("namespaces", ListOf(Text("namespace", Some("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"), is_dns_label, "must be the name of a namespace; to read all namespaces, remove `namespaces`")), Optional);
        LABEL_SELECTOR: Text, Optional = ("labelSelector", Text::ANY, Optional);
        ALLOW_HTTP: Boolean, Is<bool> = ("allowHttp", Boolean, Is(false));
        PREWARM: ListOf<Map>, Optional = ("prewarm", ListOf(&prewarm::SECTION), Optional);
    }

    prewarm {
        CLUSTER_PROFILES: ListOf<Text>, Optional = ("clusterProfiles", ListOf(Text("`NAMESPACE/NAME` with `*`", Some("^[^/]*/[^/]*$"), |text| text.matches('/').count() == 1, "must be `NAMESPACE/NAME`, in which `*` matches any text")), Optional);
        PROVIDERS: ListOf<Text>, Optional = ("providers", ListOf(Text::ANY), Optional);
        CONCURRENCY: Count, Is<NonZeroUsize> = ("concurrency", Count(MOST_RUNS), Is(count(2)));
        RUNS_PER_SECOND: Count, Is<NonZeroUsize> = ("runsPerSecond", Count(MOST_PER_SECOND), Is(count(5)));
    }

    provider {
        NAME: Text, Required = ("name", Text::NAME, Required(""));
        EXEC_CONFIG: Map, Required = ("execConfig", &exec::SECTION, Required("the `exec` stanza of a kubeconfig"));
        PASS_ENV: ListOf<Text>, Optional = ("passEnv", ListOf(Text::VARIABLES), Optional);
        CALLER_ENV: ListOf<Text>, Optional = ("callerEnv", ListOf(Text::VARIABLES), Optional);
        IDENTITY_FILES: ListOf<Text>, Optional = ("identityFiles", ListOf(Text("path", Some(r"^[^\u0000]+$"), |text| !text.is_empty() && !text.contains('\0'), "must be the path of a file")), Optional);
        SANDBOX: Enumeration<Sandbox>, Is<Sandbox> = ("sandbox", Enumeration(&[("Strict", Sandbox::Strict), ("Compatible", Sandbox::Compatible)]), Is(Sandbox::Strict));
        SHA256: Text, Optional = ("sha256", Text("64 hexadecimal digits", Some("^[0-9a-fA-F]{64}$"), |text| Sha256::from_hex(text).is_some(), "must be 64 hexadecimal digits, as `sha256sum` prints them"), Optional);
        TIMEOUT: TimeSpan, Is<Duration> = ("timeout", TimeSpan::RUN, Is(Duration::from_secs(30)));
        MAX_AGE: TimeSpan, Optional = ("maxAge", TimeSpan::AGE, Optional);
        UNKNOWN_EXPIRY_MAX_AGE: TimeSpan, Is<Duration> = ("unknownExpiryMaxAge", TimeSpan::AGE, Is(Duration::from_secs(10 * 60)));
        VERIFY: Enumeration<bool>, Is<bool> = ("verify", Enumeration(&[("Auto", true), ("Never", false)]), Is(true));
        CLUSTER_INFO: Enumeration<ClusterInfo>, Optional = ("clusterInfo", Enumeration(&[("FromCaller", ClusterInfo::FromCaller), ("Match", ClusterInfo::Match)]), Optional);
        ISSUER: Text, Optional = ("issuer", Text::NAME, Optional);
        ARGS_POLICY: Enumeration<bool>, Is<bool> = ("profileSourcedCLIArgsPolicy", Enumeration(&[("", false), ("Ignore", false), ("Append", true)]), Is(false));
        ENV_POLICY: Enumeration<EnvPolicy>, Is<EnvPolicy> = ("profileSourcedEnvVarsPolicy", Enumeration(&[("", EnvPolicy::Ignore), ("Ignore", EnvPolicy::Ignore), ("AppendIfNotExists", EnvPolicy::AppendIfNotExists), ("Replace", EnvPolicy::Replace)]), Is(EnvPolicy::Ignore));
        PROFILE_ENV: ListOf<Text>, Optional = ("profileEnv", ListOf(Text::VARIABLES), Optional);
        ACCEPT_V1ALPHA1: Boolean, Is<bool> = ("acceptV1alpha1", Boolean, Is(false));
        INTERACTIVE_TIMEOUT: TimeSpan, Is<Duration> = ("interactiveTimeout", TimeSpan::RUN, Is(Duration::from_secs(5 * 60)));
    }

    allowlist {
        COMMAND: Checked, Required = ("command", Checked("name or absolute path", r"^(/[^\u0000]*|[^/\u0000]+)$"), Required("the name or the path of a plugin"));
    }

    exec {
        API_VERSION: Enumeration<()>, Required = ("apiVersion", Enumeration(&[("client.authentication.k8s.io/v1", ()), ("client.authentication.k8s.io/v1beta1", ()), ("client.authentication.k8s.io/v1alpha1", ())]), Required("`client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`"));
        COMMAND: Checked, Required = ("command", Checked("name or path", r"^[^\u0000]+$"), Required("the name or the path of the plugin"));
        ARGS: ListOf<Text>, Optional = ("args", ListOf(Text::ARGUMENT), Optional);
        ENV: ListOf<Map>, Optional = ("env", ListOf(&variable::SECTION), Optional);
        PROVIDE_CLUSTER_INFO: Boolean, Is<bool> = ("provideClusterInfo", Boolean, Is(false));
        INTERACTIVE_MODE: Enumeration<Interactive>, Optional = ("interactiveMode", Enumeration(&[("", Interactive::IfAvailable), ("Never", Interactive::Never), ("IfAvailable", Interactive::IfAvailable), ("Always", Interactive::Always)]), Optional);
        INSTALL_HINT: Text, Optional = ("installHint", Text::ANY, Optional);
    }

    variable {
        NAME: Checked, Required = ("name", Checked("variable name", r"^[^=\u0000]+$"), Required(""));
        VALUE: Text, Optional = ("value", Text::ARGUMENT, Optional);
    }

    issuer {
        NAME: Text, Required = ("name", Text::NAME, Required("the `issuer` of a provider, or the name of a provider without one"));
        RUNS_PER_SECOND: Count, Is<NonZeroUsize> = ("runsPerSecond", Count(MOST_PER_SECOND), Is(count(10)));
        CONCURRENCY: Count, Is<NonZeroUsize> = ("concurrency", Count(MOST_RUNS), Is(count(4)));
    }

    access {
        NAME: Text, Required = ("name", Text::NAME, Required("a name for messages and audit records"));
        PEERS: Map, Required = ("peers", &peers::SECTION, Required("the processes that the rule is for"));
        ALLOW: Map, Required = ("allow", &allow::SECTION, Required("what the rule allows"));
    }

    peers {
        UIDS: ListOf<Id>, Optional = ("uids", ListOf(Id), Optional);
        GIDS: ListOf<Id>, Optional = ("gids", ListOf(Id), Optional);
        EXECUTABLES: ListOf<Text>, Optional = ("executables", ListOf(Text("absolute path", Some("^/"), |text| text.starts_with('/'), "must be an absolute path")), Optional);
        LISTENERS: ListOf<Text>, Optional = ("listeners", ListOf(Text("name of a listener", Some("^[^\\s]+$"), |text| !text.is_empty() && !text.contains(char::is_whitespace), "must be the name of a listener")), Optional);
    }

    allow {
        PROVIDERS: ListOf<Text>, Optional = ("providers", ListOf(Text("name with `*`", Some(r"^[\s\S]+$"), |text| !text.is_empty(), "must be the name of a provider, in which `*` matches any text")), Optional);
        CLUSTER_PROFILES: ListOf<Text>, Optional = ("clusterProfiles", ListOf(Text("`NAMESPACE/NAME` with `*`", Some(r"^(\*|[^/]+/[^/]+)$"), |text| text == "*" || is_profile(text), "must be `NAMESPACE/NAME`, in which `*` matches any text, or `*`")), Optional);
        VERBS: ListOf<Enumeration<Verb>>, Required = ("verbs", ListOf(Enumeration(&[("get", Verb::Get), ("watch", Verb::Watch), ("report", Verb::Report), ("list", Verb::List), ("login", Verb::Login), ("admin", Verb::Admin), ("proxy", Verb::Proxy)])), Required("some of `get`, `watch`, `report`, `list`, `login`, `admin`, `proxy`"));
    }

    limits {
        CONNECTIONS: Count, Is<NonZeroUsize> = ("connections", Count(MOST), Is(count(4096)));
        BYTES: Size, Is<NonZeroUsize> = ("bytes", Size::MOST, Is(count(40 << 20)));
        PLUGIN_RUNS: Count, Is<NonZeroUsize> = ("pluginRuns", Count(MOST_RUNS), Is(count(8)));
        INTERACTIVE_RUNS: Count, Is<NonZeroUsize> = ("interactiveRuns", Count(MOST_RUNS), Is(count(8)));
        CREDENTIALS: Count, Is<NonZeroUsize> = ("credentials", Count(MOST), Is(count(10_000)));
        CREDENTIAL_BYTES: Size, Is<NonZeroUsize> = ("credentialBytes", Size::MOST, Is(count(64 << 20)));
    }
}

/// Limits of the whole broker: the keys of the section `limits`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Open connections.
    pub connections: NonZeroUsize,
    /// Bytes of connections, calls, requests and answers.
    pub bytes: NonZeroUsize,
    /// Plugin runs at the same time.
    pub plugin_runs: NonZeroUsize,
    /// Plugin runs that wait for a user at the same time.
    pub interactive_runs: NonZeroUsize,
    /// Credentials in memory.
    pub credentials: NonZeroUsize,
    /// Bytes of credentials in memory, and of what selects them.
    pub credential_bytes: NonZeroUsize,
}

impl Limits {
    pub(super) fn read(section: Option<&Cursor<'_>>) -> Self {
        fn limit<K: for<'a> Kind<Value<'a> = NonZeroUsize>>(
            section: Option<&Cursor<'_>>,
            key: &ConfigKey<K, Is<NonZeroUsize>>,
        ) -> NonZeroUsize {
            section.map_or(key.absent.0, |fields| key.read(fields))
        }
        Self {
            connections: limit(section, &limits::CONNECTIONS),
            bytes: limit(section, &limits::BYTES),
            plugin_runs: limit(section, &limits::PLUGIN_RUNS),
            interactive_runs: limit(section, &limits::INTERACTIVE_RUNS),
            credentials: limit(section, &limits::CREDENTIALS),
            credential_bytes: limit(section, &limits::CREDENTIAL_BYTES),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::read(None)
    }
}
