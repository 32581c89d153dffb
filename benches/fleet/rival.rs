//! The bare limit: a program that does nothing but keep the same objects, with kube's own reflector.

use std::{
    io::{BufRead as _, BufReader, Write as _, stdout},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
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

use crate::{
    hub::{Hub, STAMP},
    ledger::Note,
    process_memory, processor,
};

/// The bench starts itself with this argument.
pub(crate) const COMMAND: &str = "bare-reflector";

const READY: &str = "ready";

/// Keeps what is there until its input ends, and says what it saw when. Each list that it has read is a line of output.
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

/// The program as a child.
#[derive(Debug)]
pub(crate) struct Rival {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Rival {
    pub(crate) fn start(hub: &Hub, namespace: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(COMMAND).arg(&hub.kubeconfig).arg(namespace);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        Ok(Self { child, input, output })
    }

    /// Waits until it has read all that there is, once more.
    pub(crate) fn until_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.trim() == READY, "the bare reflector said {line:?}");
        Ok(())
    }

    pub(crate) fn resident(&self) -> Result<u64> {
        process_memory::resident(self.child.id())
    }

    pub(crate) fn processor_time(&self) -> Result<Duration> {
        processor::used(self.child.id())
    }

    /// Ends it, and returns which changes it saw.
    pub(crate) fn end(mut self) -> Result<Vec<Note>> {
        drop(self.input.take());
        let mut seen = Vec::new();
        for line in (&mut self.output).lines() {
            let line = line?;
            let fields: Vec<_> = line.split(' ').collect();
            let [profile, number, at] = fields.as_slice() else { continue };
            let at = UNIX_EPOCH + Duration::from_nanos(at.parse()?);
            seen.push(Note { profile: (*profile).to_owned(), number: number.parse()?, at });
        }
        Ok(seen)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
