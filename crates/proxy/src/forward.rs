//! The way of one request, from its caller to its target and back.

use std::{sync::Arc, time::Duration};

use credbroker_client::{AnsweredElsewhere, Broker, Error, SentWith, tls::ResponseBody};
use credbroker_observe::{
    clock::{Clock, SystemClock},
    trace::{self, RequestSpan},
};
use credbroker_request_info::RequestInfo;
use http::{Request, Response, StatusCode, Uri};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    answer::AnswerBody,
    caller::Caller,
    drain,
    exchange::{Exchange, Exchanges, Lasting, Limits},
    failure::no_credential,
    headers::{self, Protocol},
    path::{Address, TargetName},
    record::{NoRecords, Pending, Records},
    request_body::{Budget, RequestBody},
    rights::Rights,
    status::Refused,
    target::{KnownTarget, Targets, UsedTarget},
    upgrade::tunnel,
    usage::TargetUse,
};

/// Most bytes of a body. The API server takes 3 MiB.
const BODY: u64 = 4 * 1024 * 1024;

/// Forwards requests. Needs a tokio runtime.
#[derive(Debug)]
pub struct Proxy {
    targets: Arc<Targets>,
    exchanges: Arc<Exchanges>,
    rights: Arc<dyn Rights>,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    budget: Budget,
    times: Times,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What a proxy can do without.
#[derive(Debug)]
pub struct Options {
    /// How many requests may be open.
    pub limits: Limits,
    /// Where records go.
    pub records: Arc<dyn Records>,
    /// Measures durations.
    pub clock: Arc<dyn Clock>,
    /// How long things may take.
    pub times: Times,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long a request waits for a credential.
    pub credential: Duration,
    /// To make a connection, TLS included.
    pub connect: Duration,
    /// From a request to the headers of its answer. A watch and other requests that last have no limit.
    pub answer: Duration,
    /// What tunnels, and streams other than watches, have when the proxy ends.
    pub drain: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            credential: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            records: Arc::new(NoRecords),
            clock: Arc::new(SystemClock),
            times: Times::default(),
        }
    }
}

impl Proxy {
    /// Forwards to the targets of `broker` what `rights` allow.
    pub fn new(broker: Broker, rights: Arc<dyn Rights>, options: Options) -> Arc<Self> {
        let Options { limits, records, clock, times } = options;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let targets = Arc::new(Targets::new(broker, times.connect));
        let exchanges = Arc::new(Exchanges::new(limits, tasks.clone()));
        tasks.spawn(drain::follow_rights(Arc::clone(&exchanges), Arc::clone(&rights), stop.clone()));
        tasks.spawn(drain::follow_targets(Arc::clone(&exchanges), Arc::clone(&targets), stop.clone()));
        let (known, stopped) = (Arc::clone(&targets), stop.clone());
        tasks.spawn(async move { stopped.run_until_cancelled(known.log_the_broker()).await });
        let budget = Budget::default();
        Arc::new(Self { targets, exchanges, rights, records, clock, budget, times, tasks, stop })
    }

    /// The targets that `caller` may use.
    pub async fn targets(&self, caller: &Caller) -> Vec<KnownTarget> {
        let known = self.targets.known().await.into_iter();
        known.filter(|target| self.rights.may_use(caller, target)).collect()
    }

    /// The access rule by which `caller` may use the target of that name; `None`: it needs none.
    ///
    /// # Errors
    ///
    /// There is no such target, or the caller may not use it.
    pub(crate) async fn rule(&self, caller: &Caller, name: &TargetName) -> Result<Option<Arc<str>>, Refused> {
        let target = self.targets.find(name, |target| self.rights.may_use(caller, target)).await?;
        Ok(self.rights.rule(caller, &target))
    }

    /// The same, after there is a credential for the target or half of the time for it has passed: who asks for a handle waits,
    /// and so does the request that follows.
    ///
    /// # Errors
    ///
    /// As there, and the broker has no credential. A broker that does not answer is not an error: it may be starting.
    pub(crate) async fn ready(
        &self,
        caller: &Caller,
        name: &TargetName,
    ) -> Result<Option<Arc<str>>, Refused> {
        let target = self.targets.find(name, |target| self.rights.may_use(caller, target)).await?;
        match self.used(&target)?.ready(self.times.credential / 2).await {
            Err(error @ Error::Failed(_)) if !error.may_be_starting() => Err(no_credential(&target, &error)),
            _ => Ok(self.rights.rule(caller, &target)),
        }
    }

    /// Records a request that a listener has refused.
    pub(crate) fn refused(&self, caller: &Arc<Caller>, refused: &Refused) {
        Pending::new(audit_id(), caller, &self.records, &self.clock).refused(refused);
    }

    /// How many requests are open.
    pub fn open_requests(&self) -> usize {
        self.exchanges.count()
    }

    /// The open requests, by target.
    pub fn open(&self) -> Vec<(Arc<KnownTarget>, usize)> {
        self.exchanges.by_target()
    }

    /// The targets in use that `caller` may list, in order. `None`: it may list nothing.
    pub fn usage(&self, caller: &Caller) -> Option<Vec<TargetUse>> {
        if !self.rights.may_list(caller, None) {
            return None;
        }
        let (used, streams) = (self.targets.in_use().into_iter(), self.exchanges.streams());
        let seen = used.filter(|used| self.rights.may_list(caller, Some(&used.known)));
        let streams = |known: &Arc<KnownTarget>| streams.get(known).copied().unwrap_or_default();
        let mut seen: Vec<_> = seen.map(|used| used.traffic.of(&used.known, streams(&used.known))).collect();
        seen.sort_by(|one, other| one.path.cmp(&other.path));
        Some(seen)
    }

    /// Ends all requests: watches between two events, tunnels and the rest after ten seconds. Requests that begin meanwhile
    /// are answered, other than watches.
    ///
    /// `closing` is that of the [`ListenerParts`](crate::ListenerParts). It is cancelled when the tunnels have ended.
    pub async fn drain(&self, closing: &CancellationToken) {
        drain::drain(&self.exchanges, self.times.drain, closing).await;
    }

    /// The answer to one request. The proxy's own errors are `Status` objects.
    pub async fn answer(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        request: Request<Incoming>,
    ) -> Response<AnswerBody> {
        let span = RequestSpan::forwarded(request.headers());
        let answer = async {
            let mut pending = Pending::new(audit_id(), caller, &self.records, &self.clock);
            match self.forward(caller, request, &mut pending).await {
                Ok(answered) => {
                    trace::forwarded(answered.response.status().as_u16(), None);
                    self.pass_on(answered, pending)
                }
                Err(refused) => {
                    trace::forwarded(refused.code.as_u16(), Some(refused.reason));
                    pending.refused(&refused);
                    refused.into_response()
                }
            }
        };
        // Boxed: the state of a request is large, and a listener moves it.
        Box::pin(span.around(answer)).await
    }
}

impl Proxy {
    async fn forward(
        &self,
        caller: &Arc<Caller>,
        mut request: Request<Incoming>,
        pending: &mut Pending,
    ) -> Result<Answered, Refused> {
        if let Some(headers::Hidden(why)) = request.extensions().get() {
            return Err(Refused::bad_request(*why));
        }
        headers::check(request.version(), request.headers())?;
        let address = Address::read(request.method(), request.uri(), request.version())?;
        pending.asks_for(&address);
        let protocol = headers::upgrade(request.headers())?;
        let may_use = |target: &KnownTarget| self.rights.may_use(caller, target);
        let target = self.targets.find(&address.target, may_use).await?;
        pending.goes_to(&target);
        trace::forwards(|| {
            let RequestInfo { verb, resource, .. } = address.attributes();
            [
                ("credbroker.target", target.in_records()),
                ("credbroker.verb", verb.clone()),
                ("credbroker.resource", resource.clone()),
                ("credbroker.audit_id", pending.audit_id().to_owned()),
            ]
        });
        let is_watch = address.attributes().verb == "watch" && protocol.is_none();
        let is_long = protocol.is_some() || is_long(address.attributes());
        let lasting = match () {
            () if is_watch => Lasting::Watch,
            () if is_long => Lasting::Stream,
            () => Lasting::Short,
        };
        let exchange = self.exchanges.begin(caller, &target, lasting)?;
        // A right that was lost before this request was among the open ones did not end it.
        if !may_use(&target) {
            return Err(Refused::target());
        }
        let used = self.used(&target)?;
        pending.counts_as(&used.traffic);
        let client = protocol.map(|_| hyper::upgrade::on(&mut request));

        let (head, incoming) = request.into_parts();
        let limit = (!is_connect(address.attributes())).then_some(BODY);
        let body = RequestBody::new(incoming, limit, &self.budget);
        let progress = body.progress();
        if limit.is_some_and(|limit| http_body::Body::size_hint(&body).lower() > limit) {
            return Err(too_large());
        }
        pending.reads(progress.clone());
        let path =
            address.path_and_query("").map_err(|_invalid| Refused::bad_request("the path is not valid"))?;
        let mut upstream = Request::new(body);
        *upstream.method_mut() = head.method;
        *upstream.uri_mut() = Uri::from(path);
        *upstream.headers_mut() = headers::for_upstream(head.headers, pending.audit_id(), protocol.is_some());
        if address.attributes().subresource == "proxy" {
            upstream.extensions_mut().insert(AnsweredElsewhere);
        }

        let cut = exchange.parties.ending.cut.clone();
        let answer = used.answer(upstream, protocol.is_some(), is_long, self.times);
        let answer = tokio::select! {
            answer = answer => answer,
            () = cut.cancelled() => Err(ended()),
        };
        let mut response = answer.map_err(|refused| match () {
            () if progress.is_too_large() => too_large(),
            () if progress.has_failed() => Refused::bad_request("the body was not sent to its end"),
            () => refused,
        })?;
        progress.forget();
        let sent = response.extensions_mut().remove::<SentWith>();
        let sent = sent.as_ref().map(|SentWith(credential)| credential);
        let generation = sent.map(|credential| credential.generation());
        pending.answered(response.status().as_u16(), generation);
        let server = sent.and_then(|credential| credential.cluster()?.server.parse().ok());
        let (status, server) = (response.status(), server.unwrap_or_default());
        headers::for_client(response.headers_mut(), status, &server, &address, protocol)?;
        Ok(Answered { response, exchange, used, is_long, is_watch, client: client.zip(protocol) })
    }

    /// The target with its credential and connections.
    fn used(&self, target: &Arc<KnownTarget>) -> Result<Arc<UsedTarget>, Refused> {
        self.targets.open(
            target,
            |known| self.exchanges.is_used(known),
            |used| {
                let withdrawals = used.source.withdrawals();
                let (exchanges, known) = (Arc::clone(&self.exchanges), Arc::clone(&used.known));
                self.tasks.spawn(drain::follow_credential(exchanges, known, withdrawals, self.stop.clone()));
            },
        )
    }

    /// Hands the answer to the client, and the streams to the tasks that carry them.
    fn pass_on(&self, answered: Answered, mut pending: Pending) -> Response<AnswerBody> {
        let Answered { response, exchange, used, is_long, is_watch, client } = answered;
        let mut answer = Response::new(AnswerBody::empty());
        *answer.status_mut() = response.status();
        answer.headers_mut().clone_from(response.headers());
        if is_long && response.status().as_u16() < 300 {
            pending.begin();
        }
        match client {
            Some((client, protocol)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                pending.upgraded(protocol.as_str());
                self.tasks.spawn(async move {
                    tunnel(client, response, exchange, pending).await;
                    drop(used);
                });
            }
            _ => {
                let (head, body) = response.into_parts();
                let watch = (is_watch && head.status == StatusCode::OK).then_some(&head.headers);
                *answer.body_mut() = AnswerBody::forwarded(body, watch, exchange, used, pending);
            }
        }
        answer
    }
}

/// The answer of an API server, and what it needs until its end.
struct Answered {
    response: Response<ResponseBody>,
    exchange: Exchange,
    used: Arc<UsedTarget>,
    is_long: bool,
    is_watch: bool,
    /// The client's side of an upgrade that it asked for.
    client: Option<(OnUpgrade, Protocol)>,
}

/// As the API server sees it: its answer may last, so nothing limits it.
fn is_long(attributes: &RequestInfo) -> bool {
    attributes.verb == "watch" || attributes.subresource == "log" || is_connect(attributes)
}

/// The request is for a program behind the API server.
fn is_connect(attributes: &RequestInfo) -> bool {
    matches!(&*attributes.subresource, "exec" | "attach" | "portforward" | "proxy")
}

fn too_large() -> Refused {
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 4 MiB")
}

fn ended() -> Refused {
    let message = "the proxy ended this request";
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(Duration::from_secs(1))
}

/// A name that no other request has, in the form that API servers use.
fn audit_id() -> Arc<str> {
    let number = fastrand::u128(..);
    // A random UUID has a version and a variant.
    let number = (number & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let digits = format!("{number:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or_default());
    parts.join("-").into()
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.close();
    }
}
