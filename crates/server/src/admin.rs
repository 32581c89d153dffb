//! `CredentialBrokerAdmin`: the cache, the providers and the broker itself, for people and tools.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    path::PathBuf,
    sync::Arc,
};

use credbroker_proto::{
    v1::{self as pb, Failure},
    v1alpha1::{
        self, CredentialState, ProviderState, credential_selector::Selector as Selected, credential_state,
    },
};
use tonic::{Request, Response, Status};
use tracing::Instrument as _;
use v1alpha1::credential_broker_admin_server::CredentialBrokerAdmin;

use super::{access::Access, broker::Broker, convert, credentials::BrokerService, paging::Paging, status};
use credbroker_cache::{Holding, KeyStatus, ListPosition, Selector, Verdict};
use credbroker_credential::{LifetimeBound, text::chain};
use credbroker_fleet::resolver::{CredentialRequest, Source};
use credbroker_plugin::{
    IdPart, PartKind, PluginKey, PluginSpec, Provider, ProviderRef, Providers, ResolveError, Sent,
    access::{CallTarget, Permit, Rights, Verb},
    selects_account,
};
use credbroker_runner::PluginRunner;

/// Keys that are read from the cache at a time.
const BATCH: usize = 512;

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBrokerAdmin for BrokerService<R> {
    async fn list_credentials(
        &self,
        request: Request<v1alpha1::ListCredentialsRequest>,
    ) -> Result<Response<v1alpha1::ListCredentialsResponse>, Status> {
        let rights = self.need(&request, "list_credentials", Verb::List)?;
        let access = Arc::clone(Access::of(&request)?);
        let v1alpha1::ListCredentialsRequest { selector, page_size, page_token, with_id_parts, caller } =
            request.into_inner();
        let is_own = access.is_own();
        let caller =
            caller.filter(|_| is_own).map(|caller| convert::variables(caller.env, caller.account_env));
        let sent = caller.as_ref().map(|(env, by_name)| Sent { env, by_name, origin: access.origin() });
        let selector = match selector {
            None => Selector::All,
            selector => self.selector(selector, &Permit::new(Arc::clone(&rights), Verb::List))?,
        };
        let (paging, after) =
            Paging::read("credentials", &format!("{selector:?}"), page_size, page_token.as_deref())?;
        let after = after.map(|(provider, key): (String, _)| (provider.into(), PluginKey(key)));
        let held = self.held(&selector, after);
        let shown = held.filter(|held| is_about(&rights, Verb::List, &held.spec));
        let mut numbers = with_id_parts.then(ValueNumbers::default);
        let row = |held: KeyStatus| {
            let mut state = credential_state(&held);
            state.account = if is_own { account(&held.spec) } else { Vec::new() };
            state.is_of_caller = sent.is_some_and(|sent| held.spec.is_of(sent));
            if let Some(numbers) = &mut numbers {
                let (provider, parts) = (&held.spec.provider.name, held.spec.id_parts());
                state.id_parts = parts.iter().map(|part| numbers.part(provider, part)).collect();
            }
            let (provider, PluginKey(key)) = held.position();
            (state, (provider.to_string(), key))
        };
        let (credentials, next_page_token) = paging.fill(shown.map(row));
        Ok(Response::new(v1alpha1::ListCredentialsResponse { credentials, next_page_token }))
    }

    async fn refresh_credentials(
        &self,
        request: Request<v1alpha1::RefreshCredentialsRequest>,
    ) -> Result<Response<v1alpha1::RefreshCredentialsResponse>, Status> {
        let span = Access::of(&request)?.span("refresh_credentials");
        let rights = self.need(&request, "refresh_credentials", Verb::Admin)?;
        let selector = self.administered(request.into_inner().selector, &rights)?;
        let refreshed = count(self.broker.cache.refresh(&selector).instrument(span).await);
        Ok(Response::new(v1alpha1::RefreshCredentialsResponse { refreshed }))
    }

    async fn evict_credentials(
        &self,
        request: Request<v1alpha1::EvictCredentialsRequest>,
    ) -> Result<Response<v1alpha1::EvictCredentialsResponse>, Status> {
        let rights = self.need(&request, "evict_credentials", Verb::Admin)?;
        let selector = self.administered(request.into_inner().selector, &rights)?;
        let evicted = count(self.broker.cache.evict(&selector));
        Ok(Response::new(v1alpha1::EvictCredentialsResponse { evicted }))
    }

    async fn list_providers(
        &self,
        request: Request<v1alpha1::ListProvidersRequest>,
    ) -> Result<Response<v1alpha1::ListProvidersResponse>, Status> {
        let rights = self.need(&request, "list_providers", Verb::List)?;
        let v1alpha1::ListProvidersRequest { page_size, page_token } = request.into_inner();
        let (paging, after) = Paging::read("providers", &(), page_size, page_token.as_deref())?;
        let providers = self.broker.resolver.providers();
        let shown = providers.iter().filter(|of| rights.allows(Verb::List, CallTarget::Provider(&of.name)));
        let rest = shown.map(|provider| (place(provider), provider));
        let mut rest: Vec<_> =
            rest.filter(|(place, _)| after.as_ref().is_none_or(|after| place > after)).collect();
        rest.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let rows = rest.into_iter().map(|(place, provider)| (provider_state(&providers, provider), place));
        let (providers, next_page_token) = paging.fill(rows);
        Ok(Response::new(v1alpha1::ListProvidersResponse { providers, next_page_token }))
    }

    async fn get_broker_info(
        &self,
        request: Request<v1alpha1::GetBrokerInfoRequest>,
    ) -> Result<Response<v1alpha1::GetBrokerInfoResponse>, Status> {
        self.need(&request, "get_broker_info", Verb::List)?;
        Ok(Response::new(info(&self.broker)))
    }
}

impl<R: PluginRunner> BrokerService<R> {
    /// What a request selects, and `rights` allow to administer.
    fn administered(
        &self,
        selector: Option<v1alpha1::CredentialSelector>,
        rights: &Arc<Rights>,
    ) -> Result<Selector, Status> {
        let selector = self.selector(selector, &Permit::new(Arc::clone(rights), Verb::Admin))?;
        if !rights.is_limited() {
            return Ok(selector);
        }
        let allowed = self.held(&selector, None).filter(|held| is_about(rights, Verb::Admin, &held.spec));
        Ok(Selector::Keys(allowed.map(|held| held.spec.key).collect()))
    }

    /// What is selected, from the position `after` on.
    fn held(&self, selector: &Selector, mut after: Option<ListPosition>) -> impl Iterator<Item = KeyStatus> {
        let batches = std::iter::from_fn(move || {
            let batch = self.broker.cache.list(selector, after.as_ref(), BATCH);
            after = Some(batch.last()?.position());
            Some(batch)
        });
        batches.flatten()
    }

    /// Reads a selector, which must be set and name what is configured, and what `permit` allows.
    fn selector(
        &self,
        message: Option<v1alpha1::CredentialSelector>,
        permit: &Permit,
    ) -> Result<Selector, Status> {
        let resolver = &self.broker.resolver;
        let allowed = |source: &Source| {
            let allowed = source.target().is_none_or(|target| permit.allows(target));
            let allowed = if allowed { Ok(()) } else { Err(source.not_allowed()) };
            allowed.map_err(|error| status::unresolved(&error, source))
        };
        let providers = resolver.providers();
        let known = |name: &str| {
            let source = Source::Provider(ProviderRef::from(name));
            allowed(&source)?;
            let hidden = |error| if permit.hides_unknown() { source.not_allowed() } else { error };
            providers.find(name).map_err(|error| status::unresolved(&hidden(error), &source))
        };
        Ok(match message.and_then(|message| message.selector) {
            None | Some(Selected::All(false)) => {
                return Err(status::invalid(
                    "`selector` is empty: set `provider`, `definition`, `cluster_profile`, `context`, `id` or `all`",
                ));
            }
            Some(Selected::All(true)) => Selector::All,
            Some(Selected::Provider(name)) => Selector::Provider(Arc::clone(&known(&name)?.name)),
            Some(Selected::Definition(wanted)) => {
                let provider = Arc::clone(&known(&wanted.name)?.name);
                let pb::ProviderRef { name, definition: Some(definition) } = wanted else {
                    return Err(status::invalid("`selector.definition.definition` is empty"));
                };
                let wanted = ProviderRef { name, definition: Some(definition.clone()) };
                let entry = providers.entry(&wanted).map(drop);
                entry.map_err(|error| status::unresolved(&error, &Source::Provider(wanted)))?;
                Selector::Definition(provider, definition.into())
            }
            Some(Selected::ClusterProfile(profile)) => {
                let profile = convert::profile_name(profile, "selector.cluster_profile")?;
                let source = Source::ClusterProfile(profile.clone());
                allowed(&source)?;
                if resolver.fleet().is_none() {
                    return Err(status::unresolved(&ResolveError::NoHub(profile), &source));
                }
                Selector::ClusterProfile(profile)
            }
            Some(Selected::Context(context)) => {
                let source = Source::Context(convert::context_id(context, "selector.context")?);
                let ask =
                    CredentialRequest { source, permit: permit.clone(), ..CredentialRequest::default() };
                let spec = resolver.resolve(ask.clone());
                let spec = spec.map_err(|error| status::unresolved(&error, &ask.source))?;
                // Callers with other variables have other keys.
                let definition = spec.provider.definition.as_ref().map(|known| Arc::clone(&known.digest));
                let name = Arc::clone(&spec.provider.name);
                let user = Selector::Definition(name, definition.unwrap_or_default());
                let held = self.held(&user, None).filter(|held| {
                    held.spec.provider.definition == spec.provider.definition
                        && held.spec.endpoint() == spec.endpoint()
                });
                Selector::Keys(held.map(|held| held.spec.key).collect())
            }
            Some(Selected::Id(id)) => Selector::Key(
                id.parse()
                    .map_err(|error| status::invalid(&format!("`selector.id` is not valid: {error}")))?,
            ),
        })
    }
}

/// Place of a provider in the list. A page token has it too, and is valid without that provider.
fn place(provider: &Provider) -> (String, String) {
    (provider.name.to_string(), definition_file(provider).unwrap_or_default())
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Whether `rights` allow `verb` for the credential of `spec`.
fn is_about(rights: &Rights, verb: Verb, spec: &PluginSpec) -> bool {
    let provider = &spec.provider.name;
    match spec.target.as_ref().map(|target| &target.profile) {
        None => rights.allows(verb, CallTarget::Provider(provider)),
        Some(profile) => {
            rights.allows(verb, CallTarget::Profile(profile, Some(provider)))
                || rights.allows(verb, CallTarget::Through(provider, profile))
        }
    }
}

/// The variables that select the account of `spec`.
fn account(spec: &PluginSpec) -> Vec<v1alpha1::AccountVariable> {
    const MOST: usize = 64;
    let selecting = |part: &IdPart<'_>| {
        let name = str::from_utf8(&part.name).ok().filter(|_| part.kind == PartKind::Variable)?;
        let value = String::from_utf8_lossy(&part.value);
        let is_long = value.chars().nth(MOST).is_some();
        let value =
            if is_long { value.chars().take(MOST - 1).chain(['…']).collect() } else { value.into_owned() };
        selects_account(name).then(|| v1alpha1::AccountVariable { name: name.to_owned(), value })
    };
    spec.id_parts().iter().filter_map(selecting).collect()
}

fn provider_state(providers: &Providers, provider: &Provider) -> ProviderState {
    let failure = providers.is_runnable(provider).err().map(|error| Failure {
        reason: status::resolve_reason(&error).into(),
        message: chain(&error),
        ..Failure::default()
    });
    ProviderState {
        name: provider.name.to_string(),
        definition: provider.definition.as_ref().map(|definition| definition.digest.to_string()),
        command: provider.command.to_string(),
        serves_cluster_profiles: provider.profile_sourced.is_some(),
        failure,
        definition_file: definition_file(provider),
    }
}

fn definition_file(provider: &Provider) -> Option<String> {
    Some(provider.definition.as_ref()?.file().to_string_lossy().into_owned())
}

fn credential_state(held: &KeyStatus) -> CredentialState {
    let spec = &held.spec;
    let issued = held.issued.as_ref();
    let (cause, next_run) = held.next_run;
    CredentialState {
        provider: spec.provider.name.to_string(),
        definition: spec.provider.definition.as_ref().map(|definition| definition.digest.to_string()),
        id: spec.key.to_string(),
        server: spec.endpoint().map(|cluster| cluster.server.clone()),
        caller_env: spec.caller_env.keys().cloned().collect(),
        state: match held.holding {
            Holding::Valid => credential_state::State::Valid,
            Holding::Refreshing => credential_state::State::Refreshing,
            Holding::Waiting => credential_state::State::Waiting,
            Holding::Failed => credential_state::State::Failed,
            Holding::Empty => credential_state::State::Empty,
        }
        .into(),
        generation: issued.map(|issued| issued.generation.to_string()),
        expiration_time: issued.map(|issued| issued.expires_at.into()),
        next_refresh_time: held.next_refresh.map(Into::into),
        watches: u32::try_from(held.watchers).unwrap_or(u32::MAX),
        runs: held.runs,
        last_failure: held.failure.as_ref().map(|(failed, _)| Failure {
            reason: status::cache_reason(&failed.error).into(),
            message: chain(&failed.error),
            retry_after: convert::duration(failed.retry_after),
            ..Failure::default()
        }),
        failed_attempts: held.failure.as_ref().map_or(0, |(_, attempts)| *attempts),
        cluster_profile: spec.target.as_ref().map(|target| convert::profile(&target.profile)),
        rejections: held.rejections.as_ref().map(|known| credential_state::Rejections {
            rejections: known.count,
            verifications: known.verifications,
            last_verdict: known.verdict.map(|verdict| {
                match verdict {
                    Verdict::Rejected => credential_state::Verdict::Rejected,
                    Verdict::Accepted => credential_state::Verdict::Accepted,
                    Verdict::Unverifiable => credential_state::Verdict::Unverifiable,
                }
                .into()
            }),
            next_run_time: known.next_run.map(Into::into),
        }),
        fetch_time: issued.map(|issued| issued.fetched.wall.into()),
        bound: issued.map(|issued| bound(issued.bound).into()),
        next_run_cause: cause.into(),
        next_run_time: next_run.map(Into::into),
        id_parts: Vec::new(),
        account: Vec::new(),
        definition_file: definition_file(&spec.provider),
        is_of_caller: false,
    }
}

fn bound(bound: LifetimeBound) -> credential_state::Bound {
    match bound {
        LifetimeBound::ExpirationTimestamp => credential_state::Bound::ExpirationTimestamp,
        LifetimeBound::NotAfter => credential_state::Bound::CertificateNotAfter,
        LifetimeBound::TokenExp => credential_state::Bound::TokenExp,
        LifetimeBound::MaxAge => credential_state::Bound::MaxAge,
        LifetimeBound::UnknownExpiry => credential_state::Bound::UnknownExpiryMaxAge,
        LifetimeBound::ClockSkew => credential_state::Bound::ClockSkew,
    }
}

/// The values of one response. It keeps hashes with a random key, and no value.
#[derive(Debug, Default)]
struct ValueNumbers {
    hasher: RandomState,
    /// For each part of a provider, the number of each value.
    numbers: HashMap<u64, HashMap<u64, u32>>,
}

impl ValueNumbers {
    fn part(&mut self, provider: &str, part: &IdPart<'_>) -> v1alpha1::IdPart {
        let IdPart { kind, name, origin, value } = part;
        let values = self.numbers.entry(self.hasher.hash_one((provider, kind, name))).or_default();
        let next = u32::try_from(values.len() + 1).unwrap_or(u32::MAX);
        let value_number = *values.entry(self.hasher.hash_one(value)).or_insert(next);
        let name = convert::present(String::from_utf8_lossy(name).into_owned());
        v1alpha1::IdPart { kind: (*kind).into(), name, origin: (*origin).into(), value_number }
    }
}

fn info<R: PluginRunner>(broker: &Broker<R>) -> v1alpha1::GetBrokerInfoResponse {
    let configuration = Arc::clone(&broker.configuration.borrow());
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
    v1alpha1::GetBrokerInfoResponse {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("CREDBROKER_COMMIT").and_then(|commit| convert::present(commit.to_owned())),
        start_time: Some(broker.started.into()),
        config_files: paths(&configuration.files),
        sockets: paths(&broker.sockets),
        hub: broker.resolver.fleet().map(|fleet| convert::hub(&fleet.hub())),
        configuration: Some(v1alpha1::ConfigurationState {
            read_time: Some(configuration.last_success.into()),
            reloads: configuration.reloads,
            problems: configuration.problems.clone(),
            problems_since_time: configuration.problems_since.map(Into::into),
            restart_needed: configuration.restart_needed.iter().map(|key| (*key).to_owned()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use credbroker_plugin::{PartKind, PartOrigin};

    use super::*;

    #[test]
    fn equal_values_of_one_part_of_a_provider_have_equal_numbers() {
        let mut numbers = ValueNumbers::default();
        let mut number = |provider, kind, name: &'static str, value: &'static str| {
            let (name, value) = (name.as_bytes().into(), value.as_bytes().into());
            let part = IdPart { kind, name, origin: PartOrigin::Stanza, value };
            numbers.part(provider, &part).value_number
        };
        for (expected, provider, kind, name, value) in [
            (1, "eks", PartKind::Variable, "A", "x"),
            (2, "eks", PartKind::Variable, "A", "y"),
            (1, "eks", PartKind::Variable, "A", "x"),
            (1, "eks", PartKind::Variable, "B", "y"),
            (1, "eks", PartKind::Argument, "A", "y"),
            (1, "gke", PartKind::Variable, "A", "y"),
            (3, "eks", PartKind::Variable, "A", ""),
        ] {
            assert_eq!(number(provider, kind, name, value), expected, "{provider} {kind:?} {name} {value}");
        }
    }
}
