//! One cluster at one moment, and who may see it.

use std::sync::Arc;

use credbroker_proto::{
    Reason,
    v1::{self as pb, cluster_state},
};

use super::convert;
use crate::readiness::Readiness;
use credbroker_fleet::KnownProfile;
use credbroker_plugin::{
    ProfileName, Target,
    access::{self, Rights, Verb},
};

/// One cluster.
#[derive(Debug)]
pub(super) struct Row {
    known: Arc<KnownProfile>,
    ready: cluster_state::Readiness,
    reason: Option<Reason>,
    message: String,
    /// The number of the snapshot in which this state first appeared.
    pub(super) since: u64,
}

/// The part of the fleet that a peer asked for and may see.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// `None`: all namespaces.
    pub(super) namespace: Option<&'a str>,
    pub(super) rights: &'a Rights,
}

impl View<'_> {
    /// Whether it has this cluster.
    pub(super) fn shows(self, row: &Row) -> bool {
        let provider = row.target().map(|target| &*target.provider.name);
        self.namespace.is_none_or(|namespace| *row.name().namespace == *namespace)
            && self.rights.allows(Verb::List, access::CallTarget::Profile(row.name(), provider))
    }
}

impl Row {
    /// The state of `known` in the snapshot `number`, after its `earlier` one.
    pub(super) fn of(
        known: Arc<KnownProfile>,
        readiness: &Readiness,
        number: u64,
        earlier: Option<&Arc<Self>>,
    ) -> Self {
        let (ready, reason) = readiness.of_profile(&known);
        let is_same = |row: &&Arc<Self>| {
            row.known.revision == known.revision && row.ready == ready && row.reason == reason
        };
        let since = earlier.filter(is_same).map_or(number, |row| row.since);
        let message = readiness.message(&known);
        Self { known, ready, reason, message, since }
    }

    pub(super) fn name(&self) -> &ProfileName {
        &self.known.profile.name
    }

    fn target(&self) -> Option<&Arc<Target>> {
        self.known.outcome.as_ref().ok()
    }

    /// The cluster, without its credential. Names only providers that `rights` show, besides those of the profile itself.
    pub(super) fn message(&self, rights: &Rights) -> pb::ClusterState {
        let known = &self.known;
        let profile = &known.profile;
        let target = self.target();
        let sees = |provider: &str| rights.allows(Verb::List, access::CallTarget::Provider(provider));
        let skipped = known.skipped.iter().filter(|skipped| !rights.is_limited() || sees(&skipped.name));
        let skipped = skipped.map(|skipped| cluster_state::SkippedProvider {
            name: skipped.name.clone(),
            message: skipped.reason.clone(),
        });
        let properties = profile.properties.iter();
        let properties = properties
            .map(|(name, value)| cluster_state::Property { name: name.clone(), value: value.clone() });
        pb::ClusterState {
            cluster_profile: Some(convert::profile(&profile.name)),
            display_name: profile.display_name.clone(),
            cluster_manager: profile.cluster_manager.clone(),
            kubernetes_version: profile.kubernetes_version.clone(),
            properties: properties.collect(),
            provider: target.map(|target| target.provider.name.to_string()),
            skipped_providers: skipped.collect(),
            cluster: target.map(|target| convert::cluster_message(&target.endpoint)),
            readiness: self.ready.into(),
            failure: self.reason.map(|reason| pb::Failure {
                reason: reason.into(),
                message: match &known.outcome {
                    Err(error) if rights.is_limited() => error.without_configured(sees).to_string(),
                    _ => self.message.clone(),
                },
                retry_after: None,
            }),
        }
    }
}
