//! What is said about the next run.

use super::{
    super::{
        super::prompts::{EndResult, Ending},
        *,
    },
    FILE, after, current, secs, state, usage,
};

/// Lives 100 s and is due after 75 s, as in the tests of the policy.
#[test]
fn the_cause_is_the_first_that_applies() {
    use RunCause::{BackOff, InProgress, NextRequest, NotInUse, RefreshPoint, Watched};
    // (credential held?, failure held until, a run in flight?, seconds since the fetch, idle, watched) → cause, time
    let table = [
        (true, None, false, 70, 25, false, RefreshPoint, Some(secs(5))),
        (true, None, false, 70, 300, true, RefreshPoint, Some(secs(5))),
        (true, None, false, 80, 80, false, RefreshPoint, Some(secs(0))),
        (true, None, false, 70, 96, false, NotInUse, Some(secs(5))),
        (true, None, false, 80, 101, false, NotInUse, Some(secs(0))),
        (true, None, true, 80, 0, true, InProgress, None),
        (true, Some(90), false, 80, 0, false, BackOff, Some(secs(10))),
        (true, Some(74), false, 70, 0, false, RefreshPoint, Some(secs(5))),
        (true, Some(110), false, 80, 90, false, NotInUse, Some(secs(30))),
        (false, None, true, 0, 0, false, InProgress, None),
        (false, None, false, 0, 0, true, Watched, Some(secs(0))),
        (false, Some(5), false, 2, 0, true, BackOff, Some(secs(3))),
        (false, None, false, 0, 0, false, NextRequest, Some(secs(0))),
        (false, Some(5), false, 2, 0, false, NextRequest, Some(secs(3))),
        (true, None, false, 100, 0, false, NextRequest, Some(secs(0))),
    ];
    for (held, retry_at, running, at, idle, watched, cause, wait) in table {
        let (state, usage) = (state(held.then(current), retry_at, running), usage(idle, watched));
        let row = format!("held {held}, failure {retry_at:?}, running {running}, at {at}, idle {idle}");
        assert_eq!(outlook(&state, usage, None, after(at)), (cause, wait), "{row}");
        // What is said is what the maintenance does.
        let starts = matches!(next_action(&state, usage, after(at)), NextAction::Refresh(_));
        let says = !matches!(cause, NotInUse | NextRequest) && wait == Some(Duration::ZERO);
        assert_eq!(starts, says, "{row}");
        if !matches!(cause, NotInUse | NextRequest) {
            assert_eq!(next_refresh(&state, usage, after(at)), wait, "{row}");
        }
    }
}

#[test]
fn a_pause_of_the_issuer_counts_if_it_ends_later() {
    let outlook = |paused| outlook(&state(Some(current()), None, false), usage(0, true), paused, after(70));
    assert_eq!(outlook(Some(secs(4))), (RunCause::RefreshPoint, Some(secs(5))));
    assert_eq!(outlook(Some(secs(6))), (RunCause::IssuerPaused, Some(secs(6))));
}

#[test]
fn another_file_of_the_plugin_is_a_cause_and_so_is_the_same_credential_again() {
    let mut state = state(Some(current()), None, false);
    let replaced = Usage { file: FILE + 1, ..usage(0, true) };
    assert_eq!(outlook(&state, replaced, None, after(10)), (RunCause::PluginChanged, Some(secs(0))));
    state.current = Some(current().again(secs(10), after(80), FILE));
    assert_eq!(outlook(&state, usage(0, true), None, after(82)), (RunCause::SameCredential, Some(secs(8))));
}

#[test]
fn without_a_person_the_cause_is_what_the_person_must_do() {
    let overrun = Ending { result: EndResult::Credential, is_attended: true, needed_person: true };
    let failed = Ending { result: EndResult::Failure, is_attended: false, needed_person: false };
    let prompt = Ending { result: EndResult::Prompt, ..failed };
    let cause = |endings: &[Ending]| {
        let mut state = state(Some(current()), Some(0), false);
        state.prompts = endings.iter().fold(Prompts::default(), |prompts, ending| prompts.after(*ending));
        outlook(&state, usage(0, true), Some(secs(5)), after(80))
    };
    assert_eq!(cause(&[overrun, failed]), (RunCause::UserNeeded, None));
    assert_eq!(cause(&[prompt; 3]), (RunCause::LoginNeeded, None));
    assert_eq!(cause(&[overrun]), (RunCause::IssuerPaused, Some(secs(5))), "one try without a user");
    let mut state = state(None, None, false);
    state.prompts = Prompts::of(credbroker_plugin::Interactive::Always);
    assert_eq!(outlook(&state, usage(0, true), None, after(80)), (RunCause::UserNeeded, None), "never");
}
