//! One access rule: the peers that it is for, and what it allows them.

use std::{path::PathBuf, sync::Arc};

use super::{
    principal::Principal,
    verb::{Verb, Verbs},
};
use crate::{Globs, ProfileName};

/// One rule of the configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Name of the rule, for messages and audit records.
    pub name: Arc<str>,
    /// The peers that it is for.
    pub peers: Peers,
    /// What it allows them.
    pub allow: Grant,
}

/// Selects peers. A peer must be in every list that is not empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Peers {
    /// Uids.
    pub uids: Vec<u32>,
    /// Gids, of the process or supplementary.
    pub gids: Vec<u32>,
    /// Paths of executables.
    pub executables: Vec<PathBuf>,
    /// Names of listeners.
    pub listeners: Vec<String>,
}

impl Peers {
    /// Whether the selection includes `principal`. An identity that is not known is in no list, and a peer without a uid
    /// in none at all.
    pub fn include(&self, principal: &Principal) -> bool {
        let Some(uid) = principal.uid else { return false };
        let has_group =
            |gid: &u32| principal.gid == Some(*gid) || principal.process.facts().groups.contains(gid);
        let executable = || principal.process.facts().executable.as_deref();
        let is_named = !self.is_empty();
        is_named
            && (self.uids.is_empty() || self.uids.contains(&uid))
            && (self.listeners.is_empty() || self.listeners.iter().any(|name| **name == *principal.listener))
            && (self.gids.is_empty() || self.gids.iter().any(has_group))
            && (self.executables.is_empty() || self.executables.iter().any(|path| executable() == Some(path)))
    }

    /// Whether no list has an item: such a selection includes no peer.
    pub fn is_empty(&self) -> bool {
        self.uids.is_empty()
            && self.gids.is_empty()
            && self.executables.is_empty()
            && self.listeners.is_empty()
    }
}

/// What a rule allows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grant {
    /// Names of providers.
    pub providers: Globs,
    /// Names of ClusterProfiles.
    pub cluster_profiles: ProfileGlobs,
    /// Verbs.
    pub verbs: Verbs,
}

/// What a call is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallTarget<'a> {
    /// A provider, by its name.
    Provider(&'a str),
    /// A ClusterProfile, by its name, and the provider that it leads to. `None`: not known yet, or it leads to none.
    Profile(&'a ProfileName, Option<&'a str>),
    /// A provider by its name, and the ClusterProfile whose run the caller's cluster leads to.
    Through(&'a str, &'a ProfileName),
}

impl Grant {
    /// Whether the grant allows `verb` for `target`. If it names both providers and ClusterProfiles, a run for a
    /// ClusterProfile must be covered by both lists.
    pub fn covers(&self, verb: Verb, target: CallTarget<'_>) -> bool {
        let (providers, profiles) = (&self.providers, &self.cluster_profiles);
        self.verbs.allows(verb)
            && match target {
                CallTarget::Provider(name) => providers.matches(name),
                CallTarget::Profile(profile, provider) => {
                    let provider =
                        provider.is_none_or(|name| providers.is_empty() || providers.matches(name));
                    profiles.match_name(profile) && provider
                }
                CallTarget::Through(name, profile) => {
                    providers.matches(name) && (profiles.is_empty() || profiles.match_name(profile))
                }
            }
    }
}

/// Patterns for the names of ClusterProfiles. They are taken apart once, because requests must not allocate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProfileGlobs(Vec<(Globs, Globs)>);

impl ProfileGlobs {
    /// Patterns of the form `NAMESPACE/NAME`, in which `*` matches any text, or `*` for all.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Self {
        let parts = |pattern: &'a str| pattern.split_once('/').unwrap_or((pattern, "*"));
        let globs = patterns.into_iter().map(parts);
        Self(globs.map(|(namespace, name)| (Globs::new([namespace]), Globs::new([name]))).collect())
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern covers `profile`.
    pub fn match_name(&self, profile: &ProfileName) -> bool {
        let covers = |(namespace, name): &(Globs, Globs)| {
            namespace.matches(&profile.namespace) && name.matches(&profile.name)
        };
        self.0.iter().any(covers)
    }
}
