//! Access rules: which peer may request which credentials. Pure.
//!
//! A [`Policy`] has the rules of the configuration. It gives [`Rights`] to a [`Principal`], and a [`Permit`] carries these
//! rights, with the verb of one call, to the resolver.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{environment::Origin, profile::ProfileName};
use credbroker_proto::Globs;

const ROOT: u32 = 0;

/// The access rules of one configuration. Immutable: a reload makes a new policy.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Arc<Rule>>,
    /// Distinguishes this policy from all others of the process.
    number: u64,
}

impl Policy {
    /// A policy of these rules. Without a rule, the broker's own user and root have every right. With rules, everyone has
    /// the rights of the rules for them and no others.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let rules = rules.into_iter().map(Arc::new).collect();
        Self { rules, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The rights of `principal`.
    pub fn rights(&self, principal: &Principal) -> Rights {
        if self.rules.is_empty() && principal.is_owner && principal.uid.is_some() {
            return Rights::all();
        }
        let mut view = DefaultHasher::new();
        self.number.hash(&mut view);
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| rule.peers.include(principal));
        let rules = rules.inspect(|(number, _)| number.hash(&mut view)).map(|(_, rule)| Arc::clone(rule));
        Rights { rules: Some(rules.collect()), view: view.finish().max(1) }
    }

    /// Whether these are the rules of the policy.
    pub fn is_of(&self, rules: &[Rule]) -> bool {
        self.rules.len() == rules.len() && self.rules.iter().zip(rules).all(|(own, rule)| **own == *rule)
    }

    /// Whether no other user than `own` and root can get a credential of the provider.
    pub fn is_alone(&self, own: u32, provider: &str) -> bool {
        let includes_others = |rule: &Rule| {
            let uids = &rule.peers.uids;
            uids.is_empty() || uids.iter().any(|uid| ![own, ROOT].contains(uid))
        };
        let gives = |rule: &Rule| {
            let verbs = [Verb::Get, Verb::Watch, Verb::Report, Verb::Proxy];
            verbs.into_iter().any(|verb| rule.allow.covers(verb, CallTarget::Provider(provider)))
        };
        !self.rules.iter().any(|rule| includes_others(rule) && gives(rule))
    }

    /// Whether there is a rule.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }
}

/// The rights of one peer under one policy. Computed once for each connection and policy.
#[derive(Clone, Debug)]
pub struct Rights {
    /// The rules that are for the peer. `None`: it has every right.
    rules: Option<Box<[Arc<Rule>]>>,
    /// Identifies what the peer can see: equal numbers, equal views. 0 is a view of everything.
    pub view: u64,
}

impl Rights {
    /// Every right.
    pub fn all() -> Self {
        Self { rules: None, view: 0 }
    }

    /// Whether the peer may do `verb` with `target`.
    pub fn allows(&self, verb: Verb, target: CallTarget<'_>) -> bool {
        self.rules.is_none() || self.rule(verb, target).is_some()
    }

    /// Whether the peer has any right to `target` at the broker.
    pub fn reach(&self, target: CallTarget<'_>) -> bool {
        Verb::OF_CALLS.into_iter().any(|verb| self.allows(verb, target))
    }

    /// Whether the peer may do `verb` with anything.
    pub fn has(&self, verb: Verb) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.allow.includes(verb)))
    }

    /// Whether the peer has no right at all at the broker. Who may only use targets through the proxy has none.
    pub fn is_empty(&self) -> bool {
        !Verb::OF_CALLS.into_iter().any(|verb| self.has(verb))
    }

    /// Whether rules limit the peer. Then what does not exist must look like what is forbidden.
    pub fn is_limited(&self) -> bool {
        self.rules.is_some()
    }

    /// The first rule that allows `verb` for `target`. `None`: no rule is needed, or none allows it.
    pub fn rule(&self, verb: Verb, target: CallTarget<'_>) -> Option<&Rule> {
        self.rules.as_ref()?.iter().map(AsRef::as_ref).find(|rule: &&Rule| rule.allow.covers(verb, target))
    }
}

/// The rights of a caller, and the verb of its call. The default, for the broker's own requests, allows everything.
#[derive(Clone, Debug, Default)]
pub struct Permit(Option<(Arc<Rights>, Verb)>);

impl Permit {
    /// A permit for one call.
    pub fn new(rights: Arc<Rights>, verb: Verb) -> Self {
        Self(Some((rights, verb)))
    }

    /// Whether the call may be about `target`.
    pub fn allows(&self, target: CallTarget<'_>) -> bool {
        self.0.as_ref().is_none_or(|(rights, verb)| rights.allows(*verb, target))
    }

    /// Whether what does not exist must look like what is forbidden.
    pub fn hides_unknown(&self) -> bool {
        self.0.as_ref().is_some_and(|(rights, _)| rights.is_limited())
    }

    /// Whether these are its rights.
    pub fn is_of(&self, rights: &Arc<Rights>) -> bool {
        self.0.as_ref().is_none_or(|(own, _)| Arc::ptr_eq(own, rights))
    }

    /// The same verb with other rights.
    #[must_use]
    pub fn with(&self, rights: Arc<Rights>) -> Self {
        Self(self.0.as_ref().map(|(_, verb)| (rights, *verb)))
    }
}

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
    /// Whether it includes `principal`. What is not known of a peer is in no list, and a peer without a uid in none at all.
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
    pub verbs: Vec<Verb>,
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
    /// Whether the grant includes `verb`. `admin` includes `list`: who may evict a credential must be able to find it.
    fn includes(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb) || (verb == Verb::List && self.verbs.contains(&Verb::Admin))
    }

    /// Whether the grant allows `verb` for `target`. If it has both lists, a run for a ClusterProfile must be in both.
    pub fn covers(&self, verb: Verb, target: CallTarget<'_>) -> bool {
        let (providers, profiles) = (&self.providers, &self.cluster_profiles);
        self.includes(verb)
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

/// One kind of call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verb {
    /// `GetCredential`.
    Get,
    /// `WatchCredential`.
    Watch,
    /// `ReportRejected`.
    Report,
    /// The calls that list clusters, credentials and providers, and `GetBrokerInfo`.
    List,
    /// `AttendCredential`, for callers that are not the broker's own user.
    Login,
    /// `RefreshCredentials` and `EvictCredentials`, and all that [`List`](Self::List) allows.
    Admin,
    /// Requests through the proxy. No call of the broker needs it, so it gives no credential to read.
    Proxy,
}

impl Verb {
    /// The verbs that calls of the broker need.
    const OF_CALLS: [Self; 6] = [Self::Get, Self::Watch, Self::Report, Self::List, Self::Login, Self::Admin];

    /// The name of the verb in the configuration and in audit records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Watch => "watch",
            Self::Report => "report",
            Self::List => "list",
            Self::Login => "login",
            Self::Admin => "admin",
            Self::Proxy => "proxy",
        }
    }
}

/// The identity of a peer: the one that the kernel recorded when it connected.
#[derive(Debug, Default)]
pub struct Principal {
    /// Its uid; `None` if the kernel cannot map it to a user of the broker's user namespace.
    pub uid: Option<u32>,
    /// Its gid; `None` as for `uid`.
    pub gid: Option<u32>,
    /// The process that connected.
    pub process: Process,
    /// Name of the listener that accepted the connection.
    pub listener: Arc<str>,
    /// Whether it is the broker's own user or root, who are served if there is no rule.
    pub is_owner: bool,
}

/// Facts about the process of a peer, read when something needs them: that takes longer than the answer to a call.
#[derive(Debug)]
pub struct Process(LazyLock<Facts, Box<dyn FnOnce() -> Facts + Send>>);

/// What can be learned about the process of a peer. The default is a process of which nothing is known.
#[derive(Debug, Default)]
pub struct Facts {
    /// Its supplementary groups; empty if they are not known, as for a process of another PID namespace.
    pub groups: Box<[u32]>,
    /// Path of its executable; `None` if the broker may not read it.
    pub executable: Option<Box<Path>>,
    /// Where it runs.
    pub origin: Origin,
}

impl Process {
    /// A process whose facts `read` returns.
    pub fn new(read: impl FnOnce() -> Facts + Send + 'static) -> Self {
        Self(LazyLock::new(Box::new(read)))
    }

    /// The facts. The first call reads them.
    pub fn facts(&self) -> &Facts {
        &self.0
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new(Facts::default)
    }
}

#[cfg(test)]
mod tests;
