//! What the extensions of a profile may add to its provider's invocation.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::Value;

use crate::{
    profile::ProfileError,
    provider::{ArgsPolicy, EnvPolicy, ProfileSourced, Provider},
    variables::is_denied_to_profiles,
};

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

/// Maximum number of arguments or of variables that a profile adds, and of their bytes in total.
const ITEMS: usize = 64;
const BYTES: usize = 32 << 10;

/// `provider` with what `extensions` add: a new value, unless they add nothing. What its policies ignore is not even looked
/// at.
pub(super) fn extended(
    extensions: &Extensions<'_>,
    provider: &Arc<Provider>,
) -> Result<Arc<Provider>, ProfileError> {
    let sourced = provider.profile_sourced.unwrap_or_default();
    let args = sourced.args(extensions, &provider.args)?;
    let env = sourced.env(extensions, provider)?;
    if args.is_none() && env.is_none() {
        return Ok(Arc::clone(provider));
    }
    let mut extended = Provider::clone(provider);
    extended.args = args.unwrap_or(extended.args);
    extended.env = env.unwrap_or(extended.env);
    Ok(Arc::new(extended))
}

impl ProfileSourced {
    fn args(self, extensions: &Extensions<'_>, args: &[String]) -> Result<Option<Vec<String>>, ProfileError> {
        if self.args == ArgsPolicy::Ignore {
            return Ok(None);
        }
        let (added, at) = extensions.args()?;
        bounded(added.iter().map(|arg| arg.len()), at)?;
        if added.iter().any(|arg| !is_one_line(arg)) {
            return Err(invalid(at, "holds an argument with a line break or a NUL"));
        }
        let all = args.iter().cloned().chain(added.iter().map(|arg| (*arg).to_owned()));
        Ok((!added.is_empty()).then(|| all.collect()))
    }

    fn env(
        self,
        extensions: &Extensions<'_>,
        provider: &Provider,
    ) -> Result<Option<Vec<(String, String)>>, ProfileError> {
        let env = &provider.env;
        if self.env == EnvPolicy::Ignore {
            return Ok(None);
        }
        let (added, at) = extensions.envs()?;
        bounded(added.iter().map(|(name, value)| name.len() + value.len()), at)?;
        for (name, value) in &added {
            if name.is_empty() || name.contains('=') || !is_one_line(name) || !is_one_line(value) {
                let problem = "holds a variable with an empty name, a `=` in its name, a line break or a NUL";
                return Err(invalid(at, problem));
            }
            if is_denied_to_profiles(name, value) {
                let (field, variable) = (at.to_owned(), (*name).to_owned());
                return Err(ProfileError::VariableDenied { field, variable });
            }
            if !provider.profile_env.matches(name) {
                let (field, variable) = (at.to_owned(), (*name).to_owned());
                let provider = Arc::clone(&provider.name);
                return Err(ProfileError::VariableNotAllowed { field, provider, variable });
            }
        }
        let set = |name: &str| env.iter().any(|(set, _)| set == name);
        let wins = |name: &str| self.env == EnvPolicy::Replace || !set(name);
        let added: Vec<_> = added.into_iter().filter(|(name, _)| wins(name)).collect();
        if added.is_empty() {
            return Ok(None);
        }
        // Each name once: which of two values a process uses depends on how it reads them.
        let kept =
            env.iter().filter(|(name, _)| !added.iter().any(|(replaced, _)| replaced == name)).cloned();
        let added = added.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Ok(Some(kept.chain(added).collect()))
    }
}

fn bounded(sizes: impl ExactSizeIterator<Item = usize>, at: &str) -> Result<(), ProfileError> {
    if sizes.len() > ITEMS {
        return Err(invalid(at, "has more than 64 items"));
    }
    if sizes.sum::<usize>() > BYTES {
        return Err(invalid(at, "has more than 32 KiB"));
    }
    Ok(())
}

fn is_one_line(text: &str) -> bool {
    !text.contains(['\0', '\n', '\r'])
}

fn invalid(at: &str, problem: &'static str) -> ProfileError {
    ProfileError::Invalid { field: at.to_owned(), problem }
}
