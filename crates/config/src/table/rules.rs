//! Access rules.

use crate::{
    keys::{ConfigKey, Optional, Required, Section},
    kinds::{Checked, Choices, Enumeration, Ids, ListOf, Map, Name},
};
use credbroker_plugin::access::Verb;

section! {
    /// A rule: which processes may do what.
    access;

    /// Name of the rule, for messages and audit records.
    NAME: Name, Required = ("name", Name, Required("a name for messages and audit records"), "controllers");
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
    UIDS: Ids, Optional = ("uids", Ids, Optional("any uid"), "[65532]");
    /// Gids, of the process or supplementary. Of a process in another PID namespace, such as another container, only the
    /// gid of the process is known.
    GIDS: Ids, Optional = ("gids", Ids, Optional("any gid"), "[5000]");
    /// Absolute paths of executables. The broker can read the executable of processes of the broker's user, or with
    /// `CAP_SYS_PTRACE` of all; other processes match no path, and neither do processes in another PID namespace or mount
    /// namespace. A script has the path of its interpreter. Such a rule does not protect against processes of the same
    /// user, which can make the executable do anything.
    EXECUTABLES: ListOf, Optional = ("executables", ListOf(Checked("absolute path", "^/")), Optional("any executable"), "[/usr/local/bin/controller]");
    /// Names of listeners that the process is connected to: `name` in `listen`.
    LISTENERS: ListOf, Optional = ("listeners", ListOf(Checked("name of a listener", "^[^\\s]+$")), Optional("any listener"), "[default]");
}

section! {
    /// What a rule allows. `providers` or `clusterProfiles` must have an item. If both have one, a request for a
    /// ClusterProfile must match both.
    allow;

    /// Names of providers that requests may name. `*` matches any text.
    PROVIDERS: ListOf, Optional = ("providers", ListOf(Checked("name with `*`", r"^[\s\S]+$")), Optional("requests may not name a provider"), "[gke]");
    /// ClusterProfiles that requests may name, as `NAMESPACE/NAME`. `*` matches any text; a single `*` means all.
    CLUSTER_PROFILES: ListOf, Optional = ("clusterProfiles", ListOf(Checked("`NAMESPACE/NAME` with `*`", r"^(\*|[^/]+/[^/]+)$")), Optional("requests may not name a ClusterProfile"), "[\"fleet/*\"]");
    /// `get`, `watch` and `report` are for credentials, and `list` is for the lists of clusters, credentials and providers.
    /// `admin` is for refreshing and evicting, and includes `list`. `login` is for
    /// attending plugin runs, which also needs `get`; the broker's own user needs only `get`.
    VERBS: Choices<Verb>, Required = ("verbs", Choices(Enumeration(&[("get", Verb::Get), ("watch", Verb::Watch), ("report", Verb::Report), ("list", Verb::List), ("login", Verb::Login), ("admin", Verb::Admin)])), Required("some of `get`, `watch`, `report`, `list`, `login`, `admin`"), "[get, watch, report]");
}
