//! Kubeconfigs that a command reads, to rewrite them or to add them to a configuration.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use super::{
    file,
    kubeconfig::{Kubeconfig, Mode, variables},
    problem::{ConfigError, Problem, Report},
};
use credbroker_plugin::{Definition, Environment, Globs};

impl Kubeconfig {
    /// The paths that a command reads, and how: the one that a person named, else those of the environment.
    pub fn chosen(named: Option<&Path>, env: &Environment) -> (Vec<PathBuf>, Mode) {
        let Some(path) = named else { return (Self::default_paths(env), Mode::Ambient) };
        (vec![std::path::absolute(path).unwrap_or_else(|_| path.to_owned())], Mode::Named)
    }

    /// The files of `KUBECONFIG`, or `~/.kube/config`. None of them need exist.
    pub fn default_paths(env: &Environment) -> Vec<PathBuf> {
        let Some(list) = env.set("KUBECONFIG") else {
            return env.set("HOME").map(|home| Path::new(home).join(".kube/config")).into_iter().collect();
        };
        let mut seen = HashSet::new();
        let absolute = std::env::split_paths(list).filter_map(|path| std::path::absolute(path).ok());
        absolute.filter(|path| seen.insert(path.clone())).collect()
    }
}

/// Reads kubeconfigs for a command that rewrites them.
pub fn read_kubeconfig(paths: &[PathBuf], mode: Mode) -> Result<Kubeconfig, ConfigError> {
    let mut report = Report::default();
    let kubeconfig = Kubeconfig::read(paths, mode, &mut report);
    report.finish(Some(kubeconfig)).map(|(kubeconfig, _)| kubeconfig)
}

/// The users of a kubeconfig that become providers.
#[derive(Debug)]
pub struct Definitions {
    /// Those that the broker can serve, by name, each with what identifies it.
    pub served: Vec<(String, Definition)>,
    /// Why other users do not become providers.
    pub warnings: Vec<Problem>,
}

/// The users of `kubeconfig` that become providers. Of several users of one name it is the first one, as client-go reads
/// the list.
pub fn definitions(kubeconfig: &Kubeconfig, env: &Environment) -> Definitions {
    let mut report = Report::default();
    let providers = kubeconfig.providers(&variables(env, Globs::default()), Mode::Ambient, &mut report);
    let users = kubeconfig.users();
    let first: HashSet<_> = users.iter().map(|user| (user.name, user.identity)).collect();
    let mut served = Vec::new();
    for provider in providers {
        let Some(definition) = provider.definition else { continue };
        let name = provider.name.to_string();
        if first.contains(&(name.as_str(), definition.file())) {
            served.push((name, definition));
        }
    }
    Definitions { served, warnings: [report.refused, report.warnings].concat() }
}

/// A kubeconfig as the configuration `config` names it, as an absolute path.
pub fn expanded(config: &Path, kubeconfig: &str, env: &Environment) -> PathBuf {
    config.parent().unwrap_or(Path::new("/")).join(file::expand(kubeconfig, env))
}
