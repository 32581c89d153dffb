//! `CredentialSelector`: which credentials in the cache a request selects.

use std::sync::Arc;

use credbroker_proto::v1::{self as pb, credential_selector};
use tonic::Status;

use super::{convert, status};
use crate::{cache::Selector, resolver::Resolver};

/// Reads a selector that must be set.
///
/// # Errors
///
/// The selector is empty or not valid, or it names a provider or a hub that is not configured.
pub(super) fn selector(
    message: Option<pb::CredentialSelector>,
    resolver: &Resolver,
) -> Result<Selector, Status> {
    Ok(match message.and_then(|message| message.selector) {
        None | Some(credential_selector::Selector::All(false)) => {
            return Err(status::invalid(
                "`selector` is empty: set `provider`, `cluster_profile`, `key` or `all`",
            ));
        }
        Some(credential_selector::Selector::All(true)) => Selector::All,
        Some(credential_selector::Selector::Provider(name)) => {
            let providers = resolver.providers();
            let provider = providers.find(&name).map_err(|error| status::unresolved(&error))?;
            Selector::Provider(Arc::clone(&provider.name))
        }
        Some(credential_selector::Selector::ClusterProfile(profile)) => {
            let profile = convert::profile_name(profile, "selector.cluster_profile")?;
            if resolver.fleet().is_none() {
                return Err(status::no_hub());
            }
            Selector::ClusterProfile(profile)
        }
        Some(credential_selector::Selector::Key(key)) => {
            let key = key
                .parse()
                .map_err(|error| status::invalid(&format!("`selector.key` is not valid: {error}")))?;
            Selector::Key(key)
        }
    })
}
