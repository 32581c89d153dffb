//! A controller for a whole fleet: one kube client for each usable `ClusterProfile` of the broker, and on each a watch of
//! the config maps in `default`.
//!
//! `fleet [--namespace NAMESPACE] [--socket PATH] [--drain-ms N] [--seconds S]`
//!
//! Prints a line of JSON for each cluster that is added, changed or removed, and for each config map that is new, changed
//! or removed:
//!
//! ```json
//! {"event":"cluster","change":"added","cluster":"fleet/paris","readiness":"READY","server":"https://…"}
//! {"event":"config_map","change":"applied","cluster":"fleet/paris","config_map":"settings","resource_version":"7"}
//! ```
//!
//! Rotations of tokens and certificates are not visible: a watch that ends with its certificate continues. A cluster that
//! moves is listed again, because another address may be another cluster.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program prints and starts tasks"
)]

mod chain;

use std::{collections::BTreeMap, error::Error, ffi::OsString, sync::Arc, time::Duration};

use credbroker_client::{
    Broker, ClusterEvent, ClusterState, Credential, CredentialRef, CredentialSource, Socket,
};
use credbroker_kube::{BuildError, ClusterBuilder};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use chain::chain;

const USAGE: &str = "usage: fleet [--namespace NAMESPACE] [--socket PATH] [--drain-ms N] [--seconds S]";

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Debug, Default)]
struct Arguments {
    namespace: Option<String>,
    socket: Option<OsString>,
    drain: Option<Duration>,
    duration: Option<Duration>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments = parse(std::env::args_os().skip(1)).map_err(|problem| format!("{problem}\n{USAGE}"))?;
    let socket = match &arguments.socket {
        Some(socket) => Socket::at(socket),
        None => Socket::from_env()?,
    };
    let end = async {
        match arguments.duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = follow_fleet(Broker::at(socket), &arguments) => {}
        () = end => {}
    }
    Ok(())
}

/// One task for each cluster that can be used; it ends with the cluster.
async fn follow_fleet(broker: Broker, arguments: &Arguments) {
    let mut clusters = match &arguments.namespace {
        Some(namespace) => broker.clusters_in(namespace),
        None => broker.clusters(),
    };
    let mut tasks = BTreeMap::new();
    if let Err(error) = clusters.ready().await {
        eprintln!("the fleet: {}", chain(&error));
    }
    loop {
        let (change, cluster) = match clusters.event().await {
            ClusterEvent::Added(cluster) => ("added", cluster),
            ClusterEvent::Changed(cluster) => ("changed", cluster),
            ClusterEvent::Removed(cluster) => ("removed", cluster),
            _ => continue,
        };
        let name = cluster.profile.to_string();
        println!(
            "{}",
            json!({
                "event": "cluster", "change": change, "cluster": name,
                "readiness": format!("{:?}", cluster.readiness).to_uppercase(),
                "server": cluster.cluster.as_ref().map(|cluster| &cluster.server),
            })
        );
        if change == "removed" || cluster.cluster.is_none() {
            tasks.remove(&name);
        } else {
            tasks.entry(name).or_insert_with(|| {
                let follow = follow_cluster(broker.clone(), cluster, arguments.drain);
                AbortOnDropHandle::new(tokio::spawn(follow))
            });
        }
    }
}

/// For as long as the cluster is in the fleet. Its client is made once.
async fn follow_cluster(broker: Broker, cluster: Arc<ClusterState>, drain: Option<Duration>) {
    let source = broker.source(CredentialRef::from(cluster.profile.clone()));
    let name = cluster.profile.to_string();
    let client = match connect(&source, drain) {
        Ok(client) => client,
        Err(error) => {
            eprintln!("{name}: {}", chain(&error));
            return;
        }
    };
    let mut seen = Seen::default();
    loop {
        match source.ready().await {
            Ok(here) => {
                tokio::select! {
                    () = follow_config_maps(&client, &name, &mut seen) => {}
                    () = moved(source.clone(), &here) => {}
                }
            }
            Err(error) => {
                eprintln!("{name}: {}", chain(&error));
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Needs no broker yet: the first request waits for it.
fn connect(source: &CredentialSource, drain: Option<Duration>) -> Result<Client, BuildError> {
    let builder = ClusterBuilder::new(source.clone());
    match drain {
        Some(drain) => builder.drain(drain).build(),
        None => builder.build(),
    }
}

/// Until the cluster is elsewhere than `here` was for.
async fn moved(mut source: CredentialSource, here: &Credential) {
    while source.current().is_none_or(|now| now.has_same_endpoint(here)) {
        source.changed().await;
    }
}

async fn follow_config_maps(client: &Client, cluster: &str, seen: &mut Seen) {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let events = watcher(config_maps, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => seen.apply_event(cluster, event),
            Err(error) => eprintln!("{cluster}: {}", chain(&error)),
        }
    }
}

/// The config maps of one cluster: what a list that comes again no longer has is gone.
#[derive(Debug, Default)]
struct Seen {
    known: BTreeMap<String, Version>,
    listing: BTreeMap<String, Version>,
}

/// A config map's uid and resource version.
type Version = (Option<String>, Option<String>);

impl Seen {
    fn apply_event(&mut self, cluster: &str, event: Event<ConfigMap>) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(config_map) => {
                let version = self.apply(cluster, &config_map);
                self.listing.insert(config_map.name_any(), version);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                for (gone, version) in self.known.iter().filter(|(name, _)| !listed.contains_key(*name)) {
                    print(cluster, "removed", gone, version);
                }
                self.known = listed;
            }
            Event::Apply(config_map) => drop(self.apply(cluster, &config_map)),
            Event::Delete(config_map) => {
                if let Some(version) = self.known.remove(&config_map.name_any()) {
                    print(cluster, "removed", &config_map.name_any(), &version);
                }
            }
        }
    }

    fn apply(&mut self, cluster: &str, config_map: &ConfigMap) -> Version {
        let (name, version) = (config_map.name_any(), (config_map.uid(), config_map.resource_version()));
        if version.1.is_none() || self.known.get(&name) != Some(&version) {
            print(cluster, "applied", &name, &version);
        }
        self.known.insert(name, version.clone());
        version
    }
}

fn print(cluster: &str, change: &str, config_map: &str, (_, resource_version): &Version) {
    println!(
        "{}",
        json!({
            "event": "config_map", "change": change, "cluster": cluster,
            "config_map": config_map, "resource_version": resource_version,
        })
    );
}

fn parse(mut given: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(flag) = given.next() {
        let flag = flag.to_string_lossy().into_owned();
        let value = given.next().ok_or(format!("{flag} needs a value"))?;
        let text = |value: OsString| value.into_string().map_err(|_value| format!("{flag} is not text"));
        let number =
            |value: OsString| text(value)?.parse::<u64>().map_err(|error| format!("{flag}: {error}"));
        match flag.as_str() {
            "--namespace" => arguments.namespace = Some(text(value)?),
            "--socket" => arguments.socket = Some(value),
            "--drain-ms" => arguments.drain = Some(Duration::from_millis(number(value)?)),
            "--seconds" => arguments.duration = Some(Duration::from_secs(number(value)?)),
            other => return Err(format!("{other} is not a known flag")),
        }
    }
    Ok(arguments)
}
