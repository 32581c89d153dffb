//! A held credential follows the files that select its account.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use credbroker_proto::{
    Reason,
    v1::{self as pb, credential_broker_client::CredentialBrokerClient},
};
use credbroker_test_support::{FakePlugin, FakePluginBuilder, Kubeconfig, private_directory};
use futures_util::{StreamExt as _, stream::FuturesOrdered};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::harness::{InProcess, provider, reason, request, token};

/// Longer than a change takes to be noticed, for changes after which nothing may happen.
const NOTICED: Duration = Duration::from_millis(100);
/// Longer than any machine needs.
const AGES: Duration = Duration::from_secs(60);

const GCLOUD: &str = "gke-gcloud-auth-plugin";
const ACTIVE: &str = ".config/gcloud/active_config";
/// The account of the active configuration, as gcloud finds it.
const OF_GCLOUD: &str =
    "$(cat $HOME/.config/gcloud/configurations/config_$(cat $HOME/.config/gcloud/active_config))";
/// The key in `[default]`.
const OF_AWS: &str = "$(sed -n '/default/,/^$/s/^key = //p' $HOME/.aws/credentials || echo none)";

/// A home, and a broker whose provider `cloud` has a plugin that reads its account there.
struct Machine {
    home: TempDir,
    plugin: FakePlugin,
    broker: InProcess,
}

impl Machine {
    /// With these files in the home, for the plugin `name`, whose token is what the shell makes of `account`.
    fn start(name: &str, account: &str, files: &[(&str, &str)]) -> Self {
        Self::with(name, &json!({}), FakePlugin::builder().token_from_shell(account), files)
    }

    fn with(name: &str, more: &Value, plugin: FakePluginBuilder, files: &[(&str, &str)]) -> Self {
        let (home, plugin) = (private_directory(), named(name, plugin));
        write(home.path(), files);
        let mut section = provider("cloud", &plugin);
        section["execConfig"]["command"] = json!(plugin.dir().join(name));
        section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let variables = [("HOME", home.path().to_str().unwrap())];
        let broker = InProcess::with(json!({"providers": [section]}), &variables);
        Self { home, plugin, broker }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.home.path().join(file)
    }

    async fn ask(&self) -> String {
        token(&self.broker.get("cloud").await.unwrap()).to_owned()
    }

    /// Asks until the answer is `account`.
    async fn until(&self, account: &str) {
        let asks = async { while self.ask().await != account {} };
        timeout(AGES, asks).await.expect("the account changes");
    }
}

/// The plugin by another name.
fn named(name: &str, plugin: FakePluginBuilder) -> FakePlugin {
    let plugin = plugin.expires_in(3600).build();
    symlink("plugin", plugin.dir().join(name)).unwrap();
    plugin
}

fn write(home: &Path, files: &[(&str, &str)]) {
    for (file, content) in files {
        fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        fs::write(home.join(file), content).unwrap();
    }
}

const CONFIGURATIONS: [(&str, &str); 4] = [
    (".config/gcloud/configurations/config_me", "me@example.com"),
    (".config/gcloud/configurations/config_work", "work@example.com"),
    (".config/gcloud/configurations/config_other", "other"),
    (ACTIVE, "me"),
];

#[tokio::test]
async fn a_switch_of_gcloud_is_never_answered_with_the_account_before() {
    let machine = Machine::start(GCLOUD, OF_GCLOUD, &CONFIGURATIONS);
    assert_eq!(machine.ask().await, "me@example.com");
    for account in ["work", "me"].into_iter().cycle().take(10) {
        fs::write(machine.path(ACTIVE), account).unwrap();
        machine.until(&format!("{account}@example.com")).await;
        assert_eq!(machine.ask().await, format!("{account}@example.com"));
    }
    assert_eq!(machine.plugin.runs(), 11, "each switch starts one run");

    // Only the active configuration counts, and is followed since it is active.
    fs::write(machine.path(CONFIGURATIONS[2].0), "changed").unwrap();
    sleep(NOTICED).await;
    assert_eq!(machine.ask().await, "me@example.com");
    assert_eq!(machine.plugin.runs(), 11);
    fs::write(machine.path(CONFIGURATIONS[0].0), "changed").unwrap();
    machine.until("changed").await;
}

/// Also if the broker has not read yet that there was a change, as while it pauses after the one before.
#[tokio::test]
async fn a_process_that_connects_after_a_switch_never_gets_the_account_before() {
    let machine = Machine::start(GCLOUD, OF_GCLOUD, &CONFIGURATIONS);
    assert_eq!(machine.ask().await, "me@example.com");
    for account in ["work", "me"].into_iter().cycle().take(50) {
        fs::write(machine.path(ACTIVE), account).unwrap();
        assert_eq!(machine.ask().await, format!("{account}@example.com"));
    }
}

#[tokio::test]
async fn a_user_of_a_kubeconfig_follows_its_files_too() {
    let (home, plugin) =
        (private_directory(), named(GCLOUD, FakePlugin::builder().token_from_shell(OF_GCLOUD)));
    write(home.path(), &CONFIGURATIONS);
    let mut stanza = plugin.exec_stanza();
    stanza["command"] = json!(GCLOUD);
    stanza["provideClusterInfo"] = json!(false);
    let kubeconfig = home.path().join("kubeconfig");
    Kubeconfig::new()
        .cluster("c", &json!({"server": "https://cluster.example"}))
        .exec_user("cloud", &stanza)
        .context("x", "c", "cloud")
        .write(&kubeconfig);
    let path = format!("{}:{}", plugin.dir().display(), std::env::var("PATH").unwrap());
    let variables = [("HOME", home.path().to_str().unwrap()), ("PATH", &path)];
    let broker = InProcess::with(json!({"kubeconfigs": [kubeconfig]}), &variables);
    let ask = async || token(&broker.get("cloud").await.unwrap()).to_owned();
    assert_eq!(ask().await, "me@example.com");
    fs::write(home.path().join(ACTIVE), "work").unwrap();
    timeout(AGES, async { while ask().await != "work@example.com" {} }).await.expect("the account changes");

    // In a directory that the caller names.
    let (other, file) = (home.path().join("other"), home.path().join("other/active_config"));
    fs::create_dir(&other).unwrap();
    let variables = [("CLOUDSDK_CONFIG", other.to_str().unwrap())];
    let there = async || broker.get_with("cloud", None, &variables).await.unwrap();
    for (account, runs) in [("", 3), ("a", 4), ("b", 5)] {
        fs::write(&file, account).unwrap();
        timeout(AGES, async {
            while plugin.runs() < runs {
                there().await;
            }
        })
        .await
        .expect("the account changes");
        assert_eq!(there().await.generation(), there().await.generation());
        assert_eq!(plugin.runs(), runs);
    }
    assert_eq!(ask().await, "work@example.com");
}

const CREDENTIALS: &str = ".aws/credentials";

fn credentials(default: &str, other: &str) -> String {
    format!("[other]\nkey = {other}\n\n[default]\nkey = {default}\n\n[last]\nkey = {other}\n")
}

#[tokio::test]
async fn a_default_of_aws_that_is_written_in_any_way_is_never_answered_with_the_one_before() {
    let machine = Machine::start("aws", OF_AWS, &[(CREDENTIALS, &credentials("0", "x"))]);
    assert_eq!(machine.ask().await, "0");
    let file = machine.path(CREDENTIALS);
    for number in 1..=10 {
        let text = credentials(&number.to_string(), "x");
        match number % 3 {
            0 => fs::write(&file, text).unwrap(),
            1 => {
                fs::write(machine.path(".aws/new"), text).unwrap();
                fs::rename(machine.path(".aws/new"), &file).unwrap();
            }
            _ => {
                let mut writer = fs::File::create(&file).unwrap();
                // Empty for a moment, which says nothing about the account.
                sleep(Duration::from_millis(20)).await;
                writer.write_all(text.as_bytes()).unwrap();
            }
        }
        machine.until(&number.to_string()).await;
        assert_eq!(machine.ask().await, number.to_string());
    }
    assert_eq!(machine.plugin.runs(), 11);

    fs::write(&file, credentials("10", "another")).unwrap();
    sleep(NOTICED).await;
    assert_eq!(machine.ask().await, "10");
    assert_eq!(machine.plugin.runs(), 11, "an unrelated profile starts no run");
    fs::remove_file(&file).unwrap();
    machine.until("none").await;
}

#[tokio::test]
async fn other_files_of_a_provider_select_its_account_and_no_kind_of_file_blocks_a_request() {
    let selector =
        FakePlugin::builder().token_from_shell("$(head -c 9 $HOME/selector 2>/dev/null || echo none)$run");
    let machine = Machine::with("other", &json!({"identityFiles": ["~/selector"]}), selector, &[]);
    let file = machine.path("selector");
    assert_eq!(machine.ask().await, "none1");
    fs::write(&file, "first").unwrap();
    machine.until("first2").await;
    fs::remove_file(&file).unwrap();
    machine.until("none3").await;
    // These count as missing.
    fs::write(&file, vec![b'x'; (1 << 20) + 1]).unwrap();
    sleep(NOTICED).await;
    assert_eq!(machine.ask().await, "none3");
    fs::remove_file(&file).unwrap();
    mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
    sleep(NOTICED).await;
    assert_eq!(machine.ask().await, "none3");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    sleep(NOTICED).await;
    assert_eq!(machine.ask().await, "none3");
}

#[tokio::test]
async fn a_run_from_before_a_switch_is_not_kept() {
    let account = format!("{OF_GCLOUD}$(touch $dir/begun; while [ ! -e $dir/go$run ]; do sleep 0.01; done)");
    let machine = Machine::start(GCLOUD, &account, &CONFIGURATIONS);
    let go = |run| fs::write(machine.plugin.dir().join(run), "").unwrap();
    let switch = async {
        while !machine.plugin.dir().join("begun").exists() {
            sleep(Duration::from_millis(1)).await;
        }
        fs::write(machine.path(ACTIVE), "work").unwrap();
        // Requests join the run from before the switch until the switch is noticed.
        let mut asks = FuturesOrdered::new();
        while machine.plugin.runs() < 2 {
            asks.push_back(machine.ask());
            let _pending = timeout(Duration::from_millis(10), asks.next()).await;
        }
        go("go1");
        asks.push_back(machine.ask());
        asks.collect::<Vec<_>>().await.pop().unwrap()
    };
    // The run from before the switch ends first.
    let before = async {
        let account = machine.ask().await;
        go("go2");
        account
    };
    let (before, after) = tokio::join!(before, switch);
    assert_eq!([&*before, &*after], ["me@example.com", "work@example.com"]);
    assert_eq!(machine.ask().await, "work@example.com");
    assert_eq!(machine.plugin.runs(), 2);
}

#[tokio::test]
async fn a_watch_ends_when_the_account_changes_and_the_next_one_gets_the_new_account() {
    let machine = Machine::start(GCLOUD, OF_GCLOUD, &CONFIGURATIONS);
    let mut rpc = CredentialBrokerClient::new(machine.broker.channel().await);
    for (account, next) in [("me", "work"), ("work", "me")] {
        let r#ref = request("cloud", None, &[]).r#ref;
        let watch = rpc.watch_credential(pb::WatchCredentialRequest { r#ref }).await.unwrap();
        let mut watch = watch.into_inner();
        let message = timeout(AGES, watch.message()).await.expect("a message").unwrap().unwrap();
        assert_eq!(message.credential.unwrap().token.unwrap(), format!("{account}@example.com"));
        fs::write(machine.path(ACTIVE), next).unwrap();
        let ended = timeout(AGES, watch.message()).await.expect("an end").unwrap_err();
        assert_eq!(reason(&ended), Some(Reason::ProviderChanged), "{ended}");
    }
}

#[tokio::test]
async fn files_beyond_those_that_are_watched_are_read_every_few_seconds() {
    let files: Vec<_> = (0..300).map(|number| format!("~/files/{number}")).collect();
    let plugin = FakePlugin::builder().token_from_shell("$(cat $HOME/files/99)");
    let machine = Machine::with("other", &json!({"identityFiles": files}), plugin, &[("files/99", "before")]);
    assert_eq!(machine.ask().await, "before");
    fs::write(machine.path("files/99"), "after").unwrap();
    machine.until("after").await;
}
