//! What a rule allows a peer to do.

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
}

impl Verb {
    pub(super) const ALL: [Self; 6] =
        [Self::Get, Self::Watch, Self::Report, Self::List, Self::Login, Self::Admin];

    /// The name of the verb in the configuration and in audit records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Watch => "watch",
            Self::Report => "report",
            Self::List => "list",
            Self::Login => "login",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verbs(u8);

impl Verbs {
    /// Whether the set allows `verb`. `admin` includes `list`: who may evict a credential must be able to find it.
    pub const fn allows(self, verb: Verb) -> bool {
        let including = match verb {
            Verb::List => Verb::List.bit() | Verb::Admin.bit(),
            other => other.bit(),
        };
        self.0 & including != 0
    }

    /// Whether `verb` itself is in the set.
    pub const fn names(self, verb: Verb) -> bool {
        self.0 & verb.bit() != 0
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(verbs.into_iter().fold(0, |set, verb| set | verb.bit()))
    }
}
