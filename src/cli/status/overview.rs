//! What `credbroker status` asks the broker.

use std::collections::HashSet;

use credbroker_client::{
    Client, Error,
    admin::{BrokerInfo, CredentialState, ProviderState, Selector, State},
};

/// A broker, and what of it was selected.
#[derive(Debug)]
pub(super) struct Overview {
    pub(super) broker: BrokerInfo,
    pub(super) providers: Vec<ProviderState>,
    pub(super) credentials: Vec<CredentialState>,
}

/// What to show.
#[derive(Clone, Debug)]
pub(super) struct StatusFilter(pub(super) Selector);

impl StatusFilter {
    pub(super) async fn read(&self, client: &Client) -> Result<Overview, Error> {
        let admin = client.admin();
        let credentials = admin.credentials(&self.0).await?;
        let mut providers = admin.providers().await?;
        match &self.0 {
            Selector::Provider(name) => providers.retain(|provider| provider.name == *name),
            Selector::All => {}
            _ => providers.clear(),
        }
        Ok(Overview { broker: admin.broker_info().await?, providers, credentials })
    }
}

impl Overview {
    /// The providers that no credential is of.
    pub(super) fn idle(&self) -> impl Iterator<Item = &ProviderState> {
        let held: HashSet<_> =
            self.credentials.iter().map(|held| (&held.provider, &held.definition)).collect();
        self.providers.iter().filter(move |provider| !held.contains(&(&provider.name, &provider.definition)))
    }

    /// Whether a person should look at it.
    pub(super) fn has_failed(&self) -> bool {
        let failed = |held: &CredentialState| held.state == State::Failed || held.last_failure.is_some();
        self.credentials.iter().any(failed)
            || self.providers.iter().any(|provider| provider.failure.is_some())
            || self.broker.hub.as_ref().is_some_and(|hub| hub.failure.is_some())
            || self.broker.configuration.as_ref().is_some_and(|state| !state.problems.is_empty())
    }
}
