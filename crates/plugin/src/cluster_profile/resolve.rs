//! The whole resolution of one profile.

use std::sync::Arc;

use super::{
    access::{Choice, Skipped, choose},
    endpoint::{EndpointRules, endpoint},
    extensions::Extensions,
    profile::{AccessProvider, ClusterProfile},
    sourced::additions,
};
use crate::{ProfileError, Provider};
use credbroker_credential::{Cluster, text::shown};

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
    let Choice { chosen, skipped } = choose(configured, listed);
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
    let additions = additions(&extensions, provider)?;
    let configured = Arc::clone(provider);
    let provider = match (additions.args, additions.env) {
        (None, None) => Arc::clone(&configured),
        (args, env) => {
            let mut own = Provider::clone(&configured);
            own.args = args.unwrap_or(own.args);
            own.env = env.unwrap_or(own.env);
            Arc::new(own)
        }
    };
    Ok(Resolution { provider, configured, endpoint: Arc::new(endpoint), warnings })
}
