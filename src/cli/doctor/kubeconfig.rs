//! Whether the users of the kubeconfigs request their credentials from the broker, and it knows them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    os::unix::net::UnixStream,
    path::Path,
};

use credbroker_config::{
    self as config,
    kubeconfig::{Kubeconfig, is_shim},
};
use credbroker_credential::document::Node;
use credbroker_plugin::Environment;
use credbroker_runner::find_in_path;

use super::{
    Checks,
    findings::{BAD, BAD_CONFIG, GOOD, NOTE, WARNING},
    users::{few, from_originals, is_without_original},
};
use crate::cli::{files::joined, kubeconfig::goes_through};

const KUBECONFIG: &str = "kubeconfig";
const INJECT: &str = "run `credbroker kubeconfig inject`";
const OUTDATED: &str = "were edited, and the arguments of their credbroker-exec do not describe them";
const ADD: &str = "add the kubeconfig that they were written from to `kubeconfigs` of the broker's configuration, or write \
                   this one again with `credbroker kubeconfig wrap`";
const ABSENT: &str = "name a credbroker-exec that does not exist";
const INSTALL: &str =
    "install it there, or write the kubeconfig again with `credbroker kubeconfig wrap` or `inject`";
const START: &str = "start it with `credbroker proxy`, or with `credbroker serve --proxy` if no broker runs";
const ORPHANED: &str = "run a credbroker-exec of an earlier version, without the original command";

impl Checks<'_> {
    /// Whether the users of the kubeconfigs, or of `file`, request their credentials from the broker and it knows them.
    pub(super) fn kubeconfig(&mut self, file: Option<&Path>) {
        let (paths, mode) = Kubeconfig::chosen(file, self.environment);
        let list = joined(&paths, ":");
        match config::read_kubeconfig(&paths, mode) {
            Ok(kubeconfig) if kubeconfig.files.is_empty() => {
                self.findings.add(KUBECONFIG, NOTE, format!("there is none: {list}"), "");
            }
            Ok(kubeconfig) => self.users(&kubeconfig, &list),
            Err(error) => {
                self.findings.add(KUBECONFIG, BAD_CONFIG, error.to_string(), "correct the file");
            }
        }
    }

    fn users(&mut self, kubeconfig: &Kubeconfig, list: &str) {
        let config::Definitions { served, warnings, .. } = config::definitions(kubeconfig, self.environment);
        let served: HashMap<_, _> = served.into_iter().collect();
        let providers = self.running.as_ref().map(|running| running.providers.iter());
        let known: Option<HashSet<_>> =
            providers.map(|providers| providers.filter_map(|known| known.definition.as_deref()).collect());
        let [mut brokered, mut proxied, mut plain, mut outdated, mut unknown, mut broken, mut orphaned] =
            [const { Vec::new() }; 7];
        let (mut is_proxied, mut silent) = (false, BTreeMap::<_, Vec<_>>::new());
        for user in kubeconfig.users() {
            let Some(exec) = user.body.get("exec") else { continue };
            let (name, definition) = (user.name.to_owned(), served.get(user.name));
            if !is_shim(exec) {
                plain.extend(definition.map(|_| name));
                continue;
            }
            let digest = definition.map(|known| &*known.digest);
            let is_unknown = |digest| known.as_ref().is_some_and(|known| !known.contains(digest));
            if definition.is_some_and(|definition| definition.is_outdated) {
                outdated.push(name.clone());
            } else if is_without_original(exec) {
                orphaned.push(name.clone());
            } else if digest.is_some_and(is_unknown) {
                unknown.push(name.clone());
            }
            if !is_command_there(exec, user.file, self.environment) {
                broken.push(name.clone());
            }
            if !goes_through(exec) {
                brokered.push(name);
                continue;
            }
            is_proxied = true;
            match argument(exec, "--socket").filter(|socket| UnixStream::connect(socket).is_err()) {
                Some(socket) => silent.entry(socket).or_default().push(name),
                None => proxied.push(name),
            }
        }
        if [&outdated, &unknown, &broken, &orphaned].iter().any(|names| !names.is_empty()) {
            brokered.clear();
            proxied.clear();
        }
        for (level, names, text, remedy) in [
            (BAD, outdated, format!("these users of {list} {OUTDATED}"), INJECT),
            (BAD, unknown, format!("the broker does not know the definitions of these users of {list}"), ADD),
            (BAD, orphaned, format!("these users of {list} {ORPHANED}"), &from_originals(self.environment)),
            (BAD, broken, format!("these users of {list} {ABSENT}"), INSTALL),
            (GOOD, brokered, format!("{list}: these users use the broker"), ""),
            (GOOD, proxied, format!("{list}: these users go through the proxy"), ""),
            (WARNING, plain, format!("these users of {list} run their plugin themselves"), INJECT),
        ] {
            if !names.is_empty() {
                self.findings.add(KUBECONFIG, level, format!("{text}: {}", few(names)), remedy);
            }
        }
        for (socket, names) in silent {
            let text = format!("no proxy answers on {socket}, for these users of {list}: {}", few(names));
            self.findings.add(KUBECONFIG, BAD, text, START);
        }
        for problem in warnings {
            self.findings.add(KUBECONFIG, WARNING, problem.to_string(), "correct the kubeconfig");
        }
        self.findings.or(KUBECONFIG, NOTE, || format!("no user of {list} runs an exec plugin"));
        if is_proxied {
            self.http_proxy();
        }
    }
}

pub(super) fn argument<'a>(exec: &'a Node, name: &str) -> Option<&'a str> {
    let args = exec.get("args")?.as_sequence()?;
    let at = args.iter().position(|arg| arg.as_str() == Some(name))?;
    args.get(at + 1)?.as_str()
}

fn is_command_there(exec: &Node, file: &Path, environment: &Environment) -> bool {
    let Some(command) = exec.get("command").and_then(Node::as_str) else { return false };
    if !command.contains('/') {
        return find_in_path(command, environment.get("PATH").unwrap_or_default()).is_some();
    }
    file.parent().unwrap_or(Path::new("/")).join(command).is_file()
}
