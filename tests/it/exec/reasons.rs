//! Why runs fail.

use secrecy::ExposeSecret as _;

use super::*;
use credbroker_runner::{PluginRunner as _, RunOutput};

#[tokio::test]
async fn a_failure_carries_the_code_and_the_end_of_stderr() {
    let plugin =
        Plugin::script("echo secret-on-stdout; printf 'first\\n\\033[31mlogin expired\\n' >&2; exit 42");
    let path = plugin.path.display().to_string();
    let error = plugin.run().await.0.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("plugin `{path}` failed with exit code 42; its stderr ends: first | U+001B[31mlogin expired")
    );
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn all_of_stderr_is_drained_and_its_end_is_kept() {
    let script = "head -c 10000000 /dev/zero | tr '\\0' 'x' >&2; printf '\\nthe reason\\n' >&2; echo token; exit $CODE";
    let mut plugin = Plugin::script(script);
    plugin.provider.env.push(("CODE".into(), "0".into()));
    assert_eq!(plugin.run().await.0.unwrap(), "token\n");
    let mut plugin = Plugin::script(script);
    plugin.provider.env.push(("CODE".into(), "3".into()));
    let error = plugin.run().await.0.unwrap_err();
    let RunError { kind: RunErrorKind::Exit(3), stderr, .. } = &error else { panic!("{error:?}") };
    assert_eq!(&**stderr, "the reason");
}

#[tokio::test]
async fn the_error_names_the_signal() {
    let error = Plugin::script("echo oh >&2; kill -SEGV $$").run().await.0.unwrap_err();
    assert!(
        matches!(&error, RunError { kind: RunErrorKind::Signal(11), stderr, .. } if &**stderr == "oh"),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_error_for_a_missing_plugin_has_the_install_hint() {
    let home = private_directory();
    let path = home.path().join("gone");
    let mut plugin = Plugin::program(home, path);
    plugin.provider.install_hint = Some("Run \u{1b}[1mapt install it".into());
    let error = plugin.run().await.0.unwrap_err();
    assert!(matches!(error, RunError { kind: RunErrorKind::NotFound(_), .. }), "{error:?}");
    assert!(error.to_string().ends_with("is not installed. Run U+001B[1mapt install it"), "{error}");
}

#[tokio::test]
async fn a_newly_installed_plugin_runs_at_the_next_request() {
    let plugin = Plugin::program(private_directory(), "/nowhere".into());
    let bin = plugin.home.path().to_owned();
    let (started, spec) = plugin.of("plugin").spec();
    let error = started.runner.stdout(&spec, Arc::default()).await.unwrap_err();
    assert!(matches!(error, RunError { kind: RunErrorKind::NotFound(_), .. }), "{error:?}");
    let message = format!("plugin `plugin` is not installed in the broker's PATH, {}", bin.display());
    assert_eq!(error.to_string(), message);
    let version = async |text: &str| {
        write_executable(&bin.join("new"), &format!("#!/bin/sh\necho {text}\n"));
        fs::rename(bin.join("new"), bin.join("plugin")).unwrap();
        let (stdout, version) = started.runner.stdout(&spec, Arc::default()).await.unwrap();
        assert_eq!(*stdout, format!("{text}\n").into_bytes());
        assert_eq!(spec.file.version(), version);
        version
    };
    assert_eq!(version("one").await, 1);
    assert_eq!(version("two").await, 2, "a run says which file it was");
}

#[tokio::test]
async fn a_file_that_cannot_be_executed_and_a_missing_file_are_different_errors() {
    let not_executable = Plugin::script("");
    fs::set_permissions(&not_executable.path, Permissions::from_mode(0o644)).unwrap();
    let no_interpreter = Plugin::script("");
    write_executable(&no_interpreter.path, "#!/no/such/interpreter\n");
    let no_program = Plugin::script("");
    write_executable(&no_program.path, "no program at all\n");
    for (plugin, kind) in [
        (not_executable, std::io::ErrorKind::PermissionDenied),
        (no_interpreter, std::io::ErrorKind::NotFound),
    ] {
        let error = plugin.run().await.0.unwrap_err();
        assert!(
            matches!(&error, RunError { kind: RunErrorKind::Spawn(cause), .. } if cause.kind() == kind),
            "{error:?}"
        );
    }
    let error = no_program.run().await.0.unwrap_err();
    assert!(matches!(&error, RunError { kind: RunErrorKind::Spawn(_), .. }), "{error:?}");
}

#[tokio::test]
async fn a_plugin_whose_file_is_open_for_writing_is_started_again() {
    let plugin = Plugin::script("echo token");
    let writer = fs::OpenOptions::new().append(true).open(&plugin.path).unwrap();
    let replaced = async {
        sleep(ms(100)).await;
        drop(writer);
    };
    let ((result, _), ()) = tokio::join!(plugin.run(), replaced);
    assert_eq!(result.unwrap(), "token\n");
}

#[tokio::test]
async fn an_environment_that_is_too_large_has_its_own_error() {
    let mut plugin = Plugin::script("");
    plugin.provider.env.push(("HUGE".into(), "x".repeat(200_000)));
    let error = plugin.run().await.0.unwrap_err();
    assert!(matches!(error, RunError { kind: RunErrorKind::ArgumentsTooLong(200_000..), .. }), "{error:?}");
}

#[tokio::test]
async fn a_working_directory_that_cannot_be_created_has_its_own_error() {
    let (started, spec) = Plugin::script("").spec();
    fs::remove_dir(started.file("runs")).unwrap();
    let error = started.runner.stdout(&spec, Arc::default()).await.unwrap_err();
    assert!(matches!(error, RunError { kind: RunErrorKind::Directory(..), .. }), "{error:?}");
    assert!(error.to_string().contains(started.file("runs").to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn a_plugin_that_calls_the_broker_is_ended_even_if_it_ignores_sigterm() {
    for then in ["exit 1", "echo token", "exec cat /dev/zero", "while :; do sleep 1; done"] {
        let script = format!("trap '' TERM; echo $$ > $STATE/caller; {UNTIL_REFUSED}; {then}");
        let mut plugin = Plugin::script(&script);
        if then.starts_with("while") {
            plugin.limits.terminate_grace = ms(10);
        }
        let (result, _) = plugin.run_and_refuse().await;
        assert!(matches!(result, Err(RunError { kind: RunErrorKind::Recursion, .. })), "{then}: {result:?}");
    }
}

#[tokio::test]
async fn the_output_of_a_successful_run_is_decoded() {
    let document = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"abc"}}"#;
    let (started, spec) = Plugin::script(&format!("echo '{document}'; echo chatter >&2")).spec();
    let RunOutput { decoded, file_version } = started.runner.run(spec, Arc::default()).await.unwrap();
    assert_eq!(file_version, 1);
    assert_eq!(decoded.material.token.unwrap().secret.expose_secret(), "abc");
}

#[tokio::test]
async fn output_without_a_credential_is_refused() {
    let (started, spec) = Plugin::script("echo secret-on-stdout").spec();
    let error = started.runner.run(spec, Arc::default()).await.unwrap_err();
    assert!(matches!(error, RunError { kind: RunErrorKind::Decode(_), .. }), "{error:?}");
    assert!(!format!("{error:?} {error}").contains("secret"), "{error:?}");
}
