//! `CredentialSelector`: which credentials in the cache a request means.

use credbroker_proto::v1::{self as pb, credential_selector};
use tonic::Status;

use super::{convert, status};
use crate::{
    cache::Selector,
    plugin::{ProfileName, ShownKey},
    resolver::Resolver,
};

/// A selector that was checked.
#[derive(Debug, Hash)]
pub(super) enum Selection {
    All,
    Provider(String),
    ClusterProfile(ProfileName),
    Key(ShownKey),
}

impl Selection {
    /// # Errors
    ///
    /// It selects nothing, is not valid, or names a provider that is not configured.
    pub(super) fn read(
        selector: Option<pb::CredentialSelector>,
        resolver: &Resolver,
    ) -> Result<Self, Status> {
        let selector = selector.and_then(|selector| selector.selector);
        Ok(match selector {
            None | Some(credential_selector::Selector::All(false)) => {
                return Err(status::invalid(
                    "`selector` is empty: set `provider`, `cluster_profile`, `key` or `all`",
                ));
            }
            Some(credential_selector::Selector::All(true)) => Self::All,
            Some(credential_selector::Selector::Provider(name)) => {
                resolver.providers().find(&name).map_err(|error| status::unresolved(&error))?;
                Self::Provider(name)
            }
            Some(credential_selector::Selector::ClusterProfile(profile)) => {
                let profile = convert::profile_name(profile, "selector.cluster_profile")?;
                if resolver.fleet().is_none() {
                    return Err(status::no_hub());
                }
                Self::ClusterProfile(profile)
            }
            Some(credential_selector::Selector::Key(key)) => {
                let key = ShownKey::parse(&key).ok_or_else(|| {
                    status::invalid(
                        "`selector.key` must be the `key` of a `CredentialState`: 12 hexadecimal digits",
                    )
                })?;
                Self::Key(key)
            }
        })
    }

    /// The same, for the cache.
    pub(super) fn selector(&self) -> Selector<'_> {
        match self {
            Self::All => Selector::All,
            Self::Provider(name) => Selector::Provider(name),
            Self::ClusterProfile(profile) => Selector::ClusterProfile(profile),
            Self::Key(key) => Selector::Key(*key),
        }
    }
}
