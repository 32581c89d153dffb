//! `CredentialSelector`: which credentials in the cache a request selects.

use std::sync::Arc;

use credbroker_proto::v1::{self as pb, credential_selector::Selector as Selected};
use tonic::Status;

use super::{convert, overview::is_about, status};
use credbroker_cache::{CredentialCache, Selector};
use credbroker_fleet::resolver::{Resolver, Source};
use credbroker_plugin::{
    ProviderRef, ResolveError,
    access::{Permit, Rights, Verb},
};
use credbroker_runner::PluginRunner;

/// Number of keys that are read from the cache at a time.
const BATCH: usize = 512;

/// The part of `selector` that `rights` allow to administer.
pub(super) fn administered<R: PluginRunner>(
    selector: Selector,
    cache: &CredentialCache<R>,
    rights: &Rights,
) -> Selector {
    if !rights.is_limited() {
        return selector;
    }
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let batch = cache.list(&selector, after.as_ref(), BATCH);
        let Some(last) = batch.last() else { return Selector::Keys(keys.into()) };
        after = Some(last.position());
        let allowed = batch.iter().filter(|held| is_about(rights, Verb::Admin, &held.spec));
        keys.extend(allowed.map(|held| held.spec.key));
    }
}

/// Reads a selector that must be set.
///
/// # Errors
///
/// The selector is empty or not valid, it names a provider or a hub that is not configured, or `permit` does not allow
/// what it names.
pub(super) fn selector(
    message: Option<pb::CredentialSelector>,
    resolver: &Resolver,
    permit: &Permit,
) -> Result<Selector, Status> {
    let allowed = |source: &Source| {
        let allowed = if permit.allows(source.target()) { Ok(()) } else { Err(source.not_allowed()) };
        allowed.map_err(|error| status::unresolved(&error, source))
    };
    let providers = resolver.providers();
    let known = |name: &str| {
        let source = Source::Provider(ProviderRef::named(name));
        allowed(&source)?;
        let hidden = |error| if permit.hides_unknown() { source.not_allowed() } else { error };
        providers.find(name).map_err(|error| status::unresolved(&hidden(error), &source))
    };
    Ok(match message.and_then(|message| message.selector) {
        None | Some(Selected::All(false)) => {
            return Err(status::invalid(
                "`selector` is empty: set `provider`, `definition`, `cluster_profile`, `key` or `all`",
            ));
        }
        Some(Selected::All(true)) => Selector::All,
        Some(Selected::Provider(name)) => Selector::Provider(Arc::clone(&known(&name)?.name)),
        Some(Selected::Definition(wanted)) => {
            let provider = Arc::clone(&known(&wanted.name)?.name);
            let pb::ProviderRef { name, definition: Some(definition) } = wanted else {
                return Err(status::invalid("`selector.definition.definition` is empty"));
            };
            let wanted = ProviderRef { name, definition: Some(definition.clone()) };
            let entry = providers.entry(&wanted).map(drop);
            entry.map_err(|error| status::unresolved(&error, &Source::Provider(wanted)))?;
            Selector::Definition { provider, definition: definition.into() }
        }
        Some(Selected::ClusterProfile(profile)) => {
            let profile = convert::profile_name(profile, "selector.cluster_profile")?;
            let source = Source::ClusterProfile(profile.clone());
            allowed(&source)?;
            if resolver.fleet().is_none() {
                let error = ResolveError::UnknownProfile { profile, is_configured: false };
                return Err(status::unresolved(&error, &source));
            }
            Selector::ClusterProfile(profile)
        }
        Some(Selected::Key(key)) => Selector::Key(
            key.parse().map_err(|error| status::invalid(&format!("`selector.key` is not valid: {error}")))?,
        ),
    })
}
