//! How the hub is reached.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    fields::Fields,
    file::expand,
    kubeconfig::{Kubeconfig, Mode},
    problem::Report,
    table::cluster_profiles as table,
};
use credbroker_plugin::{Environment, Provider};

/// The name of the plugin of the hub's user. No configured provider has this name.
pub const HUB_PROVIDER: &str = "(hub)";
const IN_CLUSTER: &str = "in-cluster";

/// What distinguishes a hub from another one. Empty for the cluster that the broker runs in.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubSource {
    /// The server of the kubeconfig's context.
    pub server: Arc<str>,
    /// SHA-256 of the kubeconfig.
    pub contents: Box<[u8]>,
}

/// How the hub is reached.
#[derive(Clone, Debug)]
pub enum HubAccess {
    /// With the service account of the pod that the broker runs in.
    InCluster,
    /// With a kubeconfig.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context; `None`: the current one.
        context: Option<String>,
        /// The plugin of the context's user, if it has one. The broker runs it like any other.
        plugin: Option<Box<Provider>>,
    },
}

impl HubAccess {
    /// Reads how the hub is reached. What distinguishes it is written to `source`.
    pub(super) fn read(
        fields: &Fields<'_>,
        dir: &Path,
        env: &Environment,
        source: &mut HubSource,
        report: &mut Report,
    ) -> Option<Self> {
        let context = table::CONTEXT.read(fields, report).filter(|context| !context.is_empty());
        let value = fields.required(&table::KUBECONFIG, report)?;
        match value.text(report)? {
            "" => {
                value.problem(report, "must be a path, or `in-cluster`");
                None
            }
            IN_CLUSTER => {
                if let Some(context) = fields.at(&table::CONTEXT).filter(|_| context.is_some()) {
                    context.problem(report, "`in-cluster` has no contexts; remove it");
                }
                Some(Self::InCluster)
            }
            path => {
                let path = dir.join(expand(path, env));
                let kubeconfig = Kubeconfig::read(std::slice::from_ref(&path), Mode::Named, report);
                let plugin =
                    kubeconfig.hub_plugin(context.as_deref(), HUB_PROVIDER, env, &value, source, report);
                Some(Self::Kubeconfig { path, context, plugin: plugin.map(Box::new) })
            }
        }
    }

    /// Whether `newer` is reached in the same way.
    pub(super) fn is_alike(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::InCluster, Self::InCluster) => true,
            (
                Self::Kubeconfig { path, context, plugin },
                Self::Kubeconfig { path: new_path, context: new_context, plugin: new_plugin },
            ) => {
                (path, context) == (new_path, new_context)
                    && match (plugin, new_plugin) {
                        (Some(plugin), Some(newer)) => plugin.is_same_definition(newer),
                        (plugin, newer) => plugin.is_none() && newer.is_none(),
                    }
            }
            _ => false,
        }
    }

    /// The plugin of the hub's user, if it has one.
    pub(super) fn plugin_mut(&mut self) -> Option<&mut Provider> {
        match self {
            Self::InCluster => None,
            Self::Kubeconfig { plugin, .. } => plugin.as_deref_mut(),
        }
    }
}
