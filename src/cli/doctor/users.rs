//! Which users of a kubeconfig request their credentials from the broker.

use std::path::{Path, PathBuf};

use credbroker_client::safety::shell_word;
use credbroker_config::{
    self as config,
    kubeconfig::{Kubeconfig, Mode, Named, brokered, is_shim},
};
use credbroker_credential::{document::Node, text::listed};
use credbroker_plugin::Environment;

use crate::cli::{files::joined, kubeconfig::BrokerConfig, recorded::profile};

/// The users of the current kubeconfigs that the broker could serve, and that run their plugins themselves.
pub(in crate::cli) fn not_brokered(environment: &Environment) -> Vec<String> {
    let paths = Kubeconfig::default_paths(environment);
    let Ok(kubeconfig) = config::read_kubeconfig(&paths, Mode::Ambient) else { return Vec::new() };
    let served = config::definitions(&kubeconfig, environment).served;
    let is_plain = |user: &Named<'_>| {
        user.body.get("exec").is_some_and(|exec| !is_shim(exec))
            && served.iter().any(|(name, _)| name == user.name)
    };
    kubeconfig.users().into_iter().filter(is_plain).map(|user| user.name.to_owned()).collect()
}

/// Whether an earlier version wrote the stanza, which does not carry its original.
pub(in crate::cli) fn is_without_original(exec: &Node) -> bool {
    is_shim(exec)
        && matches!(brokered(exec), Ok(None))
        && super::kubeconfig::argument(exec, "--definition").is_some()
}

/// What to do about such users: the kubeconfigs that the broker reads have the originals.
pub(in crate::cli) fn from_originals(environment: &Environment) -> String {
    let config = BrokerConfig::find(None, environment).and_then(|config| config.named()).unwrap_or_default();
    let default =
        environment.set("HOME").map(|home| Path::new(home).join(".kube/config")).into_iter().collect();
    let originals = joined(if config.is_empty() { &default } else { &config }, ":");
    let (originals, profile) = (shell_word(Path::new(&originals)), profile(environment));
    format!("run `export KUBECONFIG={originals}; credbroker setup`, and change KUBECONFIG in {profile}")
}

/// The first of these kubeconfigs that has users whose stanza `is_it`, and their names.
pub(in crate::cli) fn with_users(
    paths: impl IntoIterator<Item = PathBuf>,
    is_it: fn(&Node) -> bool,
) -> Option<(PathBuf, Vec<String>)> {
    paths.into_iter().find_map(|path| {
        let kubeconfig = config::read_kubeconfig(std::slice::from_ref(&path), Mode::Ambient).ok()?;
        let users = kubeconfig.users().into_iter().filter(|user| user.body.get("exec").is_some_and(is_it));
        let names: Vec<_> = users.map(|user| user.name.to_owned()).collect();
        (!names.is_empty()).then_some((path, names))
    })
}

/// The first of the names, and the number of the others.
pub(in crate::cli) fn few(names: impl IntoIterator<Item = String>) -> String {
    const MOST: usize = 3;
    let mut names: Vec<_> = names.into_iter().collect();
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    if more == 0 { listed(&names) } else { format!("{} and {more} more", listed(&names)) }
}
