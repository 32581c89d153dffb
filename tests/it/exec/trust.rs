//! Plugins that exist and must not run.

use credbroker_plugin::{PluginPolicy, Refusal, Sha256};

use super::*;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn refusal(result: Result<String, RunError>) -> Refusal {
    match result {
        Err(RunError { kind: RunErrorKind::NotAllowed(refusal), .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_plugin_that_others_can_write_runs_in_the_compatible_sandbox_only() {
    for (of_home, of_file) in [(0o777, 0o755), (0o700, 0o777), (0o775, 0o755)] {
        let plugin = |sandbox| {
            let mut plugin = Plugin::script("echo token");
            plugin.provider.sandbox = sandbox;
            set_mode(plugin.home.path(), of_home);
            set_mode(&plugin.path, of_file);
            plugin
        };
        let strict = plugin(Sandbox::Strict);
        let written = if of_file == 0o777 { strict.path.clone() } else { strict.home.path().to_owned() };
        let mode = if of_file == 0o777 { of_file } else { of_home };
        assert_eq!(refusal(strict.run().await.0), Refusal::Writable(written, mode));
        assert_eq!(plugin(Sandbox::Compatible).run().await.0.unwrap(), "token\n");
    }
}

#[tokio::test]
async fn a_plugin_is_refused_until_its_modes_are_corrected() {
    let plugin = Plugin::script("echo token");
    let path = plugin.path.clone();
    let (started, spec) = plugin.spec();
    assert!(started.runner.stdout(&spec, Arc::default()).await.is_ok());
    set_mode(&path, 0o757);
    let error = started.runner.stdout(&spec, Arc::default()).await.unwrap_err();
    let expected = format!(
        "plugin `{0}` is not allowed: users other than its owner can write to {0} (mode 0757); run `chmod go-w {0}`, or set `sandbox: Compatible` for the provider",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    set_mode(&path, 0o755);
    assert!(started.runner.stdout(&spec, Arc::default()).await.is_ok());
}

/// `sha256sum` of "#!/bin/sh\necho token\n".
const DIGEST: &str = "e61c9828654ca6d218d75dd1e158a358eb1cc10a08dd614c38117fea092673c3";

#[tokio::test]
async fn another_file_than_the_pinned_one_runs_in_no_sandbox() {
    for sandbox in [Sandbox::Strict, Sandbox::Compatible] {
        let mut plugin = Plugin::script("echo token");
        (plugin.provider.sandbox, plugin.provider.sha256) = (sandbox, Sha256::from_hex(DIGEST));
        let path = plugin.path.clone();
        let (started, spec) = plugin.spec();
        assert!(started.runner.stdout(&spec, Arc::default()).await.is_ok());
        write_executable(&path, "#!/bin/sh\necho other\n");
        let error = started.runner.stdout(&spec, Arc::default()).await.unwrap_err();
        assert!(
            matches!(&error, RunError { kind: RunErrorKind::NotAllowed(Refusal::Digest(_)), .. }),
            "{error:?}"
        );
        write_executable(&path, "#!/bin/sh\necho token\n");
        assert!(started.runner.stdout(&spec, Arc::default()).await.is_ok());
    }
}

#[tokio::test]
async fn a_policy_counts_in_every_sandbox() {
    for sandbox in [Sandbox::Strict, Sandbox::Compatible] {
        let plugin = |policy: PluginPolicy| {
            let mut plugin = Plugin::script("echo token");
            (plugin.provider.sandbox, plugin.provider.policy) = (sandbox, policy.into());
            plugin
        };
        let listed = |path: &Path| PluginPolicy::Allowlist(vec![path.to_str().unwrap().to_owned()]);
        let unlisted = plugin(listed(Path::new("/usr/bin/aws")));
        let path = unlisted.path.clone();
        assert_eq!(refusal(unlisted.run().await.0), Refusal::NotListed(path));
        assert_eq!(refusal(plugin(PluginPolicy::DenyAll).run().await.0), Refusal::DenyAll);
        let missing = plugin(PluginPolicy::DenyAll);
        fs::remove_file(&missing.path).unwrap();
        assert_eq!(refusal(missing.run().await.0), Refusal::DenyAll, "to install it would not help");
        let mut permitted = plugin(PluginPolicy::AllowAll);
        permitted.provider.policy = listed(&permitted.path).into();
        assert_eq!(permitted.run().await.0.unwrap(), "token\n");
    }
}
