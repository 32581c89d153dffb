//! The fields of a `ClusterProfile` object.

use std::collections::HashSet;

use serde_json::Value;

use crate::{ProfileError, ProfileName};

/// The fields that the broker keeps: those that `ListClusters` shows, and the access providers.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterProfile {
    /// Its namespace and name in the hub.
    pub name: ProfileName,
    /// `spec.displayName`; may be empty.
    pub display_name: String,
    /// `spec.clusterManager.name`; may be empty.
    pub cluster_manager: String,
    /// `status.version.kubernetes`; may be empty.
    pub kubernetes_version: String,
    /// `status.properties`: names and values.
    pub properties: Vec<(String, String)>,
    /// `status.accessProviders`, then those of the deprecated `status.credentialProviders` that it does not name.
    pub access: Result<Vec<AccessProvider>, ProfileError>,
}

/// An access provider of a profile: the name of a provider of credentials, and the endpoint. The endpoint is checked only
/// if this provider is chosen: mistakes in other entries have no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessProvider {
    /// Its name.
    pub name: String,
    /// It is listed in `credentialProviders`.
    pub deprecated: bool,
    /// `cluster`, in the form of a kubeconfig's.
    pub(super) cluster: Value,
}

impl ClusterProfile {
    /// Reads the `spec` and `status` of an object. Fields that are only shown to people may be missing or malformed.
    pub fn read(name: ProfileName, spec: &Value, status: &Value) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let properties = status.get("properties").and_then(Value::as_array).map(Vec::as_slice);
        let property = |item: &Value| {
            let name = item.get("name")?.as_str()?.to_owned();
            Some((name, text(item.get("value"))))
        };
        Self {
            name,
            display_name: text(spec.get("displayName")),
            cluster_manager: text(spec.pointer("/clusterManager/name")),
            kubernetes_version: text(status.pointer("/version/kubernetes")),
            properties: properties.unwrap_or_default().iter().filter_map(property).collect(),
            access: access(status),
        }
    }
}

/// `accessProviders` wins over an entry of the same name in `credentialProviders`, the older name of the same list.
fn access(status: &Value) -> Result<Vec<AccessProvider>, ProfileError> {
    let mut all = listed(status, "accessProviders", false)?;
    let older = listed(status, "credentialProviders", true)?;
    let newer: HashSet<_> = all.iter().map(|newer| newer.name.clone()).collect();
    all.extend(older.into_iter().filter(|older| !newer.contains(&older.name)));
    Ok(all)
}

fn listed(status: &Value, list: &'static str, deprecated: bool) -> Result<Vec<AccessProvider>, ProfileError> {
    let wrong = |field, expected| ProfileError::Malformed { field, expected };
    let items = match status.get(list) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(wrong(format!("status.{list}"), "a list")),
    };
    let (mut found, mut names) = (Vec::new(), HashSet::new());
    for (index, item) in items.iter().enumerate() {
        let at = || format!("status.{list}[{index}]");
        let item = item.as_object().ok_or_else(|| wrong(at(), "a map"))?;
        let name = item.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong(at(), "a map with a `name`"))?;
        if name.is_empty() {
            continue; // the schema of the CRD allows it, and no provider has that name
        }
        if !names.insert(name) {
            return Err(ProfileError::Repeated { provider: name.to_owned(), list });
        }
        let cluster = item.get("cluster").cloned().unwrap_or_default();
        found.push(AccessProvider { name: name.to_owned(), deprecated, cluster });
    }
    Ok(found)
}
