//! Which runs may ask a person for something. Pure.
//!
//! A plugin that needs a person prompts in vain when there is no person. So a key whose plugin has needed one gets a single
//! try without a person for each credential, and a key whose prompts are not answered gets no more of them. A plugin that
//! reads from a terminal runs in that of a person.

use crate::plugin::Interactive;

/// Prompts in a row without an answer, after which a person must act.
pub(crate) const UNANSWERED: u8 = 3;

/// For whom a run starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Asker {
    /// No caller: the refresh of a credential.
    Broker,
    /// A caller without a terminal.
    Program,
    /// A caller at a terminal.
    Person {
        /// It can run the plugin in that terminal.
        lends: bool,
    },
    /// A person who asked for this very run, as with `credbroker login`.
    Login {
        /// As in [`Person`](Self::Person).
        lends: bool,
    },
}

/// What is known about the persons that a key needs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Attention {
    /// What the stanza says.
    mode: Interactive,
    /// The plugin tried to use a terminal, which it did not have.
    insists: bool,
    /// A run needed a person.
    needs_person: bool,
    /// A run without a person has failed since the last credential.
    tried_in_vain: bool,
    /// Prompts in a row that were not answered.
    unanswered: u8,
}

/// How a run ended, as far as persons are concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ending {
    pub(crate) result: EndResult,
    /// A person attended it to its end.
    pub(crate) is_attended: bool,
    /// It went on after `timeout` because a person attended it, or ran in the terminal of a person.
    pub(crate) needed_person: bool,
}

/// What a run brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EndResult {
    Credential,
    /// Nothing: it wrote something and used up its time.
    Prompt,
    /// Nothing: it tried to use a terminal.
    NoTerminal,
    /// Nothing: it failed in another way.
    Failure,
}

impl Asker {
    /// Whether the plugin can run in its terminal.
    pub(crate) fn lends(self) -> bool {
        matches!(self, Self::Person { lends: true } | Self::Login { lends: true })
    }
}

impl Attention {
    /// That of a new key.
    pub(crate) fn of(mode: Interactive) -> Self {
        Self { mode, ..Self::default() }
    }

    /// The same without what was learned from runs.
    pub(crate) fn forgotten(self) -> Self {
        Self::of(self.mode)
    }

    /// Whether the plugin reads from a terminal.
    pub(crate) fn reads_terminal(self) -> bool {
        self.mode == Interactive::Always || (self.mode == Interactive::IfAvailable && self.insists)
    }

    /// Why no run may start for `asker`; `None`: one may.
    pub(crate) fn refusal(self, asker: Asker) -> Option<Unattended> {
        let is_unanswered = self.unanswered >= UNANSWERED;
        let needs_terminal = match asker {
            // After a login, its renewal is tried once without a person.
            Asker::Broker => self.mode == Interactive::Always && !self.needs_person,
            Asker::Program => self.mode == Interactive::Always,
            Asker::Person { lends } | Asker::Login { lends } => self.reads_terminal() && !lends,
        };
        match asker {
            _ if needs_terminal => Some(Unattended::NeedsTerminal),
            Asker::Login { .. } => None,
            _ if is_unanswered => Some(Unattended::Unanswered),
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

    /// What is known after a run.
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
            // The plugin did not wait to the end: the person answered something.
            (_, true) => 0,
            (_, false) => self.unanswered,
        };
        let tried_in_vain = self.tried_in_vain || (needs_person && !is_attended && !needed_person);
        Self { insists, needs_person, tried_in_vain, unanswered, ..self }
    }
}

/// Why no run starts without a person.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unattended {
    /// The plugin reads from a terminal, and there is none. The first words are client-go's.
    #[error(
        "exec plugin cannot support interactive mode: standard input is unavailable: its plugin reads from a terminal"
    )]
    NeedsTerminal,
    /// The plugin needed a person before, and a run without one has failed.
    #[error("its plugin needs a login: a run without a person has failed")]
    NeedsPerson,
    /// No person answered the last prompts of the plugin.
    #[error("its plugin needs a login: no person answered its last {UNANSWERED} prompts")]
    Unanswered,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKERS: [(&str, Asker); 6] = [
        ("Broker", Asker::Broker),
        ("Program", Asker::Program),
        ("Person", Asker::Person { lends: false }),
        ("Login", Asker::Login { lends: false }),
        ("lending", Asker::Person { lends: true }),
        ("lending-login", Asker::Login { lends: true }),
    ];
    const SUCCESS: Ending =
        Ending { result: EndResult::Credential, is_attended: false, needed_person: false };
    const LOGIN: Ending = Ending { is_attended: true, needed_person: true, ..SUCCESS };
    const FAILURE: Ending = Ending { result: EndResult::Failure, ..SUCCESS };
    const PROMPT: Ending = Ending { result: EndResult::Prompt, ..FAILURE };
    const LEFT: Ending = Ending { needed_person: true, ..PROMPT };
    const INSISTS: Ending = Ending { result: EndResult::NoTerminal, ..SUCCESS };
    const REFUSED: Ending = Ending { is_attended: true, ..FAILURE };

    /// Who may start a run after these endings.
    fn may(endings: &[Ending]) -> String {
        let may = who_may(Interactive::IfAvailable, endings);
        // Without a terminal that the plugin needs, it makes no difference whether it could run there.
        may.strip_suffix(" lending lending-login").or(may.strip_suffix(" lending-login")).unwrap().to_owned()
    }

    fn who_may(mode: Interactive, endings: &[Ending]) -> String {
        let attention = endings.iter().fold(Attention::of(mode), |known, ending| known.after(*ending));
        let may = ASKERS.iter().filter(|(_, asker)| attention.refusal(*asker).is_none());
        may.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_key_without_prompts_is_tried_as_often_as_it_fails() {
        assert_eq!(may(&[]), "Broker Program Person Login");
        assert_eq!(may(&[FAILURE; 10]), "Broker Program Person Login");
        assert_eq!(may(&[SUCCESS, FAILURE, FAILURE]), "Broker Program Person Login");
    }

    #[test]
    fn a_key_that_needed_a_person_gets_one_try_without_one_for_each_credential() {
        assert_eq!(may(&[LOGIN]), "Broker Program Person Login");
        assert_eq!(may(&[LOGIN, SUCCESS]), "Broker Program Person Login");
        for failed in [FAILURE, PROMPT] {
            assert_eq!(may(&[LOGIN, failed]), "Person Login");
            assert_eq!(may(&[LOGIN, SUCCESS, failed]), "Person Login");
            assert_eq!(may(&[LOGIN, failed, LOGIN]), "Broker Program Person Login");
        }
        assert_eq!(may(&[LOGIN, FAILURE, REFUSED]), "Person Login", "the person did not log in");
        assert_eq!(may(&[LEFT]), "Broker Program Person Login", "there is one try");
        assert_eq!(may(&[LEFT, FAILURE]), "Person Login");
    }

    #[test]
    fn after_three_prompts_without_an_answer_a_person_must_act() {
        assert_eq!(may(&[PROMPT, PROMPT]), "Broker Program Person Login");
        for third in [PROMPT, LEFT, Ending { is_attended: true, ..LEFT }] {
            assert_eq!(may(&[PROMPT, PROMPT, third]), "Login");
        }
        assert_eq!(may(&[PROMPT, FAILURE, PROMPT, FAILURE, PROMPT]), "Login", "a failure does not answer");
        assert_eq!(may(&[PROMPT, PROMPT, REFUSED, PROMPT, PROMPT]), "Broker Program Person Login");
        assert_eq!(may(&[PROMPT, PROMPT, PROMPT, LEFT]), "Login", "nor is a login that is left");
        assert_eq!(may(&[PROMPT, PROMPT, PROMPT, SUCCESS]), "Broker Program Person Login");
    }

    #[test]
    fn a_plugin_that_reads_a_terminal_runs_in_that_of_a_person() {
        const UNATTENDED: Ending = FAILURE;
        let always = |endings: &[Ending]| who_may(Interactive::Always, endings);
        assert_eq!(always(&[]), "lending lending-login");
        assert_eq!(always(&[REFUSED]), "lending lending-login", "a wrong password");
        assert_eq!(always(&[LOGIN]), "Broker lending lending-login", "one try to renew it without a person");
        assert_eq!(always(&[LOGIN, UNATTENDED]), "lending lending-login");
        assert_eq!(always(&[LOGIN, UNATTENDED, LOGIN]), "Broker lending lending-login");
        assert_eq!(always(&[LEFT, LEFT, LEFT]), "lending-login", "prompts without an answer");

        let available = |endings: &[Ending]| who_may(Interactive::IfAvailable, endings);
        assert_eq!(available(&[]), "Broker Program Person Login lending lending-login");
        assert_eq!(available(&[INSISTS]), "Broker Program lending lending-login");
        assert_eq!(available(&[INSISTS, LOGIN]), "Broker Program lending lending-login");
        assert_eq!(available(&[INSISTS, LOGIN, INSISTS]), "lending lending-login");
        let never = |endings: &[Ending]| who_may(Interactive::Never, endings);
        assert_eq!(never(&[INSISTS]), never(&[]), "the stanza says that it reads none");
    }

    #[test]
    fn an_eviction_forgets_what_was_learned_and_not_what_the_stanza_says() {
        for mode in [Interactive::Never, Interactive::IfAvailable, Interactive::Always] {
            let known = Attention::of(mode).after(INSISTS).after(LOGIN);
            assert!(known.is_needed() && !Attention::of(mode).is_needed());
            assert_eq!(known.forgotten(), Attention::of(mode));
        }
    }

    #[test]
    fn what_must_be_remembered_is_what_differs_from_the_begin() {
        assert!(!Attention::default().is_needed() && !Attention::default().after(SUCCESS).is_needed());
        assert!(Attention::default().after(PROMPT).is_needed());
        assert!(Attention::default().after(LOGIN).is_needed());
    }
}
