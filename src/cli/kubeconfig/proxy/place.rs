//! Where the proxy is: its loopback port, the file of its authority, and the socket that gives handles.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use credbroker_config::{self as config, ProxySection};
use credbroker_plugin::Environment;
use credbroker_proxy::{AUTHORITY, HANDLES};

/// What a kubeconfig needs to know of the proxy.
#[derive(Debug)]
pub(super) struct Place {
    /// The URL, without a path.
    pub(super) server: String,
    /// The file of the certificate authority.
    pub(super) authority: PathBuf,
    /// The socket that gives handles.
    pub(super) handles: PathBuf,
}

impl Place {
    /// By the configuration `file`, or the one that the broker would use.
    pub(super) fn find(file: Option<&Path>, environment: &Environment) -> anyhow::Result<Self> {
        let is_named = file.is_some() || environment.set("CREDBROKER_CONFIG").is_some();
        let is_there = || config::place(file, environment).is_some_and(|(_, exists)| exists);
        let section =
            if is_named || is_there() { config::load(file, environment)?.config.proxy } else { None };
        let section = section.unwrap_or_default();
        let tls = section.tls.context(
            "the proxy has no loopback port, because `proxy.tls` is not in the configuration; add `tls: {}` to `proxy`",
        )?;
        Ok(Self::at(tls.listen, &directory(&section, environment)))
    }

    pub(super) fn at(listen: SocketAddr, directory: &Path) -> Self {
        Self {
            server: format!("https://{listen}"),
            authority: directory.join(AUTHORITY),
            handles: directory.join(HANDLES),
        }
    }

    /// What to do before the kubeconfig can be used. `None`: nothing.
    pub(super) fn advice(&self) -> Option<String> {
        let is_there = self.authority.exists();
        let absent = || {
            let file = self.authority.display();
            format!(
                "No proxy has run since the last boot, because there is no {file}. Start it: `credbroker proxy`, or `credbroker serve --proxy` if no broker runs."
            )
        };
        (!is_there).then(absent)
    }
}

/// The directory of the proxy: the one that the configuration names, else that of the user's own proxy if it has run, else
/// that of the system's.
fn directory(section: &ProxySection, environment: &Environment) -> PathBuf {
    let directory = section.directory(environment, rustix::process::geteuid().is_root());
    let has_run = |directory: &Path| directory.join(AUTHORITY).exists();
    let system = Path::new(ProxySection::SYSTEM);
    let is_of_system = section.directory.is_none() && !has_run(&directory) && has_run(system);
    if is_of_system { system.to_owned() } else { directory }
}

#[cfg(test)]
mod tests {
    use credbroker_test_support::{private_directory, private_file};

    use super::*;

    fn found(text: &str, runtime: &str) -> anyhow::Result<Place> {
        let home = private_directory();
        let file = home.path().join("config.yaml");
        let kubeconfig = home.path().join("kubeconfig");
        private_file(
            &kubeconfig,
            "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}}}]",
        );
        let all = format!(
            "apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\nkubeconfigs: [kubeconfig]\n{text}"
        );
        private_file(&file, &all);
        Place::find(Some(&file), &[("XDG_RUNTIME_DIR", runtime)].into_iter().collect())
    }

    #[test]
    fn the_configuration_says_where_the_proxy_is() {
        let place = found("proxy: {directory: /run/x, tls: {listen: \"[::1]:7\"}}", "/run/user/7").unwrap();
        assert_eq!(place.server, "https://[::1]:7");
        assert_eq!((place.authority, place.handles), ("/run/x/ca.crt".into(), "/run/x/handles.sock".into()));
        let error = found("proxy: {listen: {}}", "/run/user/7").unwrap_err().to_string();
        assert!(error.contains("add `tls: {}` to `proxy`"), "{error}");
        assert!(found("proxy: {tls: {listen: \"0.0.0.0:7\"}}", "/run/user/7").is_err());
    }

    #[test]
    fn a_configuration_that_is_named_and_absent_is_an_error() {
        let absent = Path::new("/nowhere/config.yaml");
        let of_variable = [("CREDBROKER_CONFIG", "/nowhere/config.yaml")].into_iter().collect();
        assert!(Place::find(Some(absent), &Environment::default()).is_err());
        assert!(Place::find(None, &of_variable).is_err());
        assert!(Place::find(None, &Environment::default()).is_ok());
    }

    #[test]
    fn without_a_section_it_is_at_the_usual_place() {
        let runtime = private_directory();
        let own = runtime.path().join("credbroker-proxy");
        let place = found("", runtime.path().to_str().unwrap()).unwrap();
        let expected =
            if rustix::process::geteuid().is_root() { Path::new(ProxySection::SYSTEM) } else { &own };
        assert_eq!(
            (place.server.as_str(), place.authority),
            ("https://127.0.0.1:9465", expected.join(AUTHORITY))
        );
        // A relative path counts as unset.
        assert_eq!(found("", "run").unwrap().authority, Path::new(ProxySection::SYSTEM).join(AUTHORITY));
    }

    #[test]
    fn a_proxy_that_has_not_run_is_said_so() {
        let directory = private_directory();
        let place = Place::at(([127, 0, 0, 1], 9465).into(), directory.path());
        assert!(place.advice().unwrap().contains("Start it: `credbroker proxy`,"));
        std::fs::write(&place.authority, "").unwrap();
        assert_eq!(place.advice(), None);
    }
}
