use super::*;

const USER: &str = "/run/user/1000/credbroker/credbroker.sock";

fn located(
    flag: Option<&str>,
    variable: Option<&str>,
    runtime_directory: Option<&str>,
    is_root: bool,
) -> String {
    let sources = SocketSources::new()
        .flag(flag.map(OsStr::new))
        .variable(variable.map(OsStr::new))
        .runtime_directory(runtime_directory.map(OsStr::new))
        .is_root(is_root);
    Socket::locate(&sources).map_or_else(|error| error.to_string(), |socket| socket.to_string())
}

#[test]
fn the_flag_wins_over_the_variable_and_the_variable_over_the_places() {
    let runtime = Some("/run/user/1000");
    let both = format!("{USER} or {}", Socket::SYSTEM);
    for (flag, variable, runtime, is_root, expected) in [
        (Some("/flag"), Some("/variable"), runtime, false, "/flag"),
        (Some("unix:///flag"), None, None, false, "/flag"),
        (Some("here.sock"), None, None, false, "here.sock"),
        (None, Some("/variable"), runtime, false, "/variable"),
        (None, Some("unix:/variable"), runtime, false, "/variable"),
        (None, Some(""), runtime, false, both.as_str()),
        (None, None, runtime, false, both.as_str()),
        (None, None, runtime, true, Socket::SYSTEM),
        (None, None, None, false, Socket::SYSTEM),
        (None, None, Some("run"), false, Socket::SYSTEM),
    ] {
        assert_eq!(located(flag, variable, runtime, is_root), expected, "{flag:?} {variable:?}");
    }
}

#[test]
fn an_invalid_address_is_refused_with_its_origin() {
    for text in ["", "unix://", "unix://relative/path", "unix:relative", "tcp://127.0.0.1:80", "/", ".."] {
        let message = located(Some(text), None, None, false);
        assert!(message.starts_with("--socket is"), "{text:?}: {message}");
    }
    assert!(located(None, Some("http://x"), None, false).starts_with("CREDBROKER_SOCKET is"));
}
#[test]
fn the_uid_of_the_server_is_that_of_the_flag_else_of_the_variable() {
    let expected = |flag: Option<&str>, variable: Option<&str>| {
        let sources = SocketSources::new()
            .broker_uid_flag(flag.map(OsStr::new))
            .broker_uid_variable(variable.map(OsStr::new));
        Socket::locate(&sources).map(|socket| socket.expected_server()).map_err(|error| error.to_string())
    };
    assert_eq!(expected(Some("1000"), Some("2")), Ok(Some(1000)));
    assert_eq!(expected(None, Some("0")), Ok(Some(0)));
    assert_eq!(expected(None, Some("")), Ok(None));
    assert_eq!(expected(None, None), Ok(None));
    for wrong in ["", "-1", "+1", "root", "4294967295", "4294967296", "1.0", " 1"] {
        let error = expected(Some(wrong), None).unwrap_err();
        assert!(error.starts_with("--broker-uid is") && error.contains("not a valid uid"), "{error}");
    }
    assert!(expected(None, Some("x")).unwrap_err().starts_with("CREDBROKER_BROKER_UID is"));
}
