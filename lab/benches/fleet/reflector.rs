//! A program that does nothing but keep the same objects, with kube's own reflector.

use std::{
    io::{Write as _, stdout},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use credbroker_lab::hub::STAMP;
use futures_util::StreamExt as _;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};
use tokio::io::{AsyncReadExt as _, stdin};

/// The bench starts itself with this argument.
pub(crate) const COMMAND: &str = "bare-reflector";

/// The line for each list that it has read.
pub(crate) const READY: &str = "ready";

/// Keeps what is there until its input ends, and says what it saw when.
pub(crate) async fn reflect(kubeconfig: &Path, namespace: &str) -> Result<()> {
    let (kubeconfig, options) = (Kubeconfig::read_from(kubeconfig)?, KubeConfigOptions::default());
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let resource = ApiResource {
        group: "multicluster.x-k8s.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "multicluster.x-k8s.io/v1alpha1".to_owned(),
        kind: "ClusterProfile".to_owned(),
        plural: "clusterprofiles".to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(Client::try_from(config)?, namespace, &resource);
    let mut store = Writer::new(resource);
    let mut events = watcher(api, watcher::Config::default()).boxed();
    let (mut input, mut byte, mut seen) = (stdin(), [0], Vec::new());
    loop {
        let event = tokio::select! {
            event = events.next() => event.context("a watcher never ends")?,
            _ = input.read(&mut byte) => break,
        };
        // It goes on by itself after an error.
        let Ok(event) = event else { continue };
        store.apply_watcher_event(&event);
        match event {
            Event::InitDone => writeln!(stdout(), "{READY}")?,
            Event::Apply(object) => seen.push((SystemTime::now(), object)),
            Event::Init | Event::InitApply(_) | Event::Delete(_) => {}
        }
    }
    for (at, object) in seen {
        let metadata = object.metadata;
        let number = metadata.annotations.and_then(|notes| notes.get(STAMP).cloned()).context("no number")?;
        let at = at.duration_since(UNIX_EPOCH)?.as_nanos();
        writeln!(stdout(), "{} {number} {at}", metadata.name.unwrap_or_default())?;
    }
    Ok(())
}
