//! The checks of the kubeconfig: which of its users use the broker, and whether that works.

use std::path::{Path, PathBuf};

use super::{broker::RunningBroker, finding::Finding};
use crate::cli::EX_CONFIG;
use credbroker_config as config;
use credbroker_config::kubeconfig::{Kubeconfig, is_shim};
use credbroker_credential::{document::Node, text::listed};
use credbroker_plugin::Environment;
use credbroker_runner::find_in_path;

const CHECK: &str = "kubeconfig";

pub(super) fn check(
    file: Option<&Path>,
    running: Option<&RunningBroker>,
    environment: &Environment,
) -> Vec<Finding> {
    let (paths, mode) = Kubeconfig::chosen(file, environment);
    let list = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let kubeconfig = match config::read_kubeconfig(&paths, mode) {
        Ok(kubeconfig) if kubeconfig.files().is_empty() => {
            return vec![Finding::note(CHECK, format!("there is none: {list}"))];
        }
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            return vec![Finding::error(CHECK, EX_CONFIG, error.to_string()).remedy("correct the file")];
        }
    };
    let mut findings = through_broker(&kubeconfig, running, environment, &list);
    findings.extend(direct(&kubeconfig, environment, &list));
    if findings.is_empty() {
        findings.push(Finding::note(CHECK, format!("no user of {list} runs an exec plugin")));
    }
    findings
}

/// The users that run the shim.
fn through_broker(
    kubeconfig: &Kubeconfig,
    running: Option<&RunningBroker>,
    environment: &Environment,
    list: &str,
) -> Vec<Finding> {
    let users = kubeconfig.users();
    let stanzas = users.iter().filter_map(|user| Some((user.name, user.body.get("exec")?, user.file)));
    let shims: Vec<_> = stanzas.filter(|(_, exec, _)| is_shim(exec)).collect();
    let (mut unknown, mut broken) = (Vec::new(), Vec::new());
    let known = running.map(RunningBroker::definitions);
    for (name, exec, file) in &shims {
        let definition = argument(exec, "--definition");
        if definition.is_some_and(|digest| known.as_ref().is_some_and(|known| !known.contains(digest))) {
            unknown.push((*name).to_owned());
        }
        if !is_there(exec, file, environment) {
            broken.push((*name).to_owned());
        }
    }
    let mut findings = Vec::new();
    if !unknown.is_empty() {
        let text = format!(
            "the broker does not know the definitions of these users of {list}: {}",
            listed(&unknown)
        );
        let remedy = "add the kubeconfig that they were written from to `kubeconfigs` of the broker's configuration, or write this one again with `credbroker kubeconfig wrap`";
        findings.push(Finding::error(CHECK, 1, text).remedy(remedy));
    }
    if !broken.is_empty() {
        let text =
            format!("these users of {list} name a credbroker-exec that does not exist: {}", listed(&broken));
        let remedy =
            "install it there, or write the kubeconfig again with `credbroker kubeconfig wrap` or `inject`";
        findings.push(Finding::error(CHECK, 1, text).remedy(remedy));
    }
    if findings.is_empty() && !shims.is_empty() {
        let names: Vec<_> = shims.iter().map(|(name, ..)| (*name).to_owned()).collect();
        findings.push(Finding::ok(CHECK, format!("{list}: these users use the broker: {}", listed(&names))));
    }
    findings
}

/// The users that run their plugin themselves.
fn direct(kubeconfig: &Kubeconfig, environment: &Environment, list: &str) -> Vec<Finding> {
    let definitions = config::definitions(kubeconfig, environment);
    let mut findings = Vec::new();
    let names: Vec<_> = definitions.served.into_iter().map(|(name, _)| name).collect();
    if !names.is_empty() {
        let text = format!("these users of {list} run their plugin themselves: {}", listed(&names));
        let remedy = "run `credbroker kubeconfig wrap -o ~/.kube/broker` and `export KUBECONFIG=~/.kube/broker`, or `credbroker kubeconfig inject`";
        findings.push(Finding::warning(CHECK, text, remedy));
    }
    let problems = definitions
        .warnings
        .iter()
        .map(|problem| Finding::warning(CHECK, problem.to_string(), "correct the kubeconfig"));
    findings.extend(problems);
    findings
}

/// The value of the flag `name` in the arguments of a stanza.
fn argument<'a>(exec: &'a Node, name: &str) -> Option<&'a str> {
    let args = exec.get("args")?.as_sequence()?;
    let at = args.iter().position(|arg| arg.as_str() == Some(name))?;
    args.get(at + 1)?.as_str()
}

fn is_there(exec: &Node, file: &Path, environment: &Environment) -> bool {
    let Some(command) = exec.get("command").and_then(Node::as_str) else { return false };
    if !command.contains('/') {
        return find_in_path(command, environment.get("PATH").unwrap_or_default()).is_some();
    }
    let path: PathBuf = file.parent().unwrap_or(Path::new("/")).join(command);
    path.is_file()
}
