//! Resolves a `ClusterProfile` object to one plugin invocation, according to KEP-4322 (multi-cluster access by exec
//! plugins). Pure.
//!
//! A profile lists access providers for its cluster, each with an endpoint; the broker's configuration has the plugin of
//! each provider. A resolution is a new value and never changes the configuration, so one profile cannot affect another.

mod additions;
mod object;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{additions::Extensions, object::endpoint};
use crate::{profile::ProfileError, provider::Provider};
use credbroker_credential::{Cluster, text::shown};

pub use self::object::{AccessProvider, ClusterProfile, EndpointRules};

/// What a profile resolves to.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The chosen provider, or a copy of it with the additions of the profile.
    pub provider: Arc<Provider>,
    /// The chosen provider.
    pub configured: Arc<Provider>,
    /// The cluster, which a plugin with `provideClusterInfo` receives.
    pub endpoint: Arc<Cluster>,
    /// Problems that do not make the profile unusable.
    pub warnings: Vec<String>,
}

/// Resolves `profile` against `configured`, in the configuration's order. The second part has the other
/// providers and why each was not chosen, also if there is an error.
pub fn resolve(
    profile: &ClusterProfile,
    configured: &[Arc<Provider>],
    rules: EndpointRules,
) -> (Result<Resolution, ProfileError>, Vec<Skipped>) {
    let listed = match &profile.access {
        Ok(access) => access,
        Err(error) => return (Err(error.clone()), Vec::new()),
    };
    let (chosen, skipped) = choose(configured, listed);
    let resolution = match chosen {
        Some((provider, access)) => invocation(provider, access, rules),
        None => Err(ProfileError::NoMatch {
            profile: listed.iter().map(|access| access.name.clone()).collect(),
            configured: configured.iter().map(|provider| provider.name.to_string()).collect(),
        }),
    };
    (resolution, skipped)
}

fn invocation(
    provider: &Arc<Provider>,
    access: &AccessProvider,
    rules: EndpointRules,
) -> Result<Resolution, ProfileError> {
    let at = format!("access provider `{}`: cluster", shown(&access.name));
    let mut warnings = Vec::new();
    if access.deprecated {
        warnings.push(format!(
            "provider `{}` is listed in status.credentialProviders, which is deprecated",
            provider.name
        ));
    }
    let mut endpoint = endpoint(&access.cluster, &at, rules)?;
    if endpoint.insecure_skip_tls_verify {
        warnings.push(
            "has `insecure-skip-tls-verify: true`: any server at its address gets the credential".to_owned(),
        );
    }
    let extensions = Extensions::of(&access.cluster, &at)?;
    endpoint.config = extensions.config();
    if !endpoint.config.is_empty() && !provider.provide_cluster_info {
        warnings.push(format!(
            "the `client.authentication.k8s.io/exec` extension does not reach the plugin: provider `{}` has `provideClusterInfo: false`",
            provider.name
        ));
    }
    let (provider, configured) = (extensions.extend(provider)?, Arc::clone(provider));
    Ok(Resolution { provider, configured, endpoint: Arc::new(endpoint), warnings })
}

/// Maximum number of unknown providers that are reported: a profile can list any number.
const FOREIGN: usize = 50;

/// A provider that was not chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why not.
    pub reason: String,
}

/// The first of `configured`, in the configuration's order, that is among `listed`, with its entry there; and all other
/// providers: those of the configuration in its order, then those that only the profile lists. The order of the profile
/// means nothing: the configuration belongs to the operator of the broker, and the profile to another party.
fn choose<'a>(
    configured: &'a [Arc<Provider>],
    listed: &'a [AccessProvider],
) -> (Option<(&'a Arc<Provider>, &'a AccessProvider)>, Vec<Skipped>) {
    let (mut chosen, mut skipped) = (None, Vec::new());
    for provider in configured {
        let entry = listed.iter().find(|entry| entry.name == *provider.name);
        let reason = match (entry, chosen) {
            (Some(entry), None) => {
                chosen = Some((provider, entry));
                continue;
            }
            (Some(_), Some((first, _))) => format!("comes after `{}` in the configuration", first.name),
            (None, _) => "not listed by the profile".to_owned(),
        };
        skipped.push(Skipped { name: provider.name.to_string(), reason });
    }
    let is_ours = |entry: &&AccessProvider| configured.iter().any(|provider| *provider.name == *entry.name);
    let foreign = listed.iter().filter(|entry| !is_ours(entry)).take(FOREIGN).map(|entry| shown(&entry.name));
    skipped.extend(foreign.map(|name| Skipped { name, reason: "not configured here".to_owned() }));
    (chosen, skipped)
}
