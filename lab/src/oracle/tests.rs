use credbroker_client::{Code, Failure};
use credbroker_proto::v1;

use super::*;

const KEY: usize = 7;

fn oracle() -> Oracle {
    Oracle::new("n0nce".to_owned())
}

fn token(run: u64, expires_in: i64) -> Token {
    let now = now();
    Token {
        nonce: "n0nce".to_owned(),
        provider: token::provider(KEY),
        profile: token::profile(KEY),
        run,
        started: now,
        expires: now.saturating_add_signed(expires_in),
    }
}

fn credential(token: &impl ToString) -> Credential {
    let message = v1::Credential { token: Some(token.to_string()), ..v1::Credential::default() };
    message.try_into().unwrap()
}

fn failure(reason: Option<Reason>) -> Error {
    let mut failure = Failure::new(Code::Unavailable, "no");
    failure.reason = reason;
    failure.into()
}

/// Judges one answer after another, and returns the number of wrong answers and of failures with a valid credential.
fn judged(oracle: &Oracle, answers: impl IntoIterator<Item = Result<Credential, Error>>) -> (u64, u64) {
    for answer in answers {
        oracle.judge(&oracle.ask(KEY), &answer);
    }
    (oracle.counts().wrong, oracle.counts().failed_while_valid)
}

#[test]
fn tokens_are_read_as_they_are_written() {
    let token = token(3, 1000);
    assert_eq!(Token::read(&token.to_string()), Some(token.clone()));
    for text in ["", "a.b.c.1.2", &format!("{token}.4"), &format!("{token}x")] {
        assert_eq!(Token::read(text), None, "{text}");
    }
}

#[test]
fn valid_tokens_are_right() {
    let answers = [token(1, 20_000), token(1, 20_000), token(2, 30_000)].map(|token| Ok(credential(&token)));
    assert_eq!(judged(&oracle(), answers), (0, 0));
}

#[test]
fn tokens_of_others_and_expired_and_older_ones_are_wrong() {
    let other = |change: fn(&mut Token)| {
        let mut token = token(1, 20_000);
        change(&mut token);
        [Ok(credential(&token))]
    };
    assert_eq!(judged(&oracle(), [Ok(credential(&"secret"))]), (1, 0));
    assert_eq!(judged(&oracle(), other(|token| token.nonce.push('x'))), (1, 0));
    assert_eq!(judged(&oracle(), other(|token| token.profile = token::profile(KEY + 5))), (1, 0));
    assert_eq!(judged(&oracle(), other(|token| token.provider = token::provider(KEY + 1))), (1, 0));
    assert_eq!(judged(&oracle(), other(|token| token.expires = now() - 1)), (1, 0));
    let older = [token(2, 20_000), token(1, 20_000)].map(|token| Ok(credential(&token)));
    assert_eq!(judged(&oracle(), older), (1, 0));
}

#[test]
fn a_failure_is_a_violation_while_a_received_credential_is_valid() {
    let fails = || [Err(failure(Some(Reason::PluginExit)))];
    let held = oracle();
    assert_eq!(judged(&held, [Ok(credential(&token(1, 20_000)))]), (0, 0));
    held.judge_report(&held.ask(KEY), &Err(failure(Some(Reason::PluginExit))));
    assert_eq!(judged(&held, fails()), (0, 1));
    assert_eq!(judged(&oracle(), fails()), (0, 0));
    assert_eq!(judged(&oracle(), [Err(failure(None))]), (1, 0), "no fault leads to it");
}

#[test]
fn an_eviction_permits_failures_and_forbids_its_tokens() {
    let oracle = oracle();
    let evicted = token(1, 20_000);
    let before = oracle.ask(KEY);
    oracle.judge(&before, &Ok(credential(&evicted)));
    std::thread::sleep(std::time::Duration::from_millis(2));
    let began = oracle.begin_eviction([KEY].into_iter());
    oracle.judge(&before, &Ok(credential(&evicted)));
    assert_eq!(judged(&oracle, [Err(failure(Some(Reason::PluginTimeout)))]), (0, 0));
    assert_eq!(judged(&oracle, [Ok(credential(&evicted))]), (0, 0), "the eviction has not ended");
    oracle.end_eviction([KEY].into_iter(), began);
    assert_eq!(judged(&oracle, [Err(failure(Some(Reason::PluginTimeout)))]), (0, 0));
    assert_eq!(judged(&oracle, [Ok(credential(&evicted))]), (1, 0));
    assert_eq!(judged(&oracle, [Ok(credential(&token(2, 20_000)))]), (1, 0));
}

#[test]
fn a_watch_ends_for_an_eviction_and_not_without_one() {
    let oracle = oracle();
    let asked = oracle.ask(KEY);
    let judged = || {
        oracle.judge_withdrawal(&asked);
        oracle.counts().wrong
    };
    assert_eq!(judged(), 1);
    let began = oracle.begin_eviction([KEY].into_iter());
    assert_eq!(judged(), 1);
    oracle.end_eviction([KEY].into_iter(), began);
    assert_eq!(judged(), 1);
    let later = oracle.ask(KEY);
    oracle.judge_withdrawal(&later);
    assert_eq!(oracle.counts().wrong, 2, "that eviction was before");
}
