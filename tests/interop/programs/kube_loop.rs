//! Requests the version of a Kubernetes API server repeatedly, with the credentials of a provider.
//!
//! `kube_loop --provider NAME --server URL --ca FILE [--socket PATH] --interval-ms N --seconds S [--watch-pods]`
//!
//! Prints each status code when it is first seen, and at the end `requests=N ok=N unauthorized=N errors=N`. With
//! `--watch-pods` a watch is kept open, and opened again when it ends.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program prints")]

mod chain;

use std::{collections::BTreeSet, error::Error, ffi::OsString, fs, path::PathBuf, time::Duration};

use credbroker_client::{Broker, Cluster, CredentialRef, Socket};
use credbroker_kube::Builder;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::{WatchEvent, WatchParams},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::time::{MissedTickBehavior, interval, sleep};

use chain::chain;

const USAGE: &str = "usage: kube_loop --provider NAME --server URL --ca FILE [--socket PATH] --interval-ms N --seconds S [--watch-pods]";

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Debug, Default)]
struct Arguments {
    provider: String,
    server: String,
    ca: PathBuf,
    socket: Option<OsString>,
    interval: Duration,
    duration: Duration,
    watch_pods: bool,
}

#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    ok: u64,
    unauthorized: u64,
    errors: u64,
    seen: BTreeSet<u16>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments = parse(std::env::args_os().skip(1)).map_err(|problem| format!("{problem}\n{USAGE}"))?;
    let client = connect(&arguments).await?;
    let watching = async {
        if arguments.watch_pods {
            watch_pods(client.clone()).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let mut counts = Counts::default();
    tokio::select! {
        () = request_repeatedly(&client, arguments.interval, &mut counts) => {}
        () = watching => {}
        () = sleep(arguments.duration) => {}
    }
    let Counts { requests, ok, unauthorized, errors, .. } = counts;
    println!("requests={requests} ok={ok} unauthorized={unauthorized} errors={errors}");
    Ok(())
}

async fn connect(arguments: &Arguments) -> Result<Client, BoxError> {
    let socket = match &arguments.socket {
        Some(socket) => Socket::at(socket),
        None => Socket::from_env()?,
    };
    let authorities = fs::read(&arguments.ca)?;
    // For a provider with `provideClusterInfo`; the broker drops what a plugin does not ask for.
    let mut cluster = Cluster::at(&arguments.server);
    cluster.certificate_authority_data = Some(authorities.clone());
    let reference = CredentialRef::provider(&arguments.provider).cluster(cluster);
    let source = Broker::at(socket).source(reference);
    source.ready().await?;
    let mut config = Config::new(arguments.server.parse()?);
    let authorities: Vec<_> = CertificateDer::pem_slice_iter(&authorities).collect::<Result<_, _>>()?;
    config.root_cert = Some(authorities.iter().map(|certificate| certificate.to_vec()).collect());
    config.default_retry = false;
    Ok(Builder::new(config, source).build()?)
}

/// One request at a time. A slow response delays the next request.
async fn request_repeatedly(client: &Client, every: Duration, counts: &mut Counts) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = client.apiserver_version().await;
        counts.requests += 1;
        match answer {
            Ok(_) => {
                counts.ok += 1;
                counts.saw(200);
            }
            Err(kube::Error::Api(status)) => {
                counts.unauthorized += u64::from(status.code == 401);
                counts.errors += u64::from(status.code != 401);
                counts.saw(status.code);
            }
            Err(error) => {
                counts.errors += 1;
                eprintln!("error: {}", chain(&error));
            }
        }
    }
}

impl Counts {
    fn saw(&mut self, status: u16) {
        if self.seen.insert(status) {
            println!("status {status}");
        }
    }
}

async fn watch_pods(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client, "default");
    loop {
        match pods.watch(&WatchParams::default(), "0").await {
            Ok(events) => {
                let mut events = std::pin::pin!(events);
                while let Some(Ok(event)) = events.next().await {
                    if let WatchEvent::Error(status) = event {
                        eprintln!("watch: {}", status.message);
                        break;
                    }
                }
            }
            Err(error) => eprintln!("watch: {}", chain(&error)),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn parse(mut given: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(flag) = given.next() {
        let flag = flag.to_string_lossy().into_owned();
        let mut value = || given.next().ok_or(format!("{flag} needs a value"));
        let text = |value: OsString| value.into_string().map_err(|_value| format!("{flag} is not text"));
        let number =
            |value: OsString| text(value)?.parse::<u64>().map_err(|error| format!("{flag}: {error}"));
        match flag.as_str() {
            "--provider" => arguments.provider = text(value()?)?,
            "--server" => arguments.server = text(value()?)?,
            "--ca" => arguments.ca = value()?.into(),
            "--socket" => arguments.socket = Some(value()?),
            "--interval-ms" => arguments.interval = Duration::from_millis(number(value()?)?),
            "--seconds" => arguments.duration = Duration::from_secs(number(value()?)?),
            "--watch-pods" => arguments.watch_pods = true,
            other => return Err(format!("{other} is not a known flag")),
        }
    }
    let missing = [
        (arguments.provider.is_empty(), "--provider"),
        (arguments.server.is_empty(), "--server"),
        (arguments.ca.as_os_str().is_empty(), "--ca"),
        (arguments.interval.is_zero(), "--interval-ms"),
        (arguments.duration.is_zero(), "--seconds"),
    ];
    match missing.into_iter().find(|(is_missing, _)| *is_missing) {
        Some((_, name)) => Err(format!("{name} is missing")),
        None => Ok(arguments),
    }
}
