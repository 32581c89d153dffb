//! `WatchCredentials`: the watches of many references on one stream.
//!
//! The stream has no task. Its references are polled when the peer can take an answer, so what waits for a peer that does
//! not read is a set of references that were woken; each is asked for its newest state.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use credbroker_proto::v1::{
    self as pb, watch_credentials_request::Addition, watch_credentials_response::Result as Outcome,
};
use futures_util::{
    FutureExt as _, Stream, StreamExt as _, TryFutureExt as _,
    future::BoxFuture,
    stream::{self, AbortHandle, Abortable, BoxStream, SelectAll},
};
use tonic::Status;

use super::{
    access::Access,
    broker::Broker,
    convert::WatchedReference,
    preencoded::{Follow, numbered, put_frame},
    status,
    watch::{ReferenceWatch, keeps_right},
};
use credbroker_runner::PluginRunner;
use credbroker_uds_server::Charge;

/// Bytes of a watched reference, besides what its request has.
const REFERENCE: usize = 1024;
/// Answers are collected in frames of so many bytes, the largest of HTTP/2: many small ones that wait for a peer would be
/// searched by h2 for each that it sends.
const FRAME: usize = 16 * 1024;
/// A longer answer is not copied into a frame with others.
const LONG: usize = 8 * 1024;

type Requests = BoxStream<'static, Result<pb::WatchCredentialsRequest, Status>>;
type Refused = VecDeque<(u64, Arc<Status>)>;
type Answers = BoxStream<'static, (u64, Result<Bytes, Status>)>;

/// The state of one stream.
pub(super) struct References<R> {
    broker: Arc<Broker<R>>,
    access: Arc<Access>,
    charge: Arc<Charge>,
    /// `None`: the peer has closed its side.
    requests: Option<Requests>,
    /// Changes of the access rules.
    changes: BoxStream<'static, ()>,
    numbers: HashMap<u64, Watched>,
    watches: SelectAll<Abortable<Answers>>,
    /// References that are not watched. No further request is read before they are answered.
    refused: Refused,
    /// The start of the next frame.
    answers: BytesMut,
    /// Frames that are sent next.
    frames: VecDeque<Bytes>,
}

/// A reference, and what ends its watch.
struct Watched {
    reference: WatchedReference,
    end: AbortHandle,
}

impl<R: PluginRunner> References<R> {
    pub(super) fn new(
        broker: Arc<Broker<R>>,
        access: Arc<Access>,
        charge: Arc<Charge>,
        requests: impl Stream<Item = Result<pb::WatchCredentialsRequest, Status>> + Send + 'static,
    ) -> Self {
        let changes = stream::unfold(access.changes(), async |mut policies| {
            policies.changed().await.ok().map(|()| ((), policies))
        });
        Self {
            broker,
            access,
            charge,
            // Without an end: when the sender is gone, the broker ends.
            changes: changes.chain(stream::pending()).boxed(),
            requests: Some(requests.boxed()),
            numbers: HashMap::new(),
            watches: SelectAll::new(),
            refused: VecDeque::new(),
            answers: BytesMut::new(),
            frames: VecDeque::new(),
        }
    }

    fn apply(
        &mut self,
        pb::WatchCredentialsRequest { add, remove }: pb::WatchCredentialsRequest,
    ) -> Result<(), Status> {
        for number in remove {
            if let Some(watched) = self.numbers.remove(&number) {
                watched.end.abort();
            }
        }
        add.into_iter().try_for_each(|addition| self.add(addition))
    }

    fn add(&mut self, Addition { number, r#ref }: Addition) -> Result<(), Status> {
        let Entry::Vacant(free) = self.numbers.entry(number) else {
            let message = format!("the number {number} is in use: remove it before you add it");
            return Err(status::invalid(&message));
        };
        let (charge, reference) = (self.charge.part(), WatchedReference::new(r#ref.as_ref()));
        match charge.charge(REFERENCE + 2 * reference.size()) {
            Ok(()) => {
                let watch = ReferenceWatch::start(
                    Arc::clone(&self.broker),
                    reference.clone(),
                    Arc::clone(&self.access),
                );
                let watch = async { watch.await.map(Box::new) }.boxed();
                let (answers, end) = stream::abortable(answers(number, watch, charge).boxed());
                free.insert(Watched { reference, end });
                self.watches.push(answers);
            }
            Err(refusal) => refuse(&mut self.refused, number, status::refusal(refusal)),
        }
        Ok(())
    }

    /// Ends the watches that new access rules do not allow.
    fn keep_rights(&mut self) {
        let Self { broker, access, numbers, refused, .. } = self;
        numbers.retain(|number, Watched { reference, end }| {
            let Err(status) = keeps_right(broker, reference, access) else { return true };
            end.abort();
            refuse(refused, *number, status);
            false
        });
    }

    fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(), Status>>> {
        loop {
            if self.changes.poll_next_unpin(cx).is_ready() {
                self.keep_rights();
                continue;
            }
            // One request, then what there is to answer: neither waits for the end of the other.
            let request = match self.requests.as_mut().filter(|_| self.refused.is_empty()) {
                Some(requests) => requests.poll_next_unpin(cx),
                None => Poll::Pending,
            };
            let has_read = request.is_ready();
            match request {
                Poll::Ready(Some(request)) => {
                    if let Err(status) = request.map_err(readable).and_then(|request| self.apply(request)) {
                        return Poll::Ready(Some(Err(status)));
                    }
                }
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => {}
            }
            self.collect(cx);
            if !self.frames.is_empty() {
                return Poll::Ready(Some(Ok(())));
            }
            if self.requests.is_none() && self.numbers.is_empty() {
                return Poll::Ready(None);
            }
            if !has_read {
                return Poll::Pending;
            }
        }
    }

    /// Fills a frame with the answers that are ready.
    fn collect(&mut self, cx: &mut Context<'_>) {
        while self.answers.len() < FRAME {
            if let Some((number, status)) = self.refused.pop_front() {
                put_failure(number, &status, &mut self.answers);
                continue;
            }
            let Poll::Ready(Some((number, answer))) = self.watches.poll_next_unpin(cx) else { break };
            match answer {
                Ok(frame) => {
                    let rest = numbered(number, &frame, &mut self.answers);
                    if rest.len() > LONG {
                        self.frames.extend([self.answers.split().freeze(), rest]);
                        return;
                    }
                    self.answers.extend_from_slice(&rest);
                }
                Err(status) => {
                    self.numbers.remove(&number);
                    put_failure(number, &status, &mut self.answers);
                }
            }
        }
        // An answer may go on in the next frame.
        let frame = self.answers.split_to(self.answers.len().min(FRAME));
        if !frame.is_empty() {
            self.frames.push_back(frame.freeze());
        }
    }
}

impl<R: PluginRunner> Follow for References<R> {
    /// `None`: the peer has closed its side, and no reference is left.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        if self.frames.is_empty()
            && let Err(status) = poll_fn(|cx| self.poll_frames(cx)).await?
        {
            return Some(Err(status));
        }
        self.frames.pop_front().map(Ok)
    }
}

/// The answers about one reference. The last one is an error.
///
/// What waits is boxed apart from what it waits with: a future has room for its arguments and for its variables.
fn answers<R: PluginRunner>(
    number: u64,
    start: BoxFuture<'static, Result<Box<ReferenceWatch<R>>, Status>>,
    charge: Charge,
) -> impl Stream<Item = (u64, Result<Bytes, Status>)> + Send {
    let follow = |watch| {
        stream::try_unfold(watch, async |mut watch: Box<ReferenceWatch<R>>| {
            let frame = watch.next().await?;
            Ok(Some((frame, watch)))
        })
    };
    start.map_ok(follow).try_flatten_stream().map(move |answer| {
        // Ends with the watch.
        let _charged = &charge;
        (number, answer)
    })
}

/// Many references of one request, or under one new rule, fail alike: they share the status.
fn refuse(refused: &mut Refused, number: u64, status: Status) {
    let last = refused.back().map(|(_, last)| last);
    let same = last.filter(|last| last.message() == status.message()).map(Arc::clone);
    refused.push_back((number, same.unwrap_or_else(|| status.into())));
}

fn put_failure(number: u64, status: &Status, answers: &mut BytesMut) {
    let result = Some(Outcome::Failure(status::failure(status)));
    put_frame(&pb::WatchCredentialsResponse { number, result, cluster: None }, answers);
}

/// What a request that cannot be read ends the stream with. The server on the socket has reasons; a decoder has none.
fn readable(status: Status) -> Status {
    use tonic_types::StatusExt as _;
    if status.get_details_error_info().is_some() {
        return status;
    }
    status::invalid(&format!("a message of the stream cannot be read: {}", status.message()))
}

#[cfg(test)]
mod tests;
