//! The reserved extensions of a profile's cluster.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use serde_json::Value;

use crate::ProfileError;

/// Reserved by client-go: becomes `spec.cluster.config` in `KUBERNETES_EXEC_INFO`.
const CONFIG: &str = "client.authentication.k8s.io/exec";
/// Reserved by KEP-4322.
const ARGS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
/// Reserved by KEP-4322.
const ENVS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

/// The reserved extensions of an object. `null` means absent.
#[derive(Debug, Default)]
pub(super) struct Extensions<'a> {
    config: Option<&'a Value>,
    args: Option<(&'a Value, String)>,
    envs: Option<(&'a Value, String)>,
}

impl<'a> Extensions<'a> {
    /// Finds them in `cluster`, whose path is `at`. Two extensions of the same name are refused, as by client-go.
    pub(super) fn of(cluster: &'a Value, at: &str) -> Result<Self, ProfileError> {
        let at = format!("{at}.extensions");
        let items = match cluster.get("extensions") {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(ProfileError::Malformed { field: at, expected: "a list" }),
        };
        let mut found = Self::default();
        let mut names = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let field = format!("{at}[{index}]");
            let Some(name) = item.get("name").and_then(Value::as_str) else {
                return Err(ProfileError::Malformed { field, expected: "a map with a `name`" });
            };
            if !names.insert(name) {
                return Err(ProfileError::Invalid { field, problem: "has the name of an earlier extension" });
            }
            let value = item.get("extension").filter(|value| !value.is_null());
            let placed = value.map(|value| (value, format!("{field}.extension")));
            match name {
                CONFIG => found.config = value,
                ARGS => found.args = placed,
                ENVS => found.envs = placed,
                _ => {} // for other programs
            }
        }
        Ok(found)
    }

    /// The plugin's `config`, as JSON; empty without one.
    pub(super) fn config(&self) -> Bytes {
        self.config.map(|value| value.to_string().into()).unwrap_or_default()
    }

    /// Arguments for the plugin, and their path: a list of strings, or a map with such a list in `args`, because the
    /// schema of the CRD allows only objects.
    pub(super) fn args(&self) -> Result<(Vec<&'a str>, &str), ProfileError> {
        const EXPECTED: &str = "a list of strings, or a map with such a list in `args`";
        let Some((value, at)) = &self.args else { return Ok((Vec::new(), "")) };
        let wrong = || ProfileError::Malformed { field: at.clone(), expected: EXPECTED };
        let list = match value {
            Value::Array(list) => list,
            Value::Object(map) if map.is_empty() => return Ok((Vec::new(), at)),
            Value::Object(map) if map.len() == 1 => match map.get("args") {
                Some(Value::Array(list)) => list,
                Some(Value::Null) => return Ok((Vec::new(), at)),
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        };
        let args = list.iter().map(|item| item.as_str().ok_or_else(wrong)).collect::<Result<_, _>>()?;
        Ok((args, at))
    }

    /// Variables for the plugin by name, and their path.
    pub(super) fn envs(&self) -> Result<(BTreeMap<&'a str, &'a str>, &str), ProfileError> {
        let Some((value, at)) = &self.envs else { return Ok((BTreeMap::new(), "")) };
        let wrong = || ProfileError::Malformed { field: at.clone(), expected: "a map from names to strings" };
        let map = value.as_object().ok_or_else(wrong)?;
        let text =
            |(name, value): (&'a String, &'a Value)| Ok((name.as_str(), value.as_str().ok_or_else(wrong)?));
        Ok((map.iter().map(text).collect::<Result<_, _>>()?, at))
    }
}
