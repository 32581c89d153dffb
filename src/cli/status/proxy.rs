//! What the proxy does, for `credbroker status`: one request on one of its Unix sockets.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use credbroker_config::{self as config, ProxySection};
use credbroker_credential::text::one_line;
use credbroker_exec::ask_proxy;
use credbroker_plugin::Environment;
use credbroker_proxy::{HANDLES, Usage};
use serde_json::{Value, json};

use crate::{
    app::PROXY_SOCKET,
    cli::screen::{Screen, Tone, counted, fitted, size, wrapped},
};

const ANSWER: Duration = Duration::from_secs(5);

/// A proxy that runs, and the socket on which it answers.
#[derive(Debug)]
pub(super) struct RunningProxy {
    socket: PathBuf,
    usage: Usage,
}

impl RunningProxy {
    /// The first one that answers. `None`: no proxy runs, or this user may list nothing.
    pub(super) fn find(environment: &Environment) -> Option<Self> {
        sockets(environment).into_iter().find_map(|socket| {
            // A proxy that has crashed is not waited for.
            UnixStream::connect(&socket).ok()?;
            let answer = ask_proxy(&socket, "GET", "/status", ANSWER).ok()?;
            Some(Self { usage: serde_json::from_str(&answer).ok()?, socket })
        })
    }

    pub(super) fn document(&self) -> Value {
        let Usage { connections, targets } = &self.usage;
        json!({"socket": self.socket, "connections": connections, "targets": targets})
    }

    pub(super) fn text(&self, screen: Screen) -> String {
        let Usage { connections, targets } = &self.usage;
        let connections = counted(*connections as u64, "connection");
        let line = format!("proxy   {connections}, on {}", one_line(&self.socket.to_string_lossy()));
        let mut text = wrapped(&line, 8, screen.width());
        if !targets.is_empty() {
            let rows: Vec<_> = targets
                .iter()
                .map(|target| {
                    let counts = [target.requests.to_string(), target.streams.to_string()];
                    let [requests, streams] = counts;
                    let (up, down) = (size(target.bytes_up), size(target.bytes_down));
                    (Tone::Plain, [one_line(&target.name), requests, streams, up, down])
                })
                .collect();
            text.push('\n');
            text.push_str(&fitted(HEAD, &rows, (0, &[3, 4]), screen));
        }
        text
    }
}

const HEAD: [&str; 5] = ["TARGET", "REQUESTS", "STREAMS", "UP", "DOWN"];

/// Where the proxy of the configuration, or else the usual one, may answer.
fn sockets(environment: &Environment) -> Vec<PathBuf> {
    let is_there = config::place(None, environment).is_some_and(|(_, exists)| exists);
    let loaded = if is_there { config::load(None, environment).ok() } else { None };
    let section = loaded.and_then(|loaded| loaded.config.proxy).unwrap_or_default();
    let own = section.directory(environment, rustix::process::geteuid().is_root());
    let system = section.directory.is_none().then(|| PathBuf::from(ProxySection::SYSTEM));
    let mut directories = vec![own];
    directories.extend(system.filter(|system| !directories.contains(system)));
    let of = |directory: &PathBuf| {
        let listen = section.sockets.iter();
        let listen =
            listen.map(|listen| listen.socket.clone().unwrap_or_else(|| directory.join(PROXY_SOCKET)));
        std::iter::once(directory.join(HANDLES)).chain(listen).collect::<Vec<_>>()
    };
    directories.iter().flat_map(of).filter(|socket: &PathBuf| Path::exists(socket)).collect()
}

#[cfg(test)]
mod tests {
    use credbroker_proxy::TargetUse;

    use super::*;

    #[test]
    fn targets_are_shown_with_what_goes_to_them() {
        let target = |name: &str, streams, bytes_down| TargetUse {
            name: name.to_owned(),
            path: format!("/clusters/{name}"),
            requests: 7,
            streams,
            bytes_up: 512,
            bytes_down,
        };
        let targets = vec![target("fleet/paris", 2, 5 << 20), target("a\nb", 0, 0)];
        let usage = Usage { connections: 1, targets };
        let running = RunningProxy { socket: "/run/credbroker-proxy/handles.sock".into(), usage };
        insta::assert_snapshot!(running.text(Screen::default()), @r"
        proxy   1 connection, on /run/credbroker-proxy/handles.sock

        TARGET       REQUESTS  STREAMS  UP   DOWN
        fleet/paris  7         2        512  5.0Mi
        a b          7         0        512  0
        ");
        let document = running.document();
        assert_eq!(
            (&document["connections"], &document["targets"][0]["bytesDown"]),
            (&json!(1), &json!(5 << 20))
        );
        assert_eq!(document["targets"][0]["streams"], 2);
    }
}
