//! `tests/interop/programs/fleet.rs`: a controller of a fleet whose clusters are added, rotate, move and are removed.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    time::Duration,
};

use credbroker_proto::v1::Cluster;
use credbroker_test_support::{Accepts, ApiServer, Collection};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::unix::pipe,
    time::timeout,
};

use crate::broker::{FakeBroker, issued};

const GENEROUS: Duration = Duration::from_secs(30);

/// The example as a process, and what it says.
struct Controller {
    child: Child,
    lines: Lines<BufReader<pipe::Receiver>>,
    /// How often each thing was said.
    said: BTreeMap<String, usize>,
}

impl Controller {
    fn start(broker: &FakeBroker) -> Self {
        let deps = std::env::current_exe().unwrap();
        let example = deps.ancestors().nth(2).unwrap().join("examples/fleet");
        assert!(
            example.is_file(),
            "no {}; build it with: cargo build -p credbroker-kube --example fleet",
            example.display()
        );
        let mut child = Command::new(example)
            .args(["--drain-ms", "200", "--socket"])
            .arg(broker.path())
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = std::os::fd::OwnedFd::from(child.stdout.take().unwrap());
        let lines = BufReader::new(pipe::Receiver::from_owned_fd(stdout).unwrap()).lines();
        Self { child, lines, said: BTreeMap::new() }
    }

    /// Waits until it says this: `change cluster`, or `change cluster config_map`.
    async fn says(&mut self, wanted: &str) {
        let reads = async {
            while !self.said.contains_key(wanted) {
                let line = self.lines.next_line().await.unwrap().unwrap();
                let said: Value = serde_json::from_str(&line).unwrap();
                let text = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
                let words = ["change", "cluster", "config_map"].into_iter().filter_map(text);
                *self.said.entry(words.collect::<Vec<_>>().join(" ")).or_default() += 1;
            }
        };
        let outcome = timeout(GENEROUS, reads).await;
        assert!(outcome.is_ok(), "it never said {wanted:?}, but {:?}", self.said);
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn put(api: &ApiServer, name: &str) {
    api.apply(Collection::ConfigMaps, "default", name, json!({"data": {"of": name}}));
}

fn at(api: &ApiServer) -> Cluster {
    Cluster { server: api.url(), certificate_authority_data: Some(api.ca_pem().into()), ..Cluster::default() }
}

#[tokio::test]
async fn a_controller_sees_every_event_of_its_fleet_once_through_rotations_moves_and_restarts() {
    let (paris, lyon, tokyo) = (
        ApiServer::start(Accepts::Either),
        ApiServer::start(Accepts::Either),
        ApiServer::start(Accepts::Either),
    );
    for api in [&lyon, &tokyo] {
        api.accept_token("token");
    }
    let pairs: Vec<_> = (0..6)
        .map(|number| paris.issue_client_certificate(&format!("n{number}"), Duration::from_secs(3600)))
        .collect();
    let mut broker = FakeBroker::start();
    broker.hub_is_synced(true);
    broker.issue_for("paris", issued("0", pairs.first(), None), at(&paris));
    broker.enlist("paris", at(&paris));
    put(&paris, "before");
    let mut controller = Controller::start(&broker);
    controller.says("added fleet/paris").await;
    controller.says("applied fleet/paris before").await;

    broker.issue_for("tokyo", issued("t", None, Some("token")), at(&tokyo));
    broker.enlist("tokyo", at(&tokyo));
    controller.says("added fleet/tokyo").await;
    for (number, pair) in pairs.iter().enumerate().skip(1) {
        let generation = number.to_string();
        broker.issue_for("paris", issued(&generation, Some(pair), None), at(&paris));
        // While the watch moves over to the next certificate, and after it has.
        put(&paris, &format!("during-{number}"));
        paris.until_open(Some(&format!("n{}", number - 1)), 0).await;
        put(&paris, &format!("after-{number}"));
        put(&tokyo, &format!("there-{number}"));
        controller.says(&format!("applied fleet/paris after-{number}")).await;
        controller.says(&format!("applied fleet/tokyo there-{number}")).await;
        controller.says(&format!("applied fleet/paris during-{number}")).await;
    }
    paris.delete(Collection::ConfigMaps, "default", "before");
    controller.says("removed fleet/paris before").await;

    // Its place in the history is lost: it lists again, and says what that changes.
    tokyo.compact();
    tokyo.expire_watches();
    put(&tokyo, "relisted");
    controller.says("applied fleet/tokyo relisted").await;

    broker.kill();
    put(&tokyo, "alone");
    controller.says("applied fleet/tokyo alone").await;
    // Another cluster at another address, whose revisions mean something else.
    put(&lyon, "of-lyon");
    broker.issue_for("paris", issued("moved", None, Some("token")), at(&lyon));
    broker.enlist("paris", at(&lyon));
    broker.restart();
    controller.says("changed fleet/paris").await;
    controller.says("applied fleet/paris of-lyon").await;
    controller.says("removed fleet/paris after-5").await;
    put(&lyon, "of-lyon-later");
    controller.says("applied fleet/paris of-lyon-later").await;

    broker.display("tokyo", None);
    controller.says("removed fleet/tokyo").await;
    tokyo.until_watched(Collection::ConfigMaps, 0).await;
    let repeated: Vec<_> = controller.said.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
}
