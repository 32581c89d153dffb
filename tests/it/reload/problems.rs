//! A changed configuration with problems stays out.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
};

use credbroker_proto::v1alpha1;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use v1alpha1::credential_broker_admin_client::CredentialBrokerAdminClient;

use super::*;

async fn configuration(broker: &InProcess) -> v1alpha1::ConfigurationState {
    let mut admin = CredentialBrokerAdminClient::new(broker.channel().await);
    let info = admin.get_broker_info(v1alpha1::GetBrokerInfoRequest {}).await.unwrap().into_inner();
    info.configuration.unwrap()
}

/// Waits until health says so about the files.
async fn until_health(broker: &InProcess, wanted: ServingStatus) {
    let mut health = HealthClient::new(broker.channel().await);
    let request = HealthCheckRequest { service: "configuration".into() };
    let mut states = health.watch(request).await.unwrap().into_inner();
    let reached = async { while states.message().await.unwrap().unwrap().status() != wanted {} };
    timeout(AGES, reached).await.expect("the health becomes so");
}

#[tokio::test]
async fn the_old_one_stays_active_and_the_problem_is_seen_until_the_next_good_one() {
    let (old, new) = (prints("old"), prints("new"));
    let followed = Followed::start(&users(&[("rel", &old)])).await;
    until_health(&followed.broker, ServingStatus::Serving).await;
    let before = followed.broker.get("rel").await.unwrap();
    followed.write("apiVersion: v1\nkind: Config\nusers: {");
    let state = followed.until(|state| !state.problems.is_empty()).await;
    assert!(problems(&state)[0].contains("users:"), "it names the file: {state:?}");
    until_health(&followed.broker, ServingStatus::NotServing).await;
    let seen = configuration(&followed.broker).await;
    assert_eq!((seen.problems.as_slice(), seen.reloads), (problems(&state), 0));
    assert!(seen.problems_since_time.is_some());
    let after = followed.broker.get("rel").await.unwrap();
    assert_eq!((after.generation(), old.runs()), (before.generation(), 1));
    followed.write(&users(&[("rel", &new)]));
    followed.until(|state| state.problems.is_empty()).await;
    assert_eq!(followed.ask("rel").await, Ok("new".into()));
    until_health(&followed.broker, ServingStatus::Serving).await;
    let seen = configuration(&followed.broker).await;
    assert_eq!((seen.problems.len(), seen.reloads, seen.problems_since_time), (0, 1, None));
}

#[tokio::test]
async fn a_problem_in_one_file_keeps_out_all_changes() {
    let (rel, dev) = (prints("rel"), prints("dev"));
    let followed = Followed::start(&users(&[("rel", &rel)])).await;
    let broken = followed.directory.path().join("broken");
    private_file(&broken, "users: 1");
    followed.write(&users(&[("rel", &rel), ("dev", &dev)]));
    followed.broker.configure(json!({"kubeconfigs": [followed.file(), broken]}));
    followed.until(|state| !state.problems.is_empty()).await;
    assert_eq!(followed.ask("dev").await, Err(Some(Reason::UnknownProvider)));
    private_file(&broken, "apiVersion: v1\nkind: Config\n");
    followed.until(|state| state.problems.is_empty()).await;
    assert_eq!(followed.ask("dev").await, Ok("dev".into()));
}

#[tokio::test]
async fn users_of_a_file_that_is_emptied_stay_for_ten_seconds_and_are_gone_then() {
    let plugin = prints("rel");
    let followed = Followed::start(&users(&[("rel", &plugin)])).await;
    for emptied in [true, false] {
        assert_eq!(followed.ask("rel").await, Ok("rel".into()));
        if emptied {
            followed.write("");
        } else {
            fs::remove_file(followed.file()).unwrap();
        }
        let state = followed.until(|state| !state.problems.is_empty()).await;
        assert!(problems(&state)[0].contains("is empty or missing"), "{state:?}");
        assert_eq!(followed.ask("rel").await, Ok("rel".into()));
        // It comes back in time.
        private_file(&followed.file(), &users(&[("rel", &plugin)]));
        followed.until(|state| state.problems.is_empty()).await;
    }
    assert_eq!((plugin.runs(), followed.until(|_| true).await.reloads), (1, 0), "nothing has changed");
    followed.write("");
    followed.until(|state| !state.problems.is_empty()).await;
    assert_eq!(followed.ask("rel").await, Ok("rel".into()));
    followed.clock.put(11);
    followed.broker.reload();
    followed.reloads(1).await;
    assert_eq!(followed.ask("rel").await, Err(Some(Reason::UnknownProvider)));
    assert!(followed.until(|_| true).await.problems.is_empty());
    followed.write(&users(&[("rel", &plugin)]));
    followed.reloads(2).await;
    assert_eq!(followed.ask("rel").await, Ok("rel".into()));
    assert_eq!(plugin.runs(), 2, "it starts cold");
}

#[tokio::test]
async fn a_file_that_others_can_write_is_not_followed() {
    let (old, new) = (prints("old"), prints("new"));
    let followed = Followed::start(&users(&[("rel", &old)])).await;
    let mode = |mode| fs::set_permissions(followed.file(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    followed.until(|state| problems(state).iter().any(|problem| problem.contains("`chmod go-w "))).await;
    followed.write(&users(&[("rel", &new)]));
    followed.broker.reload();
    assert_eq!(followed.ask("rel").await, Ok("old".into()));
    mode(0o600);
    followed.reloads(1).await;
    assert_eq!(followed.ask("rel").await, Ok("new".into()));
}

/// Another user.
const OTHER: u32 = 3101;

/// As another user replaces `file`.
fn replaced_by_another_user(file: &Path, text: &str) {
    let new = file.with_extension("new");
    private_file(&new, text);
    chown(&new, Some(OTHER), Some(OTHER)).unwrap();
    fs::rename(new, file).unwrap();
}

#[tokio::test]
async fn a_file_of_another_user_is_not_followed() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give files to other users");
        return;
    }
    let (old, new) = (prints("old"), prints("new"));
    let followed = Followed::start(&users(&[("rel", &old)])).await;
    let says = |state: &ReloadState, text: &str| problems(state).iter().any(|problem| problem.contains(text));
    replaced_by_another_user(&followed.file(), &users(&[("rel", &new)]));
    let remedy = format!("`chown 0 {}`", followed.file().display());
    followed.until(|state| says(state, "belongs to uid 3101") && says(state, &remedy)).await;
    assert_eq!(followed.ask("rel").await, Ok("old".into()));
    let seen = configuration(&followed.broker).await;
    assert!(seen.problems.iter().any(|problem| problem.contains("belongs to uid 3101")), "{seen:?}");
    // The command that the problem names.
    chown(followed.file(), Some(0), None).unwrap();
    followed.reloads(1).await;
    assert_eq!(followed.ask("rel").await, Ok("new".into()));
    // The group of other users.
    chown(followed.file(), None, Some(OTHER)).unwrap();
    fs::set_permissions(followed.file(), fs::Permissions::from_mode(0o664)).unwrap();
    followed.until(|state| says(state, "`chmod go-w ")).await;
    assert_eq!(followed.ask("rel").await, Ok("new".into()));
}

#[tokio::test]
async fn a_file_in_a_directory_that_becomes_writable_for_others_is_not_followed() {
    let (old, new) = (prints("old"), prints("new"));
    let followed = Followed::start(&users(&[("rel", &old)])).await;
    let directory = |mode| {
        fs::set_permissions(followed.directory.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    directory(0o777);
    rename_over(&followed.file(), &users(&[("rel", &new)]));
    let remedy = format!("`chmod go-w {}`", followed.directory.path().display());
    followed.until(|state| problems(state).iter().any(|problem| problem.contains(&remedy))).await;
    assert_eq!(followed.ask("rel").await, Ok("old".into()));
    directory(0o755);
    followed.broker.reload();
    followed.reloads(1).await;
    assert_eq!(followed.ask("rel").await, Ok("new".into()));
}

#[tokio::test]
async fn certificate_authorities_that_others_can_write_are_not_followed() {
    let plugin = prints("rel");
    let directory = private_directory();
    let ca = directory.path().join("ca.pem");
    private_file(&ca, "pem");
    let cluster = json!({"server": "https://cluster.example", "certificate-authority": ca});
    let mut stanza = plugin.exec_stanza();
    stanza["provideClusterInfo"] = json!(false);
    let text = Kubeconfig::new().cluster("c", &cluster).exec_user("rel", &stanza).context("x", "c", "rel");
    let followed = Followed::start(&text.to_yaml()).await;
    fs::set_permissions(&ca, fs::Permissions::from_mode(0o666)).unwrap();
    let remedy = format!("`chmod go-w {}`", ca.display());
    followed.until(|state| problems(state).iter().any(|problem| problem.contains(&remedy))).await;
    assert_eq!(followed.ask("rel").await, Ok("rel".into()));
    fs::set_permissions(&ca, fs::Permissions::from_mode(0o600)).unwrap();
    followed.until(|state| state.problems.is_empty()).await;
}

#[tokio::test]
async fn what_cannot_change_is_said_and_the_rest_is_active() {
    let (rel, gke) = (prints("rel"), prints("gke"));
    let followed = Followed::start(&users(&[("rel", &rel)])).await;
    let more = json!({
        "kubeconfigs": [followed.file()],
        "listen": {"mode": "0660"},
        "providers": [crate::harness::provider("gke", &gke)],
    });
    followed.broker.configure(more);
    followed.reloads(1).await;
    assert_eq!(followed.ask("gke").await, Ok("gke".into()));
    assert_eq!(configuration(&followed.broker).await.restart_needed, ["listen"]);
    followed.broker.configure(json!({"kubeconfigs": [followed.file()]}));
    followed.reloads(2).await;
    assert_eq!(configuration(&followed.broker).await.restart_needed, [""; 0]);
}
