//! Calls that show and change what the broker holds.

use std::time::Duration;

use credbroker_proto::{
    v1::{self, ContextRef, ProviderRef},
    v1alpha1::{
        self, EvictCredentialsRequest, GetBrokerInfoRequest, ListCredentialsRequest, ListProvidersRequest,
        RefreshCredentialsRequest, credential_broker_admin_client::CredentialBrokerAdminClient,
        credential_selector,
    },
};
use http::Uri;

use super::{
    broker::{BrokerInfo, ProviderState},
    state::CredentialState,
};
use crate::{
    client::{ANSWER, Client},
    error::Error,
    reference::{ClusterProfileRef, CredentialRef},
    transport::Transport,
};

/// Hundreds of slow runs, a few at a time.
pub(crate) const REFRESH: Duration = Duration::from_secs(3600);

/// Selects credentials in the broker's cache.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Selector {
    /// All credentials.
    All,
    /// All credentials of the provider of this name, and of all its definitions.
    Provider(String),
    /// All credentials of one definition of a provider.
    Definition {
        /// The name of the provider.
        provider: String,
        /// The digest of the definition, as `credbroker status -o json` lists it.
        definition: String,
    },
    /// All credentials for this `ClusterProfile`.
    ClusterProfile(ClusterProfileRef),
    /// All credentials of this context of a kubeconfig.
    Context {
        /// The name of the context.
        name: String,
        /// The digest of the context.
        digest: String,
    },
    /// The credential with this [`CredentialState::id`].
    Id(String),
}

/// The administrative calls of the broker, over the connection of a [`Client`] and with its deadline.
///
/// ```no_run
/// # async fn example(client: credbroker_client::Client) -> Result<(), credbroker_client::Error> {
/// use credbroker_client::admin::Selector;
///
/// let admin = client.admin();
/// admin.evict(&Selector::Provider("gke".into())).await?;
/// for credential in admin.credentials(&Selector::All).await? {
///     println!("{} {:?}", credential.provider, credential.state);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
    caller: Option<v1::CredentialRef>,
}

impl Client {
    /// The administrative calls, over this connection and with this deadline.
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone(), caller: None }
    }
}

impl Admin {
    /// Sets [`CredentialState::is_of_caller`] for a caller with the variables of `reference`, of which nothing else counts.
    #[must_use]
    pub fn for_caller(self, reference: &CredentialRef) -> Self {
        Self { caller: Some(reference.message()), ..self }
    }

    /// The selected credentials, sorted by provider and id. A credential that the broker gets during the call may be
    /// missing. They hold no secrets.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn credentials(&self, selector: &Selector) -> Result<Vec<CredentialState>, Error> {
        Ok(self.pages(selector, false).await?.into_iter().flatten().collect())
    }

    /// The selected credentials with [`CredentialState::id_parts`], sorted by provider and id, in the broker's pages: parts
    /// can be compared within a page. A page has up to 1,000 credentials.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn explain(&self, selector: &Selector) -> Result<Vec<Vec<CredentialState>>, Error> {
        self.pages(selector, true).await
    }

    async fn pages(
        &self,
        selector: &Selector,
        with_id_parts: bool,
    ) -> Result<Vec<Vec<CredentialState>>, Error> {
        let (mut pages, mut page_token) = (Vec::new(), None);
        loop {
            let selector = Some(selector.message());
            let caller = self.caller.clone();
            let request =
                ListCredentialsRequest { selector, page_size: 0, page_token, with_id_parts, caller };
            let deadline = self.client.deadline(ANSWER);
            let (socket, mut rpc) = (&self.client.socket, self.rpc());
            let page = deadline.response(socket, rpc.list_credentials(deadline.request(request))).await?;
            pages.push(page.credentials.into_iter().map(CredentialState::from_message).collect());
            page_token = page.next_page_token;
            if page_token.is_none() {
                return Ok(pages);
            }
        }
    }

    /// Runs the plugin now for each selected credential, waits for the runs, and returns how many there were. The broker
    /// serves an old credential until its run succeeds.
    ///
    /// The broker runs a few plugins at a time, so many credentials take long: the default deadline is an hour. When it
    /// passes, the runs go on.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`]. A run that fails is not an error: [`Admin::credentials`] shows it.
    pub async fn refresh(&self, selector: &Selector) -> Result<u32, Error> {
        let request = RefreshCredentialsRequest { selector: Some(selector.message()) };
        let deadline = self.client.deadline(REFRESH);
        let (socket, mut rpc) = (&self.client.socket, self.rpc());
        Ok(deadline.response(socket, rpc.refresh_credentials(deadline.request(request))).await?.refreshed)
    }

    /// Removes the selected credentials from the broker's cache, and returns how many there were. The next request for one
    /// of them runs the plugin.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn evict(&self, selector: &Selector) -> Result<u32, Error> {
        let request = EvictCredentialsRequest { selector: Some(selector.message()) };
        let deadline = self.client.deadline(ANSWER);
        let (socket, mut rpc) = (&self.client.socket, self.rpc());
        Ok(deadline.response(socket, rpc.evict_credentials(deadline.request(request))).await?.evicted)
    }

    /// The providers of the broker, sorted by name and definition.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn providers(&self) -> Result<Vec<ProviderState>, Error> {
        let (mut providers, mut page_token) = (Vec::new(), None);
        loop {
            let request = ListProvidersRequest { page_size: 0, page_token };
            let deadline = self.client.deadline(ANSWER);
            let (socket, mut rpc) = (&self.client.socket, self.rpc());
            let page = deadline.response(socket, rpc.list_providers(deadline.request(request))).await?;
            providers.extend(page.providers.into_iter().map(ProviderState::from_message));
            page_token = page.next_page_token;
            if page_token.is_none() {
                return Ok(providers);
            }
        }
    }

    /// The broker's version, start time, configuration files and sockets.
    ///
    /// # Errors
    ///
    /// As [`Client::credential`].
    pub async fn broker_info(&self) -> Result<BrokerInfo, Error> {
        let deadline = self.client.deadline(ANSWER);
        let (socket, mut rpc) = (&self.client.socket, self.rpc());
        let call = rpc.get_broker_info(deadline.request(GetBrokerInfoRequest {}));
        Ok(BrokerInfo::from_message(deadline.response(socket, call).await?))
    }

    fn rpc(&self) -> CredentialBrokerAdminClient<Transport> {
        let origin = Uri::from_static("http://localhost");
        CredentialBrokerAdminClient::with_origin(self.client.transport.clone(), origin)
    }
}

impl Selector {
    fn message(&self) -> v1alpha1::CredentialSelector {
        use credential_selector::Selector as Message;
        let selector = Some(match self {
            Self::All => Message::All(true),
            Self::Provider(name) => Message::Provider(name.clone()),
            Self::Definition { provider, definition } => {
                let (name, definition) = (provider.clone(), Some(definition.clone()));
                Message::Definition(ProviderRef { name, definition })
            }
            Self::ClusterProfile(profile) => Message::ClusterProfile(profile.clone().into_message()),
            Self::Context { name, digest } => {
                Message::Context(ContextRef { digest: digest.clone(), name: name.clone() })
            }
            Self::Id(id) => Message::Id(id.clone()),
        });
        v1alpha1::CredentialSelector { selector }
    }
}
