use super::super::*;

fn sent(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn environment(session: Option<&Session>, set: &[&str]) -> String {
    let all = ["HOME", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_AUTH_SOCK", "TERM"];
    let mut environment: BTreeMap<_, _> =
        all.iter().map(|name| (OsString::from(name), OsString::from("own"))).collect();
    Session::put(session, &mut environment, |name| set.contains(&name));
    let shown = environment.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn only_a_caller_beside_the_broker_has_a_session_and_only_of_the_known_variables() {
    let all =
        [("DISPLAY", ":1"), ("BROWSER", "firefox"), ("LD_PRELOAD", "x"), ("PATH", "/x"), ("TERM", "a\0b")];
    assert_eq!(Session::of(sent(&all), Origin::Elsewhere), None);
    let session = Session::of(sent(&all), Origin::Beside).unwrap();
    assert_eq!(session.0.keys().collect::<Vec<_>>(), ["BROWSER", "DISPLAY"]);
    let long = "x".repeat(LONGEST + 1);
    assert_eq!(Session::of(sent(&[("DISPLAY", &long), ("HOME", "/")]), Origin::Beside), None);
}

#[test]
fn a_bus_address_names_no_program() {
    let kept =
        |address: &str| Session::of(sent(&[("DBUS_SESSION_BUS_ADDRESS", address)]), Origin::Beside).is_some();
    for address in [
        "unix:path=/run/user/1000/bus",
        "unix:abstract=/tmp/dbus-1,guid=00;tcp:host=localhost,port=1",
        "unix:path=/run/user/1000/bus;",
        "launchd:env=DBUS_LAUNCHD_SESSION_BUS_SOCKET",
    ] {
        assert!(kept(address), "{address}");
    }
    for address in [
        "unixexec:path=/tmp/x",
        "unix:path=/none;unixexec:path=/tmp/x,argv1=y",
        ";unixexec:path=/tmp/x",
        " unixexec:path=/tmp/x",
        "UNIXEXEC:path=/tmp/x",
        "autolaunch:",
        "/tmp/x",
    ] {
        assert!(!kept(address), "{address}");
    }
}

#[test]
fn without_a_session_no_screen_is_left_even_if_the_stanza_names_it() {
    assert_eq!(environment(None, &[]), "HOME=own SSH_AUTH_SOCK=own TERM=own");
    assert_eq!(environment(None, &["BROWSER"]), "HOME=own SSH_AUTH_SOCK=own TERM=own");
}

#[test]
fn a_session_replaces_the_brokers_and_the_stanza_replaces_both() {
    let pairs = [("DISPLAY", ":1"), ("BROWSER", "firefox"), ("SSH_AUTH_SOCK", "/agent")];
    let session = Session::of(sent(&pairs), Origin::Beside).unwrap();
    assert_eq!(
        environment(Some(&session), &["BROWSER", "HOME"]),
        "BROWSER=own DISPLAY=:1 HOME=own SSH_AUTH_SOCK=/agent TERM=own"
    );
}

#[test]
fn debug_shows_no_value() {
    let session = Session::of(sent(&[("DISPLAY", "canary")]), Origin::Beside);
    let shown = format!("{session:?}");
    assert!(shown.contains("DISPLAY") && !shown.contains("canary"), "{shown}");
}
