//! The hub of the configuration in force.

use std::{pin::pin, sync::Arc};

use tokio::sync::watch;
use tracing::info;

use super::{Hub, HubParts};
use credbroker_config::{ClusterProfiles, HubAccess};
use credbroker_plugin::{Provider, Providers, Succession};
use credbroker_runner::PluginRunner;

/// Reads the hub of the configuration in force, if it has one. A reload may replace the hub.
#[derive(Debug)]
pub struct HubReader<R> {
    parts: HubParts<R>,
    current: watch::Sender<Option<Arc<Hub<R>>>>,
}

impl<R: PluginRunner> HubReader<R> {
    /// A reader of the hub that `section` names. It does not connect yet.
    pub fn new(section: Option<ClusterProfiles>, parts: HubParts<R>) -> Self {
        let hub = section.map(|section| {
            let plugins = Arc::new(Providers::new(plugin(&section)));
            Arc::new(Hub::new(section, plugins, parts.clone()))
        });
        Self { parts, current: watch::Sender::new(hub) }
    }

    /// Reads the newest hub until the future is dropped. Returns only if a task that fetches ahead has ended.
    pub async fn run(&self) {
        let (mut hubs, mut before) = (self.current.subscribe(), None::<Arc<Hub<R>>>);
        loop {
            let hub = hubs.borrow_and_update().clone();
            let is_same = |before: &Arc<Hub<R>>| {
                hub.as_ref().is_some_and(|hub| before.section.is_same_hub(&hub.section))
            };
            // Not earlier: the reader before has ended by now, so that it adds no profile afterwards.
            if let Some(before) = before.take().filter(|before| !is_same(before)) {
                before.inventory.clear();
            }
            before.clone_from(&hub);
            let mut reading = pin!(async {
                match &hub {
                    Some(hub) => hub.run().await,
                    None => std::future::pending().await,
                }
            });
            tokio::select! {
                () = &mut reading => return,
                // Never an error: `self` holds the sender.
                changed = hubs.changed() => drop(changed),
            }
        }
    }

    /// Continues with `section` of a newer configuration, whose providers are `providers`. A reader that is not affected
    /// goes on. The profiles of another hub are removed; those of the same one stay while it is read again.
    ///
    /// Returns whether the section has changed.
    pub fn replace(&self, section: Option<ClusterProfiles>, providers: &Arc<Providers>) -> bool {
        let before = self.current.borrow().clone();
        let Some(section) = section else {
            let Some(hub) = before else { return false };
            self.current.send_replace(None);
            self.plugins(&hub.plugins, None);
            return true;
        };
        let is_rebased = self.parts.fleet.rebase(Arc::clone(providers), section.rules);
        let Some(hub) = before else {
            let plugins = self.plugins(&Providers::default(), plugin(&section));
            self.start(section, plugins);
            return true;
        };
        if is_rebased {
            hub.inventory.resolve_again();
        }
        if hub.section.is_read_alike(&section) {
            return false;
        }
        let plugins = self.plugins(&hub.plugins, plugin(&section));
        self.start(section, plugins);
        true
    }

    fn start(&self, section: ClusterProfiles, plugins: Arc<Providers>) {
        info!("reading the hub with the changed configuration");
        let hub = Hub::new(section, plugins, self.parts.clone());
        self.current.send_replace(Some(Arc::new(hub)));
    }

    /// The plugin of the hub's user, of which `old` is the earlier one. A changed one starts cold.
    fn plugins(&self, old: &Providers, new: Option<Provider>) -> Arc<Providers> {
        let succession = Succession::of(Providers::new(new), old);
        succession.commit();
        self.parts.cache.forget_retired();
        succession.providers
    }
}

fn plugin(section: &ClusterProfiles) -> Option<Provider> {
    match &section.hub {
        HubAccess::Kubeconfig { plugin, .. } => plugin.as_deref().cloned(),
        HubAccess::InCluster => None,
    }
}
