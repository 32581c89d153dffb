//! What the extensions of a profile may add to its provider's invocation.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    profile::ProfileError,
    provider::{EnvPolicy, ProfileSourced, Provider},
    variables::is_denied_to_profiles,
};
use credbroker_credential::text::shown;

/// Reserved by client-go: becomes `spec.cluster.config` in `KUBERNETES_EXEC_INFO`.
const CONFIG: &str = "client.authentication.k8s.io/exec";
/// Reserved by KEP-4322, as the next one is.
const ARGS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
const ENVS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

/// The reserved extensions of an object. `null` means absent.
#[derive(Debug, Default)]
pub(super) struct Extensions<'a> {
    config: Option<&'a Value>,
    args: Option<Extension<'a>>,
    envs: Option<Extension<'a>>,
}

#[derive(Debug)]
struct Extension<'a> {
    value: &'a Value,
    at: String,
}

impl<'a> Extensions<'a> {
    /// Finds them in `cluster`, whose path is `at`. Two extensions of the same name are refused, as by client-go.
    pub(super) fn of(cluster: &'a Value, at: &str) -> Result<Self, ProfileError> {
        let at = format!("{at}.extensions");
        let items = match cluster.get("extensions") {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(items) => items.as_array().ok_or_else(|| ProfileError::at(&at, "must be a list"))?,
        };
        let (mut found, mut names) = (Self::default(), HashSet::new());
        for (index, item) in items.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let Some(name) = item.get("name").and_then(Value::as_str) else {
                return Err(ProfileError::at(&at, "must be a map with a `name`"));
            };
            if !names.insert(name) {
                return Err(ProfileError::at(&at, "has the name of an earlier extension"));
            }
            let Some(value) = item.get("extension").filter(|value| !value.is_null()) else { continue };
            let at = format!("{at}.extension");
            match name {
                CONFIG => found.config = Some(value),
                ARGS => found.args = Some(Extension { value, at }),
                ENVS => found.envs = Some(Extension { value, at }),
                _ => {} // for other programs
            }
        }
        Ok(found)
    }

    /// The plugin's `config`, as JSON; empty without one.
    pub(super) fn config(&self) -> Bytes {
        self.config.map(|value| value.to_string().into()).unwrap_or_default()
    }

    /// `provider` with what they add: a new value, unless they add nothing. What its policies ignore is not even looked at.
    pub(super) fn extend(&self, provider: &Arc<Provider>) -> Result<Arc<Provider>, ProfileError> {
        let ProfileSourced { args, env } = provider.profile_sourced.unwrap_or_default();
        let args = self.args.as_ref().filter(|_| args);
        let args = args.map(Extension::args).transpose()?.unwrap_or_default();
        let envs = self.envs.as_ref().filter(|_| env != EnvPolicy::Ignore);
        let mut variables = envs.map(|envs| envs.variables(provider)).transpose()?.unwrap_or_default();
        if env == EnvPolicy::AppendIfNotExists {
            provider.env.iter().for_each(|(set, _)| drop(variables.remove(set)));
        }
        if args.is_empty() && variables.is_empty() {
            return Ok(Arc::clone(provider));
        }
        let mut extended = Provider::clone(provider);
        extended.args.extend(args);
        // Each name once: which of two values a process uses depends on how it reads them.
        extended.env.retain(|(name, _)| !variables.contains_key(name));
        extended.env.extend(variables);
        Ok(Arc::new(extended))
    }
}

/// Maximum number of arguments or of variables that a profile adds, and of their bytes in total.
const ITEMS: usize = 64;
const BYTES: usize = 32 << 10;

impl Extension<'_> {
    /// Arguments for the plugin: a list of strings, or a map with it in `args`: the CRD's schema allows only objects.
    fn args(&self) -> Result<Vec<String>, ProfileError> {
        let list = match self.value {
            Value::Object(map) if map.keys().all(|key| key == "args") => match map.get("args") {
                None | Some(Value::Null) => return Ok(Vec::new()),
                Some(list) => list,
            },
            other => other,
        };
        let texts = |list: &Vec<Value>| list.iter().map(text).collect::<Option<Vec<_>>>();
        let args = list.as_array().and_then(texts);
        let args =
            args.ok_or_else(|| self.wrong("must be a list of strings, or a map with such a list in `args`"))?;
        self.check_size(args.iter().map(String::len))?;
        if args.iter().any(|arg| !is_one_line(arg)) {
            return Err(self.wrong("contains an argument with a line break or a NUL"));
        }
        Ok(args)
    }

    fn variables(&self, provider: &Provider) -> Result<BTreeMap<String, String>, ProfileError> {
        let texts = |map: &Map<String, Value>| {
            map.iter()
                .map(|(name, value)| Some((name.clone(), text(value)?)))
                .collect::<Option<BTreeMap<_, _>>>()
        };
        let variables = self.value.as_object().and_then(texts);
        let variables = variables.ok_or_else(|| self.wrong("must be a map from names to strings"))?;
        self.check_size(variables.iter().map(|(name, value)| name.len() + value.len()))?;
        for (name, value) in &variables {
            if name.is_empty() || name.contains('=') || !is_one_line(name) || !is_one_line(value) {
                let problem =
                    "contains a variable with an empty name, a `=` in its name, a line break or a NUL";
                return Err(self.wrong(problem));
            }
            let refused = if is_denied_to_profiles(name, value) {
                "a ClusterProfile may not set under any policy; set it in the provider's `env`".to_owned()
            } else if !provider.profile_env.matches(name) {
                format!("provider `{}` does not allow; add it to the provider's `profileEnv`", provider.name)
            } else {
                continue;
            };
            return Err(self.wrong(&format!("sets `{}`, which {refused}", shown(name))));
        }
        Ok(variables)
    }

    fn check_size(&self, sizes: impl ExactSizeIterator<Item = usize>) -> Result<(), ProfileError> {
        if sizes.len() > ITEMS {
            return Err(self.wrong("has more than 64 items"));
        }
        if sizes.sum::<usize>() > BYTES {
            return Err(self.wrong("has more than 32 KiB"));
        }
        Ok(())
    }

    fn wrong(&self, problem: &str) -> ProfileError {
        ProfileError::at(&self.at, problem)
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn is_one_line(text: &str) -> bool {
    !text.contains(['\0', '\n', '\r'])
}
