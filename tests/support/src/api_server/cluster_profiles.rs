//! What a hub holds, put there by a test directly.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::collection::{Key, Store};
use super::resource::Collection;
use super::{ApiServer, lock};

impl ApiServer {
    /// Creates a `ClusterProfile`, or replaces its spec, status, labels and annotations by those of `body`, in one
    /// change. Any `body` is served with the metadata of an object, whether a real server would take it or not.
    pub fn apply_cluster_profile(&self, namespace: &str, name: &str, body: Value) {
        self.apply(Collection::ClusterProfiles, namespace, name, body);
    }

    /// Many in parallel, each as [`ApiServer::apply_cluster_profile`] does it: namespace, name and body.
    pub fn apply_cluster_profiles<N: Into<String>>(&self, profiles: impl IntoIterator<Item = (N, N, Value)>) {
        self.change(|store| {
            for (namespace, name, body) in profiles {
                store.put(Collection::ClusterProfiles, (namespace.into(), name.into()), body);
            }
        });
    }

    /// Deletes a `ClusterProfile`. Panics if there is none.
    pub fn delete_cluster_profile(&self, namespace: &str, name: &str) {
        self.delete(Collection::ClusterProfiles, namespace, name);
    }

    /// Creates or replaces an opaque `Secret`.
    pub fn put_secret(&self, namespace: &str, name: &str, data: &[(&str, &[u8])]) {
        let data: Map<String, Value> =
            data.iter().map(|(name, value)| ((*name).to_owned(), json!(STANDARD.encode(value)))).collect();
        self.apply(Collection::Secrets, namespace, name, json!({"type": "Opaque", "data": data}));
    }

    /// Creates or replaces an object of any collection.
    pub fn apply(&self, collection: Collection, namespace: &str, name: &str, body: Value) {
        self.change(|store| drop(store.put(collection, key(namespace, name), body)));
    }

    /// Deletes an object of any collection. Panics if there is none.
    pub fn delete(&self, collection: Collection, namespace: &str, name: &str) {
        let gone = self.change(|store| store.remove(collection, &key(namespace, name)));
        assert!(gone.is_some(), "{collection:?} has no {namespace}/{name}");
    }

    /// An object as it is stored.
    pub fn object(&self, collection: Collection, namespace: &str, name: &str) -> Option<Value> {
        lock(&self.state.store).get(collection, &key(namespace, name)).map(|object| (**object).clone())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let changed = change(&mut lock(&self.state.store));
        self.state.tell_watches();
        changed
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}
