//! Which runs may ask a person for something. Pure.
//!
//! A plugin that needs a person prompts in vain when there is no person. So a key whose plugin has needed one gets a single
//! try without a person for each credential, and a key whose prompts are not answered gets no more of them.

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
    Person,
    /// A person who asked for this very run, as with `credbroker login`.
    Login,
}

/// What is known about the persons that a key needs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Attention {
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
    /// It went on after `timeout`, because a person attended it.
    pub(crate) has_overrun: bool,
}

/// What a run brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EndResult {
    Credential,
    /// Nothing: it wrote something and used up its time.
    Prompt,
    /// Nothing: it failed in another way.
    Failure,
}

impl Attention {
    /// Why no run may start for `asker`; `None`: one may.
    pub(crate) fn refusal(self, asker: Asker) -> Option<Unattended> {
        let is_unanswered = self.unanswered >= UNANSWERED;
        match asker {
            Asker::Login => None,
            _ if is_unanswered => Some(Unattended::Unanswered),
            Asker::Person => None,
            Asker::Program | Asker::Broker => {
                (self.needs_person && self.tried_in_vain).then_some(Unattended::NeedsPerson)
            }
        }
    }

    /// Whether something must be remembered.
    pub(crate) fn is_needed(self) -> bool {
        self != Self::default()
    }

    /// What is known after a run.
    #[must_use]
    pub(crate) fn after(self, ending: Ending) -> Self {
        let Ending { result, is_attended, has_overrun } = ending;
        let needs_person = self.needs_person || has_overrun;
        if result == EndResult::Credential {
            return Self { needs_person, ..Self::default() };
        }
        let unanswered = match (result, is_attended) {
            (EndResult::Prompt, _) => self.unanswered.saturating_add(1),
            // The plugin did not wait to the end: the person answered something.
            (_, true) => 0,
            (_, false) => self.unanswered,
        };
        let tried_in_vain = self.tried_in_vain || (needs_person && !is_attended && !has_overrun);
        Self { needs_person, tried_in_vain, unanswered }
    }
}

/// Why no run starts without a person.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unattended {
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

    const ASKERS: [Asker; 4] = [Asker::Broker, Asker::Program, Asker::Person, Asker::Login];
    const SUCCESS: Ending = Ending { result: EndResult::Credential, is_attended: false, has_overrun: false };
    const LOGIN: Ending = Ending { is_attended: true, has_overrun: true, ..SUCCESS };
    const FAILURE: Ending = Ending { result: EndResult::Failure, ..SUCCESS };
    const PROMPT: Ending = Ending { result: EndResult::Prompt, ..FAILURE };
    const LEFT: Ending = Ending { has_overrun: true, ..PROMPT };
    const REFUSED: Ending = Ending { is_attended: true, ..FAILURE };

    /// Who may start a run after these endings.
    fn may(endings: &[Ending]) -> String {
        let attention =
            endings.iter().fold(Attention::default(), |attention, ending| attention.after(*ending));
        let may = ASKERS.iter().filter(|asker| attention.refusal(**asker).is_none());
        may.map(|asker| format!("{asker:?}")).collect::<Vec<_>>().join(" ")
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
    fn what_must_be_remembered_is_what_differs_from_the_begin() {
        assert!(!Attention::default().is_needed() && !Attention::default().after(SUCCESS).is_needed());
        assert!(Attention::default().after(PROMPT).is_needed());
        assert!(Attention::default().after(LOGIN).is_needed());
    }
}
