use super::*;
use std::process::{Command, Output, Stdio};

#[test]
fn each_run_is_counted_and_has_its_own_token() {
    let plugin = FakePlugin::builder().token_per_run().expires_at("2030-01-01T00:00:00Z").build();
    assert_eq!(plugin.runs(), 0);
    let first = json(&run(&plugin, &[("KUBERNETES_EXEC_INFO", "{}\n")]));
    let second = json(&run(&plugin, &[]));
    assert_eq!(first["status"]["token"], "token-1");
    assert_eq!(second["status"], json!({"token": "token-2", "expirationTimestamp": "2030-01-01T00:00:00Z"}));
    assert_eq!(plugin.runs(), 2);
    assert_eq!(plugin.exec_infos(), ["{}", ""]);
}

#[test]
fn runs_at_the_same_time_are_counted_apart() {
    let plugin = FakePlugin::builder().token_per_run().build();
    let mut children: Vec<_> =
        (0..16).map(|_| command(&plugin, &[]).stdout(Stdio::null()).spawn().unwrap()).collect();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(plugin.runs(), 16);
}

#[test]
fn a_pair_and_a_token_from_the_environment_come_out_as_they_went_in() {
    let pair = ("-----BEGIN CERTIFICATE-----\nab'c\\n\n", "key\n");
    let builder = FakePlugin::builder().token_from_shell("$AWS_PROFILE-token").pair(pair.0, pair.1);
    let plugin = builder.api_version("client.authentication.k8s.io/v1beta1").expires_in(60).build();
    let document = json(&run(&plugin, &[("AWS_PROFILE", "dev")]));
    assert_eq!(document["apiVersion"], "client.authentication.k8s.io/v1beta1");
    assert_eq!(document["status"]["token"], "dev-token");
    assert_eq!(document["status"]["clientCertificateData"], pair.0);
    assert_eq!(document["status"]["clientKeyData"], pair.1);
    assert_eq!(
        document["status"]["expirationTimestamp"].as_str().unwrap().len(),
        "2030-01-01T00:00:00Z".len()
    );
    assert_eq!(json(&run(&plugin, &[]))["status"]["token"], "-token");
}

#[test]
fn a_plugin_can_start_to_fail_and_stays_the_same_file() {
    let plugin = FakePlugin::builder().token("it's fine").build();
    assert_eq!(json(&run(&plugin, &[]))["status"]["token"], "it's fine");
    plugin.becomes(&FakePlugin::builder().stderr("no network").sleep(0.01).exit_code(3));
    let output = run(&plugin, &[]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(3), b"no network\n".as_slice()));
    assert!(output.stdout.is_empty());
    assert_eq!(plugin.runs(), 2);
}

#[test]
fn a_raw_script_has_its_number_and_its_directory() {
    let plugin = FakePlugin::script(r#"echo "$run $dir""#);
    let expected = format!("1 {}\n", plugin.dir().display());
    assert_eq!(run(&plugin, &[]).stdout, expected.as_bytes());
}

fn command(plugin: &FakePlugin, env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(plugin.path());
    command.env_remove("AWS_PROFILE").env_remove("KUBERNETES_EXEC_INFO").envs(env.iter().copied());
    command
}

fn run(plugin: &FakePlugin, env: &[(&str, &str)]) -> Output {
    command(plugin, env).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}
