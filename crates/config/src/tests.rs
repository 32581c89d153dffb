use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use super::*;
use credbroker_credential::ApiVersion;
use credbroker_plugin::{ClusterInfo, Command, EnvPolicy, Environment, ProfileSourced, Provider};

mod reference;

/// A home directory with a config.
pub(super) struct Home(pub(super) TempDir);

impl Home {
    pub(super) fn new(config: &str) -> Self {
        let home = Self(credbroker_test_support::private_directory());
        home.write(".config/credbroker/config.yaml", config);
        home
    }

    pub(super) fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(path);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(super) fn env(&self, variables: &[(&str, &str)]) -> Environment {
        let home = [("HOME", self.0.path().to_str().unwrap()), ("PATH", "/bin"), ("MY_A", "1")];
        home.iter().chain(variables).copied().collect()
    }

    pub(super) fn load(&self) -> Result<Loaded, ConfigError> {
        load(None, &self.env(&[]))
    }

    pub(super) fn problems(&self) -> String {
        self.shown(&self.load().unwrap_err())
    }

    pub(super) fn warnings(&self) -> String {
        let warnings = self.load().unwrap().warnings;
        warnings.iter().map(|problem| self.shown(problem)).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn shown(&self, text: &impl ToString) -> String {
        text.to_string().replace(self.0.path().to_str().unwrap(), "~")
    }
}

pub(super) const HEAD: &str = "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n";

pub(super) fn stanza(command: &str) -> String {
    format!(
        "execConfig: {{apiVersion: client.authentication.k8s.io/v1, command: {command}, interactiveMode: Never}}"
    )
}

pub(super) fn provider(loaded: &Loaded) -> &Provider {
    loaded.config.providers.iter().next().unwrap()
}

/// A home whose config has one provider, with `keys` and a plugin.
fn with_provider(keys: &str, command: &str) -> Home {
    let keys = if keys.is_empty() { String::new() } else { format!("  {keys}\n") };
    Home::new(&format!("{HEAD}providers:\n- name: p\n{keys}  {}\n", stanza(command)))
}

#[test]
fn the_reference_config_is_read() {
    let home = Home::new(&format!(
        r#"{HEAD}
listen: {{socket: /run/credbroker/credbroker.sock, mode: "0660", group: "staff", sharedDirectory: true}}
providers:
- name: gke
  execConfig:
    apiVersion: client.authentication.k8s.io/v1
    command: /plugins/gke-gcloud-auth-plugin
    args: [--use_application_default_credentials]
    env: [{{name: CLOUDSDK_CONFIG, value: /var/gcloud}}]
    provideClusterInfo: true
    interactiveMode: Never
    installHint: "…"
  profileSourcedCLIArgsPolicy: Append
  profileSourcedEnvVarsPolicy: AppendIfNotExists
  profileEnv: [CLUSTER_NAME, "TENANT_*"]
  issuer: google
  timeout: 20s
  interactiveTimeout: 3m
  passEnv: ["MY_*"]
  callerEnv: [AWS_PROFILE]
  clusterInfo: Match
  verify: Never
  maxAge: 12h
  unknownExpiryMaxAge: 5m
issuers: [{{name: google, runsPerSecond: 20, concurrency: 6}}]
clusterProfiles: {{kubeconfig: InCluster, namespaces: [fleet], labelSelector: ""}}
limits:
  {{connections: 1, bytes: 2, pluginRuns: 3, credentials: 5,
  credentialBytes: 12, interactiveRuns: 14}}
"#
    ));
    let loaded = home.load().unwrap();
    let warnings: Vec<_> = loaded.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(warnings, [""; 0]);
    assert_eq!(home.shown(&loaded.source), "~/.config/credbroker/config.yaml");
    let provider = provider(&loaded);
    assert_eq!(provider.inherited.0.keys().collect::<Vec<_>>(), ["HOME", "MY_A", "PATH"]);
    assert!(provider.caller_env.matches("AWS_PROFILE"));
    let sourced = ProfileSourced { args: true, env: EnvPolicy::AppendIfNotExists };
    assert_eq!((provider.profile_sourced, provider.cluster_info), (Some(sourced), ClusterInfo::Match));
    assert!(provider.profile_env.matches("TENANT_ID") && !provider.profile_env.matches("AWS_REGION"));
    assert!(!provider.verify);
    assert_eq!(
        (provider.timeout, provider.interactive_timeout, provider.lifetime.max_age),
        (Duration::from_secs(20), Duration::from_secs(3 * 60), Some(Duration::from_secs(12 * 3600)))
    );
    assert_eq!(provider.lifetime.unknown_expiry_max_age, Duration::from_secs(5 * 60));
    let issuer = &provider.issuer;
    assert_eq!((&*issuer.name, issuer.runs_per_second.get(), issuer.concurrency.get()), ("google", 20, 6));
    let Config { listen, limits, .. } = &loaded.config;
    insta::assert_snapshot!(format!("{listen:?}"), @r#"[Listen { name: "default", socket: Some("/run/credbroker/credbroker.sock"), mode: 432, group: Some("staff"), shared_directory: true }]"#);
    insta::assert_snapshot!(format!("{limits:?}"), @"Limits { connections: 1, bytes: 2, plugin_runs: 3, interactive_runs: 14, credentials: 5, credential_bytes: 12 }");
}

#[test]
fn everything_has_a_default_but_the_plugin() {
    let loaded = with_provider("", "plugin").load().unwrap();
    let Config { listen, limits, .. } = &loaded.config;
    assert_eq!((listen, limits), (&vec![Listen::default()], &Limits::default()));
    let provider = provider(&loaded);
    assert_eq!(provider.command, Command::Name("plugin".into()));
    assert_eq!(provider.inherited.0.keys().collect::<Vec<_>>(), ["HOME", "PATH"]);
    assert!(!provider.caller_env.matches("AWS_PROFILE"));
    assert!(provider.verify);
}

#[test]
fn all_problems_are_reported_at_once_with_their_lines() {
    let home = Home::new(
        r#"apiVersion: credbroker.io/v1
kind: Config
listen: {sockt: /x, socket: relative, mode: 0600}
limits:
  conections: 5
  pluginRuns: 0
  credentials: many
providers:
- name: ""
  execConfig: {command: x}
  timeout: 0s
  maxAge: 1d
- {name: q, execConfg: {}}
- {name: r, passEnv: AWS_*, callerEnv: ["A?"], execConfig: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}}
- nothing
access: []
clusterProfiles: {}
"#,
    );
    insta::assert_snapshot!(home.problems(), @r#"
~/.config/credbroker/config.yaml:1:13: apiVersion: must be `credbroker.io/v1alpha1`
~/.config/credbroker/config.yaml:2:7: kind: must be `BrokerConfig`
~/.config/credbroker/config.yaml:3:10: listen: unknown key `sockt`, did you mean `socket`?
~/.config/credbroker/config.yaml:3:29: listen.socket: must be an absolute path, like `/run/credbroker/credbroker.sock`
~/.config/credbroker/config.yaml:3:45: listen.mode: must be an octal mode in quotes from "0600" to "0666" with read and write for the owner, like "0660"
~/.config/credbroker/config.yaml:5:3: limits: unknown key `conections`, did you mean `connections`?
~/.config/credbroker/config.yaml:6:15: limits.pluginRuns: must be a whole number from 1 to 100000
~/.config/credbroker/config.yaml:7:16: limits.credentials: must be a whole number from 1 to 1000000
~/.config/credbroker/config.yaml:9:9: providers[0].name: must be a name: not empty, without control characters
~/.config/credbroker/config.yaml:10:15: providers[0].execConfig: apiVersion must be specified: `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`
~/.config/credbroker/config.yaml:11:12: providers[0].timeout: must be a duration such as `30s`, `10m` or `1h30m`: it must be from 1s to 24h
~/.config/credbroker/config.yaml:12:11: providers[0].maxAge: must be a duration such as `30s`, `10m` or `1h30m`: unknown unit; the units are `h`, `m`, `s`, `ms`, `us` and `ns`
~/.config/credbroker/config.yaml:13:3: providers[1]: execConfig must be specified: the `exec` stanza of a kubeconfig
~/.config/credbroker/config.yaml:13:13: providers[1]: unknown key `execConfg`, did you mean `execConfig`?
~/.config/credbroker/config.yaml:14:22: providers[2].passEnv: expected a list, found a string
~/.config/credbroker/config.yaml:14:41: providers[2].callerEnv[0]: must be the name of a variable, in which `*` matches any text
~/.config/credbroker/config.yaml:15:3: providers[3]: expected a map, found a string
~/.config/credbroker/config.yaml:17:18: clusterProfiles: kubeconfig must be specified: a path, or `InCluster`
"#);
}

#[test]
fn verification_is_automatic_or_never() {
    insta::assert_snapshot!(with_provider("verify: Always", "x").problems(), @"~/.config/credbroker/config.yaml:5:11: providers[0].verify: must be one of `Auto`, `Never`, not `Always`");
}

#[test]
fn a_kubeconfig_in_place_of_a_config_is_recognised() {
    insta::assert_snapshot!(Home::new("apiVersion: v1\nkind: Config\nusers: []\n").problems(), @"~/.config/credbroker/config.yaml:1:1: is a kubeconfig; name it in a config (`kubeconfigs: [~/.config/credbroker/config.yaml]`), or in KUBECONFIG with no config");
}

#[test]
fn a_name_that_is_there_twice_is_reported_with_all_other_problems() {
    let home = Home::new(&format!(
        "{HEAD}providers:\n- name: p\n  execConfig: []\n- name: p\n  timeout: 1\n  {}\n",
        stanza("x")
    ));
    insta::assert_snapshot!(home.problems(), @r"
~/.config/credbroker/config.yaml:5:15: providers[0].execConfig: expected a map, found a list
~/.config/credbroker/config.yaml:6:3: provider `p` is defined already at ~/.config/credbroker/config.yaml:4:3; rename one of them
~/.config/credbroker/config.yaml:7:12: providers[1].timeout: must be a duration such as `30s`, `10m` or `1h30m`: `1` has no unit; for seconds, write `1s`
");
}

#[test]
fn a_configured_name_is_one_provider_and_users_of_several_kubeconfigs_share_one() {
    let home = Home::new(&format!(
        "{HEAD}kubeconfigs: [~/one, ~/two]\nproviders:\n- name: p\n  {}\n- name: p\n  {}\n- name: v\n  {}\n",
        stanza("x"),
        stanza("z"),
        stanza("w")
    ));
    let user =
        "users:\n- name: u\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x}}\n";
    home.write("one", &user.replace("name: u", "name: v"));
    home.write("two", user);
    insta::assert_snapshot!(home.problems(), @r"
~/.config/credbroker/config.yaml:7:3: provider `p` is defined already at ~/.config/credbroker/config.yaml:5:3; rename one of them
~/one:2:3: provider `v` is defined already at ~/.config/credbroker/config.yaml:9:3; rename one of them
");
    let home = Home::new(&format!("{HEAD}kubeconfigs: [~/one, ~/two]\n"));
    home.write("one", user);
    home.write("two", user);
    let loaded = home.load().unwrap();
    let files = loaded.config.providers.iter().map(|provider| provider.definition.as_ref().unwrap().file());
    assert_eq!(files.collect::<Vec<_>>(), [home.0.path().join("one"), home.0.path().join("two")]);
}

#[test]
fn a_relative_command_is_below_the_configs_directory() {
    let home = with_provider("", "./bin/x");
    let loaded = home.load().unwrap();
    assert_eq!(provider(&loaded).command, Command::Path(home.0.path().join(".config/credbroker/bin/x")));
}

#[test]
fn v1alpha1_is_accepted_when_the_provider_says_so() {
    let text = format!("{HEAD}providers:\n- name: p\n  acceptV1alpha1: true\n  {}\n", stanza("x"))
        .replace("k8s.io/v1,", "k8s.io/v1alpha1,");
    assert_eq!(provider(&Home::new(&text).load().unwrap()).api_version, ApiVersion::V1Alpha1);
    let home = Home::new(&text.replace("acceptV1alpha1: true", "acceptV1alpha1: false"));
    assert!(home.problems().contains("acceptV1alpha1: true"));
}

#[test]
fn what_is_suspicious_is_a_warning() {
    let home = Home::new(&format!(
        r#"{HEAD}providers:
- name: aws
  {}
- name: aws-ok
  passEnv: ["AWS_*"]
  {}
- name: caller
  callerEnv: ["*"]
  {}
- name: preload
  execConfig: {{apiVersion: client.authentication.k8s.io/v1beta1, command: x, env: [{{name: LD_PRELOAD, value: canary}}]}}
- name: no names
  profileSourcedEnvVarsPolicy: Replace
  execConfig: {{apiVersion: client.authentication.k8s.io/v1beta1, command: x}}
- name: no policy
  profileEnv: [CLUSTER]
  execConfig: {{apiVersion: client.authentication.k8s.io/v1beta1, command: x}}
"#,
        stanza("/usr/bin/aws"),
        stanza("aws"),
        stanza("kubelogin"),
    ));
    insta::assert_snapshot!(home.warnings(), @r#"
~/.config/credbroker/config.yaml:4:3: providers[0]: `aws` gets no variable like `AWS_*`, so it may not find its identity; add `passEnv: ["AWS_*"]`, or `callerEnv` if each caller has its own
~/.config/credbroker/config.yaml:9:3: providers[2]: callerEnv covers `PATH`: the plugin does not get the broker's `PATH`, so a command without a path is not found
~/.config/credbroker/config.yaml:13:84: providers[3].execConfig.env[0]: plugins never get `LD_PRELOAD`; remove it
~/.config/credbroker/config.yaml:14:3: providers[4]: no ClusterProfile may set a variable, although `profileSourcedEnvVarsPolicy` allows variables; name the variables in `profileEnv`
~/.config/credbroker/config.yaml:18:15: providers[5].profileEnv: has no effect without `profileSourcedEnvVarsPolicy`
"#);
}

#[test]
fn an_explicit_file_comes_before_all_others() {
    let home = Home::new("nonsense");
    let config = format!("{HEAD}providers:\n- name: flag\n  {}\n", stanza("x"));
    let flag = home.write("flag.yaml", &config);
    let variable = home.write("variable.yaml", &config.replace("flag", "variable"));
    let xdg = home.write("xdg/credbroker/config.yaml", &config.replace("flag", "xdg"));
    let names = |flag: Option<&Path>, variables: &[(&str, &str)]| {
        load(flag, &home.env(variables)).unwrap().config.providers.names()
    };
    let variable = ("CREDBROKER_CONFIG", variable.to_str().unwrap());
    let xdg = ("XDG_CONFIG_HOME", xdg.ancestors().nth(2).unwrap().to_str().unwrap());
    assert_eq!(names(Some(&flag), &[variable, xdg]), ["flag"]);
    assert_eq!(names(None, &[variable, xdg]), ["variable"]);
    assert_eq!(names(None, &[xdg]), ["xdg"]);
    assert!(load(Some(Path::new("/nowhere/config.yaml")), &home.env(&[])).is_err());
}

#[test]
fn without_a_config_the_users_of_the_kubeconfig_are_the_providers() {
    let home = Home(tempfile::tempdir().unwrap());
    insta::assert_snapshot!(home.problems(), @"~/.kube/config: there is neither a credbroker config nor a kubeconfig; specify one with `--config FILE` or KUBECONFIG");
    let text = "users:\n- name: u\n  user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: plugin}}\n";
    home.write(".kube/config", text);
    let loaded = home.load().unwrap();
    assert_eq!(loaded.config.providers.names(), ["u"]);
    assert_eq!(home.shown(&loaded.source), "~/.kube/config");
    home.write(".kube/config", &text.replace("plugin", "credbroker-exec"));
    insta::assert_snapshot!(home.problems(), @"~/.kube/config: no user of ~/.kube/config runs an exec plugin, so there is no provider; users that run credbroker's shim do not count (did you mean your original kubeconfig?)");
}

#[test]
fn a_config_that_others_may_write_does_not_load() {
    let home = with_provider("", "x");
    let path = home.0.path().join(".config/credbroker/config.yaml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
    insta::assert_snapshot!(home.problems(), @"~/.config/credbroker/config.yaml: users other than its owner can write to it, and so run programs as the broker; run `chmod go-w ~/.config/credbroker/config.yaml`");
}

#[test]
fn no_secret_of_a_config_is_in_a_message() {
    let home = Home::new(&format!(
        "{HEAD}providers:\n- name: p\n  timeout: canary\n  execConfig: {{apiVersion: canary, command: x, args: [[canary]], env: [{{name: A=, value: canary}}, {{name: {{}}, value: canary}}]}}\n"
    ));
    let error = home.load().unwrap_err();
    assert!(error.problems.len() > 3);
    assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    let home = Home::new("a: b\na: canary\n- canary: [");
    assert!(!home.problems().contains("canary"));
}

#[test]
fn a_timeout_that_outlasts_the_shim_is_suspicious() {
    let config = |timeout| with_provider(timeout, "plugin");
    assert_eq!(config("timeout: 39s").warnings(), "");
    assert_eq!(config("timeout: 40s").warnings().lines().count(), 1);
    insta::assert_snapshot!(config("timeout: 2m").warnings(), @"~/.config/credbroker/config.yaml:5:12: providers[0].timeout: credbroker-exec waits 45 s by default, so it may stop before the run ends; set a longer `--timeout` (such as `--timeout=2m`, in the `args` of the kubeconfig), or less than 40 s here");
}
