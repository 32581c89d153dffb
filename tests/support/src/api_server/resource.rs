//! The collections that the server stores: their names, paths and discovery documents.

use serde_json::{Value, json};

/// A stored kind of object. All are namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collection {
    /// `multicluster.x-k8s.io/v1alpha1`.
    ClusterProfiles,
    /// Of the core group.
    ConfigMaps,
    /// Of the core group.
    Secrets,
}

pub(super) const GROUP: &str = "multicluster.x-k8s.io";

impl Collection {
    pub(super) const ALL: [Self; 3] = [Self::ClusterProfiles, Self::ConfigMaps, Self::Secrets];

    pub(super) fn group(self) -> &'static str {
        match self {
            Self::ClusterProfiles => GROUP,
            Self::ConfigMaps | Self::Secrets => "",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::ClusterProfiles => "multicluster.x-k8s.io/v1alpha1",
            Self::ConfigMaps | Self::Secrets => "v1",
        }
    }

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::ClusterProfiles => "clusterprofiles",
            Self::ConfigMaps => "configmaps",
            Self::Secrets => "secrets",
        }
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::ClusterProfiles => "ClusterProfile",
            Self::ConfigMaps => "ConfigMap",
            Self::Secrets => "Secret",
        }
    }

    /// `clusterprofiles.multicluster.x-k8s.io`, as the API writes it in messages.
    pub(super) fn qualified(self, singular_or_plural: &str) -> String {
        if self.group().is_empty() {
            singular_or_plural.to_owned()
        } else {
            format!("{singular_or_plural}.{}", self.group())
        }
    }
}

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) collection: Collection,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// `None` for a path that belongs to no collection.
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let (api_version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ((*version).to_owned(), rest),
            ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, plural, name) = match *rest {
            [plural] => (None, plural, None),
            ["namespaces", namespace, plural] => (Some(namespace), plural, None),
            ["namespaces", namespace, plural, name] => (Some(namespace), plural, Some(name)),
            _ => return None,
        };
        let collection = Collection::ALL
            .into_iter()
            .find(|one| one.plural() == plural && one.api_version() == api_version)?;
        Some(Self { collection, namespace, name })
    }
}

/// The answer to `/apis`.
pub(super) fn groups() -> Value {
    let version = json!({"groupVersion": "multicluster.x-k8s.io/v1alpha1", "version": "v1alpha1"});
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
        {"name": GROUP, "versions": [version], "preferredVersion": version},
    ]})
}

/// The answers to `/api/v1` and `/apis/multicluster.x-k8s.io/v1alpha1`.
pub(super) fn resources(api_version: &str) -> Value {
    let verbs = json!(["get", "list", "watch"]);
    let mut resources = Vec::new();
    for one in Collection::ALL.into_iter().filter(|one| one.api_version() == api_version) {
        let short = if one == Collection::ConfigMaps { json!(["cm"]) } else { json!([]) };
        resources.push(json!({
            "name": one.plural(), "singularName": one.kind().to_ascii_lowercase(), "namespaced": true,
            "kind": one.kind(), "shortNames": short, "verbs": verbs,
        }));
    }
    if api_version == "v1" {
        resources.push(json!({
            "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "shortNames": ["po"],
            "verbs": ["get", "list"],
        }));
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources})
}
