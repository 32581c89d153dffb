mod session;

use std::os::unix::ffi::OsStringExt;

use super::*;
use crate::identity_variables;

fn names(env: &Environment) -> Vec<String> {
    env.0.keys().map(|name| name.to_string_lossy().into_owned()).collect()
}

fn of(names: &[&str]) -> Environment {
    names.iter().map(|name| (*name, "value")).collect()
}

#[test]
fn a_base_directory_is_an_absolute_path_or_in_the_home() {
    let of = |variables: &[(&str, &str)]| {
        let environment: Environment = variables.iter().copied().collect();
        environment.base_directory("XDG_CONFIG_HOME", ".config")
    };
    assert_eq!(of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]), Some("/c".into()));
    for set in ["", "relative"] {
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", set)]), Some("/h/.config".into()));
    }
    assert_eq!(of(&[("HOME", "")]), None);
}

#[test]
fn a_plugin_gets_the_standing_list_and_what_pass_env_names() {
    let broker = of(&["PATH", "LC_ALL", "https_proxy", "KUBERNETES_SERVICE_HOST", "SSH_AUTH_SOCK", "MY_A"]);
    let inherited = broker.inherited(&Globs::new(["MY_*"]), &Globs::default());
    assert_eq!(names(&inherited), ["KUBERNETES_SERVICE_HOST", "LC_ALL", "MY_A", "PATH", "https_proxy"]);
}

#[test]
fn the_identity_of_the_broker_reaches_no_plugin() {
    let broker = of(&["AWS_PROFILE", "KRB5CCNAME", "CLOUDSDK_CONFIG", "HOME", "EDITOR"]);
    let inherited = broker.inherited(&Globs::new(["*"]), &identity_variables());
    assert_eq!(names(&inherited), ["EDITOR", "HOME"]);
}

#[test]
fn denied_names_reach_no_plugin_even_if_listed() {
    let all = [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "LISTEN_FDS",
        "LISTEN_PID",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "CREDENTIALS_DIRECTORY",
        "CREDBROKER_SOCKET",
        "KUBERNETES_EXEC_INFO",
    ];
    let pass = Globs::new(["*", "LD_PRELOAD"]);
    assert_eq!(names(&of(&all).inherited(&pass, &Globs::default())), [""; 0]);
}

#[test]
fn a_name_that_is_not_utf_8_passes_with_the_rest_and_is_denied_like_the_rest() {
    let odd = OsString::from_vec(b"ODD_\xff".to_vec());
    let denied = OsString::from_vec(b"LD_\xff".to_vec());
    let broker: Environment = [(odd.clone(), "1"), (denied, "2")].into_iter().collect();
    let inherited = broker.inherited(&Globs::new(["*"]), &Globs::default());
    assert_eq!(inherited.0.keys().collect::<Vec<_>>(), [&odd]);
}

#[test]
fn debug_shows_no_values() {
    let shown = format!("{:?}", Environment::from_iter([("TOKEN", "canary")]));
    assert!(shown.contains("TOKEN") && !shown.contains("canary"), "{shown}");
}
