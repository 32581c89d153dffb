//! Kubeconfigs for tests.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::{ApiServer, yaml};

/// A kubeconfig that grows call by call; the first context is the current one.
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {
    clusters: Vec<Value>,
    contexts: Vec<Value>,
    users: Vec<Value>,
}

impl Kubeconfig {
    /// A kubeconfig without any entry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The common case: cluster, context and user are all called `name`.
    #[must_use]
    pub fn for_server(server: &ApiServer, name: &str, exec: &Value) -> Self {
        Self::new().cluster_of(server, name).exec_user(name, exec).context(name, name, name)
    }

    /// For a hub that does not answer.
    #[must_use]
    pub fn of_absent_hub(user: &Value) -> Self {
        let cluster = json!({"server": "https://127.0.0.1:1"});
        Self::new().cluster("hub", &cluster).user("hub", user).context("hub", "hub", "hub")
    }

    /// Adds a cluster, with its CA inline.
    #[must_use]
    pub fn cluster_of(self, server: &ApiServer, name: &str) -> Self {
        let ca = STANDARD.encode(server.ca_pem());
        self.cluster(name, &json!({"server": server.url(), "certificate-authority-data": ca}))
    }

    /// Adds a cluster whose exec extension is `config`: what client-go hands to plugins as `spec.cluster.config`.
    #[must_use]
    pub fn cluster_with_exec_config(self, server: &ApiServer, name: &str, config: &Value) -> Self {
        let ca = STANDARD.encode(server.ca_pem());
        let extension = json!({"name": "client.authentication.k8s.io/exec", "extension": config});
        let cluster =
            json!({"server": server.url(), "certificate-authority-data": ca, "extensions": [extension]});
        self.cluster(name, &cluster)
    }

    /// Adds a cluster as it is written.
    #[must_use]
    pub fn cluster(mut self, name: &str, cluster: &Value) -> Self {
        self.clusters.push(json!({"name": name, "cluster": cluster}));
        self
    }

    /// Adds a user with an `exec` stanza.
    #[must_use]
    pub fn exec_user(self, name: &str, exec: &Value) -> Self {
        self.user(name, &json!({"exec": exec}))
    }

    /// Adds a user as it is written.
    #[must_use]
    pub fn user(mut self, name: &str, user: &Value) -> Self {
        self.users.push(json!({"name": name, "user": user}));
        self
    }

    /// Adds a context of `cluster` and `user`.
    #[must_use]
    pub fn context(mut self, name: &str, cluster: &str, user: &str) -> Self {
        self.contexts.push(json!({"name": name, "context": {"cluster": cluster, "user": user}}));
        self
    }

    /// The file's text.
    pub fn to_yaml(&self) -> String {
        let current = self.contexts.first().and_then(|context| context.get("name"));
        yaml::document(&json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": self.clusters,
            "contexts": self.contexts,
            "users": self.users,
            "current-context": current.cloned().unwrap_or_else(|| "".into()),
        }))
    }

    /// Writes the file.
    pub fn write(&self, path: impl AsRef<Path>) {
        std::fs::write(path, self.to_yaml()).expect("a kubeconfig can be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_names_its_parts_and_its_current_context() {
        let stanza = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin"});
        let config = Kubeconfig::new()
            .cluster("c", &json!({"server": "https://127.0.0.1:1"}))
            .exec_user("u", &stanza)
            .context("x", "c", "u")
            .to_yaml();
        assert!(config.contains("current-context: \"x\"\n"), "{config}");
        assert!(config.contains("        command: \"plugin\"\n"), "{config}");
        assert!(config.contains("      cluster: \"c\"\n      user: \"u\"\n"), "{config}");
    }
}
