//! The hub, and what is fetched ahead.

use std::num::NonZeroUsize;

use super::{MOST_PER_SECOND, MOST_RUNS, count};
use crate::{
    keys::{ConfigKey, Is, Optional, Required, Section},
    kinds::{Boolean, Checked, Count, ListOf, Maps, Text, Texts},
};

section! {
    /// The hub that ClusterProfiles are read from. In the hub the broker needs the verbs `list` and `watch` for
    /// `clusterprofiles` in the namespaces that it reads.
    cluster_profiles;

    /// Path of the kubeconfig of the hub, or `in-cluster` for the service account of the broker's pod. The kubeconfig's
    /// user can have an exec plugin. A relative path is resolved against the directory of the file.
    KUBECONFIG: Checked, Required = ("kubeconfig", Checked("path", r"^[\s\S]+$"), Required("a path, or `in-cluster`"), "~/.kube/hub");
    /// Context of that kubeconfig.
    CONTEXT: Text, Optional = ("context", Text, Optional("its current context"), "hub");
    /// Namespaces to read.
    NAMESPACES: ListOf, Optional = ("namespaces", ListOf(Checked("namespace", "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")), Optional("all namespaces"), "[fleet]");
    /// Label selector of the ClusterProfiles to read, as for `kubectl get -l`.
    LABEL_SELECTOR: Text, Optional = ("labelSelector", Text, Optional("all ClusterProfiles"), "env in (prod, staging)");
    /// Accept servers with an `http://` URL. Their credentials are sent without TLS.
    ALLOW_HTTP: Boolean, Is<bool> = ("allowHttp", Boolean, Is(false), "true");
    /// Credentials to fetch before they are requested: when the broker starts, and when a ClusterProfile is new or leads
    /// to another cluster or plugin run. The first rule that covers a ClusterProfile applies. Requests of callers run
    /// first.
    PREWARM: Maps, Optional = ("prewarm", Maps(&prewarm::SECTION), Optional("none"), "[{clusterProfiles: [\"fleet/*\"]}]");
}

section! {
    /// A rule for credentials that are fetched before they are requested.
    prewarm;

    /// ClusterProfiles that the rule covers, as `NAMESPACE/NAME`. `*` matches any text.
    CLUSTER_PROFILES: ListOf, Optional = ("clusterProfiles", ListOf(Checked("`NAMESPACE/NAME` with `*`", "^[^/]*/[^/]*$")), Optional("all ClusterProfiles"), "[\"fleet/*\"]");
    /// Providers that the rule covers.
    PROVIDERS: Texts, Optional = ("providers", Texts, Optional("all providers"), "[gke]");
    /// Plugin runs at the same time, for each provider.
    CONCURRENCY: Count, Is<NonZeroUsize> = ("concurrency", Count(MOST_RUNS), Is(count(2)), "4");
    /// Plugin runs that are started per second, for each provider.
    RUNS_PER_SECOND: Count, Is<NonZeroUsize> = ("runsPerSecond", Count(MOST_PER_SECOND), Is(count(5)), "10");
}
