mod access;
mod denied;
mod endpoint;
mod extensions;
mod policies;
mod properties;
mod reading;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::{
    Command, EnvPolicy, Globs, ProfileError, ProfileName, ProfileSourced, Provider, testing::provider,
};

const ARGS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
const ENVS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";
const CONFIG: &str = "client.authentication.k8s.io/exec";

fn configured(names: &[&str]) -> Vec<Arc<Provider>> {
    names.iter().map(|name| Arc::new(provider(name, Command::Name("plugin".into())))).collect()
}

fn profile(status: &Value) -> ClusterProfile {
    ClusterProfile::read(ProfileName::new("fleet", "paris"), &Value::Null, status)
}

/// An entry of a list of providers that is as it should be.
fn entry(name: &str) -> Value {
    json!({"name": name, "cluster": {"server": format!("https://{name}:6443")}})
}

/// A profile of the provider `p`, with these extensions.
fn extended(extensions: &[(&str, &Value)]) -> ClusterProfile {
    let extensions: Vec<_> =
        extensions.iter().map(|(name, value)| json!({"name": name, "extension": value})).collect();
    with_cluster(&json!({"server": "https://paris", "extensions": extensions}))
}

fn with_cluster(cluster: &Value) -> ClusterProfile {
    profile(&json!({"accessProviders": [{"name": "p", "cluster": cluster}]}))
}

/// `fields` beside a server that is as it should be.
fn with_fields(fields: &Value) -> ClusterProfile {
    let mut cluster = Map::from_iter([("server".to_owned(), json!("https://paris"))]);
    cluster.extend(fields.as_object().cloned().unwrap_or_default());
    with_cluster(&cluster.into())
}

fn resolved(profile: &ClusterProfile, configured: &[Arc<Provider>]) -> Arc<Target> {
    resolve(profile, configured, EndpointRules::default()).outcome.unwrap()
}

fn warnings(profile: &ClusterProfile, configured: &[Arc<Provider>]) -> Vec<String> {
    resolve(profile, configured, EndpointRules::default()).warnings
}

fn refused(profile: &ClusterProfile, configured: &[Arc<Provider>]) -> String {
    resolve(profile, configured, EndpointRules::default()).outcome.unwrap_err().to_string()
}

/// What is wrong with each of these clusters, a line each.
fn refusals(profiles: impl IntoIterator<Item = ClusterProfile>, configured: &[Arc<Provider>]) -> String {
    profiles.into_iter().map(|profile| refused(&profile, configured)).collect::<Vec<_>>().join("\n")
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
