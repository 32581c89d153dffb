//! Resolves a `ClusterProfile` object to one run of a plugin, according to KEP-4322. Pure.
//!
//! A profile lists access providers for its cluster, each with an endpoint; the broker's configuration has the plugin of
//! each provider. A resolution is a new value and never changes the configuration, so one profile cannot affect another.

mod additions;
mod object;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{additions::Extensions, object::endpoint};
use crate::{
    profile::{ProfileError, ProfileName},
    provider::Provider,
    spec::Target,
};
use credbroker_credential::text::shown;

pub use self::object::{AccessProvider, ClusterProfile, EndpointRules};

/// What a profile resolves to.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The run that it leads to, or why it leads to none.
    pub outcome: Result<Arc<Target>, ProfileError>,
    /// The other providers, and why each was not chosen.
    pub skipped: Vec<Skipped>,
    /// Problems that do not make the profile unusable.
    pub warnings: Vec<String>,
}

/// Resolves `profile` against `configured`, in the configuration's order.
pub fn resolve(profile: &ClusterProfile, configured: &[Arc<Provider>], rules: EndpointRules) -> Resolution {
    let (mut skipped, mut warnings) = (Vec::new(), Vec::new());
    let outcome = profile.access.as_ref().map_err(ProfileError::clone).and_then(|listed| {
        let (chosen, others) = choose(configured, listed);
        skipped = others;
        let (provider, access) = chosen.ok_or_else(|| {
            let configured = configured.iter().map(|provider| provider.name.to_string());
            let listed = listed.iter().map(|access| access.name.clone());
            ProfileError::NoMatch(listed.collect(), configured.collect())
        })?;
        let (target, problems) = target(&profile.name, provider, access, rules)?;
        warnings = problems;
        Ok(Arc::new(target))
    });
    Resolution { outcome, skipped, warnings }
}

/// The run of `provider` for the profile, and problems that do not make it unusable.
fn target(
    profile: &ProfileName,
    provider: &Arc<Provider>,
    access: &AccessProvider,
    rules: EndpointRules,
) -> Result<(Target, Vec<String>), ProfileError> {
    let at = format!("access provider `{}`: cluster", shown(&access.name));
    let mut endpoint = endpoint(&access.cluster, &at, rules)?;
    let extensions = Extensions::of(&access.cluster, &at)?;
    endpoint.config = extensions.config();
    let name = &provider.name;
    let problems = [
        access.deprecated.then(|| {
            format!("provider `{name}` is listed in status.credentialProviders, which is deprecated")
        }),
        endpoint.insecure_skip_tls_verify.then(|| {
            "has `insecure-skip-tls-verify: true`: any server at its address gets the credential".to_owned()
        }),
        (!endpoint.config.is_empty() && !provider.provide_cluster_info).then(|| {
            format!("the `client.authentication.k8s.io/exec` extension does not reach the plugin: provider `{name}` has `provideClusterInfo: false`")
        }),
    ];
    let (run, configured) = (extensions.extend(provider)?, Arc::clone(provider));
    let target = Target::new(profile.clone(), run, configured, Arc::new(endpoint));
    Ok((target, problems.into_iter().flatten().collect()))
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
