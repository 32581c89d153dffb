use std::{io, time::Duration};

use super::*;
use crate::schedule::words::Throttling;
use credbroker_credential::DecodeError;

#[test]
fn only_the_stderr_of_failed_runs_shows_that_the_issuer_throttles() {
    let command = || Arc::<str>::from("429"); // names mean nothing
    let stderr = || Arc::<str>::from("HTTP 429");
    let after = |retry_after| Outcome::Throttled(Throttling { retry_after });
    let (long, second) = (Duration::from_secs(30), Duration::from_secs(1));
    for (error, expected) in [
        (RunError::Exit { command: command(), code: 1, stderr: stderr() }, after(None)),
        (RunError::Signal { command: command(), signal: 9, stderr: stderr() }, after(None)),
        (
            RunError::Timeout {
                command: command(),
                limit: long,
                key: "timeout",
                stderr: "Retry-After: 1".into(),
            },
            after(Some(second)),
        ),
        (RunError::Exit { command: command(), code: 429, stderr: "no".into() }, Outcome::Reached),
        (RunError::Decode { command: command(), source: DecodeError::Empty }, Outcome::Reached),
        (RunError::OutputTooLarge { command: command(), limit: 429 }, Outcome::Reached),
        (
            RunError::NotFound { command: command(), install_hint: Some("429".into()), place: "" },
            Outcome::Unknown,
        ),
        (
            RunError::Spawn { command: command(), cause: Arc::new(io::ErrorKind::NotFound.into()) },
            Outcome::Unknown,
        ),
    ] {
        assert_eq!(outcome::<()>(&Err(error.clone()), ForeignTexts::default), expected, "{error}");
    }
    assert_eq!(outcome(&Ok(()), ForeignTexts::default), Outcome::Success);
}
