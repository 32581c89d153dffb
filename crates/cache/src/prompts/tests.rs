use super::*;

const ASKERS: [(&str, Asker); 6] = [
    ("Broker", Asker::Broker),
    ("Program", Asker::Program),
    ("Person", Asker::Person { lends: false, caller: 7 }),
    ("Login", Asker::Login { lends: false }),
    ("lending", Asker::Person { lends: true, caller: 7 }),
    ("lending-login", Asker::Login { lends: true }),
];
const SUCCESS: Ending = Ending { result: EndResult::Credential, is_attended: false, needed_person: false };
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
    let prompts = endings.iter().fold(Prompts::of(mode), |known, ending| known.after(*ending));
    let may = ASKERS.iter().filter(|(_, asker)| prompts.refusal(*asker).is_none());
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
    assert_eq!(may(&[LOGIN, FAILURE, REFUSED]), "Person Login", "the user did not log in");
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
    assert_eq!(always(&[LOGIN]), "Broker lending lending-login", "one try to refresh it without a user");
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
        let known = Prompts::of(mode).after(INSISTS).after(LOGIN);
        assert!(known.is_needed() && !Prompts::of(mode).is_needed());
        assert_eq!(known.forgotten(), Prompts::of(mode));
    }
}

#[test]
fn what_must_be_remembered_is_what_differs_from_the_begin() {
    assert!(!Prompts::default().is_needed() && !Prompts::default().after(SUCCESS).is_needed());
    assert!(Prompts::default().after(PROMPT).is_needed());
    assert!(Prompts::default().after(LOGIN).is_needed());
}
