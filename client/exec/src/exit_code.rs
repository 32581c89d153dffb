//! The exit codes of the shim and the command line for errors of the broker.

use credbroker_client::{Code, Error, Reason};

/// The exit code for an error with this reason.
pub const fn exit_code(reason: Reason) -> u8 {
    match reason {
        // The broker is shutting down, which counts as no broker.
        Reason::Draining => 69,
        // The plugin has not finished in time. Another request later can succeed.
        Reason::RunPending => 75,
        Reason::PeerDenied => 77,
        _ => 1,
    }
}

/// The exit code for the error of a call.
pub(crate) fn of_call(error: &Error) -> u8 {
    match error {
        Error::Failed(failure) => match failure.reason {
            Some(reason) => exit_code(reason),
            None if failure.code == Code::PermissionDenied => 77,
            None => 1,
        },
        Error::Untrusted { .. } => 77,
        Error::Unreachable { .. } => 69,
        Error::Timeout { .. } => 75,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use credbroker_client::Failure;

    use super::*;

    #[test]
    fn every_reason_has_its_exit_code() {
        let other = [(Reason::Draining, 69), (Reason::PeerDenied, 77), (Reason::RunPending, 75)];
        for reason in Reason::all() {
            let expected = other.iter().find(|(known, _)| *known == reason).map_or(1, |(_, code)| *code);
            assert_eq!(exit_code(reason), expected, "{reason:?}");
        }
    }

    #[test]
    fn a_denial_without_a_reason_is_77() {
        let code = |code: Code| of_call(&Failure::new(code, "no").into());
        assert_eq!([code(Code::PermissionDenied), code(Code::Unavailable)], [77, 1]);
    }
}
