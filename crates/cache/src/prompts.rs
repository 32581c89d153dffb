//! Which runs may ask a user for something. Pure.
//!
//! A plugin that needs a user prompts in vain without one. So a key whose plugin has needed one gets a single try without a
//! user for each credential, and a key whose prompts are not answered gets no more of them.

use super::rejection::Caller;
use credbroker_plugin::Interactive;

/// Prompts in a row without an answer, after which a user must act.
pub(crate) const UNANSWERED: u8 = 3;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Asker {
    /// No caller: the refresh of a credential.
    Broker,
    /// A caller without a terminal.
    Program,
    /// A caller at a terminal, in which the plugin can run if it `lends` it; `caller`: its [name](super::Caller::id).
    Person { lends: bool, caller: u64 },
    /// The same, who asked for this very run, as with `credbroker login`.
    Login { lends: bool },
}

/// Which users a key needs, as far as that is known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Prompts {
    mode: Interactive,
    /// The plugin tried to use a terminal, which it did not have.
    insists: bool,
    needs_person: bool,
    /// A run without a user has failed since the last credential.
    tried_in_vain: bool,
    unanswered: u8,
}

/// How a run ended, as far as users are concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ending {
    pub result: EndResult,
    /// A user attended it to its end.
    pub is_attended: bool,
    /// It went on after `timeout` because a user attended it, or ran in the terminal of a user.
    pub needed_person: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EndResult {
    Credential,
    /// It wrote something and used up its time.
    Prompt,
    /// It tried to use a terminal.
    NoTerminal,
    Failure,
}

impl Asker {
    /// `caller`, which does not log in.
    pub(crate) fn of(caller: &Caller, lends: bool) -> Self {
        if caller.at_terminal { Self::Person { lends, caller: caller.id() } } else { Self::Program }
    }

    pub(crate) fn lends(self) -> bool {
        matches!(self, Self::Person { lends: true, .. } | Self::Login { lends: true })
    }
}

impl Prompts {
    pub(crate) fn of(mode: Interactive) -> Self {
        Self { mode, ..Self::default() }
    }

    /// The same without what was learned from runs.
    pub(crate) fn forgotten(self) -> Self {
        Self::of(self.mode)
    }

    pub(crate) fn reads_terminal(self) -> bool {
        self.mode == Interactive::Always || (self.mode == Interactive::IfAvailable && self.insists)
    }

    /// Why no run may start for `asker`; `None`: one may.
    pub(crate) fn refusal(self, asker: Asker) -> Option<Unattended> {
        let needs_terminal = match asker {
            // After a login, its refresh is tried once without a user.
            Asker::Broker => self.mode == Interactive::Always && !self.needs_person,
            Asker::Program => self.mode == Interactive::Always,
            Asker::Person { lends, .. } | Asker::Login { lends } => self.reads_terminal() && !lends,
        };
        match asker {
            _ if needs_terminal => Some(Unattended::NeedsTerminal),
            Asker::Login { .. } => None,
            _ if self.unanswered >= UNANSWERED => Some(Unattended::Unanswered),
            Asker::Person { .. } => None,
            Asker::Program | Asker::Broker => {
                (self.needs_person && self.tried_in_vain).then_some(Unattended::NeedsPerson)
            }
        }
    }

    /// Whether something must be remembered.
    pub(crate) fn is_needed(self) -> bool {
        self != self.forgotten()
    }

    #[must_use]
    pub(crate) fn after(self, ending: Ending) -> Self {
        let Ending { result, is_attended, needed_person } = ending;
        let insists = self.insists || result == EndResult::NoTerminal;
        let needs_person = self.needs_person || needed_person;
        if result == EndResult::Credential {
            return Self { insists, needs_person, ..self.forgotten() };
        }
        let unanswered = match (result, is_attended) {
            (EndResult::Prompt, _) => self.unanswered.saturating_add(1),
            // The plugin did not wait to the end: the user answered something.
            (_, true) => 0,
            (_, false) => self.unanswered,
        };
        let tried_in_vain = self.tried_in_vain || (needs_person && !is_attended && !needed_person);
        Self { insists, needs_person, tried_in_vain, unanswered, ..self }
    }
}

/// Why no run starts without a user.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unattended {
    /// The plugin reads from a terminal, and there is none. The first words are client-go's.
    #[error(
        "exec plugin cannot support interactive mode: standard input is unavailable: its plugin reads from a terminal"
    )]
    NeedsTerminal,
    /// The plugin needed a user before, and a run without one has failed.
    #[error("its plugin needs a login: a run without a user has failed")]
    NeedsPerson,
    /// No user answered the last prompts of the plugin.
    #[error("its plugin needs a login: no user answered its last {UNANSWERED} prompts")]
    Unanswered,
}

#[cfg(test)]
mod tests;
