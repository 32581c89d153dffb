//! `AttendCredential`: a get whose caller sees what the plugin writes while it runs, and may run it in its terminal.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use credbroker_proto::{
    v1 as pb,
    v1alpha1::{
        self,
        attend_credential_response::{Event, Output},
        credential_broker_login_server::CredentialBrokerLogin,
    },
};
use rustix::process::geteuid;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use super::{
    access::{Access, watch_slot},
    audit_record::Asked,
    broker::Broker,
    convert::{self, deadline, named},
    credentials::{BrokerService, answer},
    preencoded::{self, Follow, MessageStream},
    status::{self, Subject},
};
use credbroker_cache as cache;
use credbroker_cache::{Attendant, AttendantReader, Caller};
use credbroker_fleet::resolver::Source;
use credbroker_plugin::{Interactive, Origin, PluginSpec, ProfileName, access::Verb};
use credbroker_runner::{AttendanceNews, Deposit, Lender, Offer, PluginCommand, PluginRunner};
use credbroker_uds_server::{Peer, WatchSlot};

/// How long a run may be queued while a caller without a deadline waits for it.
const QUEUED: Duration = Duration::from_secs(60);

type PendingAnswer = Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send>>;

#[tonic::async_trait]
impl<R: PluginRunner> CredentialBrokerLogin for BrokerService<R> {
    async fn attend_credential(
        &self,
        request: Request<v1alpha1::AttendCredentialRequest>,
    ) -> Result<Response<MessageStream<v1alpha1::AttendCredentialResponse>>, Status> {
        self.broker.attend(&self.leases, request).await
    }

    async fn deposit_output(
        &self,
        request: Request<v1alpha1::DepositOutputRequest>,
    ) -> Result<Response<v1alpha1::DepositOutputResponse>, Status> {
        let access = Arc::clone(Access::of(&request)?);
        let deposited = self.leases.deposit(&access.peer, request.into_inner());
        Asked::call(&self.broker.audit, &access, "deposit_output").decided(deposited)?;
        Ok(Response::new(v1alpha1::DepositOutputResponse {}))
    }
}

impl<R: PluginRunner> Broker<R> {
    async fn attend(
        &self,
        leases: &Leases,
        request: Request<v1alpha1::AttendCredentialRequest>,
    ) -> Result<Response<MessageStream<v1alpha1::AttendCredentialResponse>>, Status> {
        let (access, slot) = (Arc::clone(Access::of(&request)?), watch_slot(&request)?);
        let (peer, deadline) = (access.peer, deadline(request.metadata().as_ref()));
        let v1alpha1::AttendCredentialRequest {
            r#ref,
            session,
            login: is_login,
            can_run_plugin,
            exec_plugin_caller,
            min_lifetime,
        } = request.into_inner();
        let min_lifetime = convert::min_lifetime(min_lifetime)?;
        let session = convert::session(session, &access);
        let pb::ExecPluginCaller { id, without_exec_info } = exec_plugin_caller.unwrap_or_default();
        let caller = Caller { without_exec_info, at_terminal: true, ..named(&peer, &id) };
        let ask = convert::ask(r#ref, &access, Verb::Get)?;
        let (asked, source) = (
            Asked::credential((&self.audit, &self.resolver), &access, Verb::Login, &ask.source),
            ask.source.clone(),
        );
        let resolved = async {
            let (spec, request, context) = self.resolve(ask, &access, caller, deadline).await?;
            let profile = spec.target.as_ref().map(|target| &target.profile);
            check(&access, &source, &spec.provider.name, profile)?;
            Ok((spec, request, context))
        };
        let (spec, request, context) = asked.decided(resolved.await)?;
        let (lender, offered) = can_run_plugin.then(|| lender(&access, &spec)).flatten().unzip();
        let attendant = Arc::<Attendant>::default();
        let reader = attendant.read();
        let limit = request.deadline.unwrap_or(spec.provider.interactive_timeout.saturating_add(QUEUED));
        let request = cache::Request {
            attendant: Some(attendant),
            deadline: Some(limit),
            min_lifetime,
            session,
            lender,
            is_login,
            ..request
        };
        let (cache, subject) = (self.cache.clone(), Subject::of(&spec, context.as_deref()));
        let answer = async move {
            let issued =
                cache.get(spec, &request).await.map_err(|failed| status::failed(&subject, &failed))?;
            Ok(answer(&cache, &issued, min_lifetime, context.as_deref()))
        };
        let attended = AttendStream {
            answer: Some(Box::pin(answer.instrument(access.span("attend_credential")))),
            reader,
            waiting: VecDeque::new(),
            offered,
            lease: None,
            leases: leases.clone(),
            peer,
            _slot: slot,
        };
        Ok(attended.response())
    }
}

/// Checks whether the caller may attend the run that `source` leads to: it is the broker's own user, or has the verb `login`.
fn check(
    access: &Access,
    source: &Source,
    provider: &str,
    profile: Option<&ProfileName>,
) -> Result<(), Status> {
    if access.is_own() {
        return Ok(());
    }
    let allowed = source.check(&access.permit(Verb::Login), provider, profile);
    allowed.map_err(|_forbidden| status::login_denied(source))
}

struct AttendStream {
    /// `None`: it was made.
    answer: Option<PendingAnswer>,
    reader: AttendantReader,
    /// What is sent next: parts of messages, and the error that ends the stream.
    waiting: VecDeque<Result<Bytes, Status>>,
    /// Gets what the caller is asked to run in its terminal.
    offered: Option<oneshot::Receiver<Offer>>,
    /// The caller runs it while this is there.
    lease: Option<Lease>,
    leases: Leases,
    peer: Peer,
    _slot: WatchSlot,
}

impl Follow for AttendStream {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some(part) = self.waiting.pop_front() {
                return Some(part);
            }
            tokio::select! {
                biased;
                news = self.reader.next() => self.queue(news),
                answer = self.answer.as_mut()? => {
                    self.answer = None;
                    let news = AttendanceNews { time_left: None, ..self.reader.news() };
                    self.queue(news);
                    match answer {
                        Ok(frame) => self.waiting.extend(preencoded::attended(&frame).map(Ok)),
                        Err(status) => self.waiting.push_back(Err(status)),
                    }
                }
            }
        }
    }
}

impl AttendStream {
    fn queue(&mut self, news: AttendanceNews) {
        // A run writes immediately after it has offered itself to a caller, so there is news whenever there is an offer.
        if let Some(Ok(offer)) = self.offered.as_mut().map(oneshot::Receiver::try_recv) {
            let (lease, command) = self.leases.grant(&self.peer, offer);
            (self.offered, self.lease) = (None, Some(lease));
            self.waiting.push_back(Ok(message(Event::Lease(command))));
        }
        self.waiting.extend(events(news, self.lease.is_none()).map(|event| Ok(message(event))));
    }
}

/// What is new. A caller in whose terminal the plugin runs sees its lines there.
fn events(
    AttendanceNews { lines, time_left }: AttendanceNews,
    are_shown: bool,
) -> impl Iterator<Item = Event> {
    let stderr_lines: Vec<_> = lines.iter().filter(|_| are_shown).map(ToString::to_string).collect();
    let output = (!stderr_lines.is_empty()).then(|| Event::Output(Output { stderr_lines }));
    output.into_iter().chain(time_left.and_then(convert::duration).map(Event::TimeLeft))
}

fn message(event: Event) -> Bytes {
    preencoded::frame(&v1alpha1::AttendCredentialResponse { event: Some(event) })
}

/// The leases that callers hold, by their id. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases(Arc<Mutex<OpenLeases>>);

#[derive(Debug, Default)]
struct OpenLeases {
    last: u64,
    /// The process that holds each, and who gets what it brings.
    held: HashMap<u64, (u64, oneshot::Sender<Deposit>)>,
}

/// A lease. The run ends when it is dropped.
#[derive(Debug)]
struct Lease {
    leases: Leases,
    id: u64,
}

/// The caller as one that runs the plugin of `spec` in its own terminal, if it may: the plugin may read from one, the caller
/// runs as the broker's own user beside the broker, and no other user can get the credential, which the caller could forge.
/// Processes of plugin runs have no connection.
fn lender(access: &Access, spec: &PluginSpec) -> Option<(Arc<Lender>, oneshot::Receiver<Offer>)> {
    let own = geteuid().as_raw();
    let process = access.peer.pid?.cast_unsigned();
    let may = spec.provider.interactive != Interactive::Never
        && spec.target.is_none()
        && access.principal.uid == Some(own)
        && access.origin() == Origin::Beside
        && access.is_alone(own, &spec.provider.name);
    may.then(|| Lender::new(process))
}

impl Leases {
    /// Grants a lease to the process of `peer`, and returns what it is asked to run.
    fn grant(&self, peer: &Peer, offer: Offer) -> (Lease, v1alpha1::Lease) {
        let Offer { command: PluginCommand { program, args, environment }, deposit } = offer;
        let mut open = self.lock();
        open.last += 1;
        let id = open.last;
        let command = [program.into_os_string()].into_iter().chain(args.into_iter().map(OsString::from));
        let variable = |(name, value): (OsString, OsString)| {
            [name.as_os_str(), OsStr::new("="), &value].map(OsStr::as_bytes).concat()
        };
        let command = v1alpha1::Lease {
            id,
            command: command.map(OsString::into_vec).collect(),
            environment: environment.into_iter().map(variable).collect(),
        };
        open.held.insert(id, (peer.process(), deposit));
        (Lease { leases: self.clone(), id }, command)
    }

    fn deposit(&self, peer: &Peer, request: v1alpha1::DepositOutputRequest) -> Result<(), Status> {
        let v1alpha1::DepositOutputRequest { lease_id, stdout, exit_code } = request;
        let deposit = Deposit { stdout: stdout.into(), exit_code };
        let held = {
            let leases = &mut self.lock().held;
            let is_held = leases.get(&lease_id).is_some_and(|(process, _)| *process == peer.process());
            if is_held { leases.remove(&lease_id) } else { None }
        };
        held.and_then(|(_, taker)| taker.send(deposit).ok())
            .ok_or_else(|| status::invalid("this process does not hold a lease with this id"))
    }

    fn lock(&self) -> MutexGuard<'_, OpenLeases> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.lock().held.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
