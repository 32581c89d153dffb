//! Messages that are encoded once for many calls. tonic would encode or copy them for each one.
//!
//! A credential is encoded once for each generation of each key: `GetCredentialResponse`, `WatchCredentialResponse`,
//! `WatchCredentialsResponse` and `ReportRejectedResponse` have its fields under the same numbers, and
//! `AttendCredentialResponse` has a `GetCredentialResponse`, as a test checks.

use std::{
    convert::Infallible,
    future::ready,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use credbroker_proto::v1 as pb;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderValue, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use prost::{
    Message,
    encoding::{self, encode_varint, encoded_len_varint},
};
use tonic::{Response, Status, body::Body};

use super::{convert, status};
use credbroker_credential::{Cluster, Draft, EncodedCredential};
use credbroker_uds_server::{error_trailers, ok_trailers};

/// The type that the generated service expects of a method with a stream of answers.
pub(super) type MessageStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A body in the extensions of a response, which replaces its own.
#[derive(Clone)]
pub(super) struct Preencoded(Arc<Mutex<Option<Body>>>);

/// Bytes before a message: the compression flag and the length.
const HEAD: usize = 5;

/// Encodes `draft` as a `GetCredentialResponse`, framed for gRPC.
pub fn encode(draft: &Draft<'_>) -> EncodedCredential {
    let Draft { material, lifetime, .. } = draft;
    let pem = material.pem();
    let credential = pb::Credential {
        generation: draft.generation.to_string(),
        token: material.token().map(str::to_owned),
        client_certificate_data: pem.map(|[chain, _]| chain.to_vec()),
        client_key_data: pem.map(|[_, key]| key.to_vec()),
        expiration_time: Some(lifetime.expires_at.into()),
        certificate_fingerprint: material.pair.as_ref().map(|pair| pair.fingerprint.to_string()),
        lifetime: convert::duration(lifetime.left(draft.fetched.wall)),
    };
    // prost writes fields in the order of their numbers, each as tag, length and bytes, and omits absent ones.
    let mut end = HEAD + head(credential.encoded_len());
    let mut field = |value: Option<&[u8]>| -> Option<Range<usize>> {
        let length = value?.len();
        let start = end + head(length);
        end = start + length;
        Some(start..end)
    };
    field(Some(credential.generation.as_bytes()));
    let token = field(credential.token.as_ref().map(String::as_bytes));
    let certificate = field(credential.client_certificate_data.as_deref());
    let key = field(credential.client_key_data.as_deref());
    let cluster = draft.cluster.map(convert::cluster_message);
    let message = pb::GetCredentialResponse { credential: Some(credential), cluster, is_short: false };
    EncodedCredential { frame: frame(&message), token, certificate, key }
}

/// Length in bytes of a tag with a field number below 16 and of the length that follows it.
fn head(length: usize) -> usize {
    1 + encoded_len_varint(length as u64)
}

/// The message in `body`. `None` unless `body` is exactly one uncompressed message.
pub(super) fn message(body: &Bytes) -> Option<Bytes> {
    let (head, message) = body.split_first_chunk::<HEAD>()?;
    let [0, length @ ..] = *head else { return None };
    (usize::try_from(u32::from_be_bytes(length)) == Ok(message.len())).then(|| body.slice(HEAD..))
}

/// `message` as one uncompressed gRPC message on the wire.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + message.encoded_len());
    put_frame(message, &mut frame);
    frame.freeze()
}

/// Puts the [`frame`] of `message`.
pub(super) fn put_frame(message: &impl Message, frames: &mut BytesMut) {
    put_head(message.encoded_len(), frames);
    // Cannot fail: the buffer grows.
    let _complete = message.encode(frames);
}

/// Puts what is in front of an uncompressed message of `length` bytes.
fn put_head(length: usize, frames: &mut BytesMut) {
    frames.put_u8(0);
    frames.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// The parts of an `AttendCredentialResponse` that has the message of `frame`, a `GetCredentialResponse`, as its event.
pub(super) fn attended(frame: &Bytes) -> [Bytes; 2] {
    const EVENT: u8 = 1 << 3 | 2; // field 1, with a length
    let answer = frame.slice(HEAD.min(frame.len())..);
    let mut start = BytesMut::with_capacity(2 * HEAD + 1);
    put_head(head(answer.len()) + answer.len(), &mut start);
    start.put_u8(EVENT);
    encode_varint(answer.len() as u64, &mut start);
    [start.freeze(), answer]
}

/// Puts the start of the `WatchCredentialsResponse` with this number that has the fields of `frame`, and returns the rest.
pub(super) fn numbered(number: u64, frame: &Bytes, answers: &mut BytesMut) -> Bytes {
    const NUMBER: u32 = 3;
    let answer = frame.slice(HEAD.min(frame.len())..);
    put_head(encoding::uint64::encoded_len(NUMBER, &number) + answer.len(), answers);
    encoding::uint64::encode(NUMBER, &number, answers);
    answer
}

/// `frame`, a `GetCredentialResponse`, with `is_short`.
pub(super) fn short(frame: &Bytes) -> Bytes {
    const IS_SHORT: u32 = 3;
    extended(frame, encoding::bool::encoded_len(IS_SHORT, &true), |answer| {
        encoding::bool::encode(IS_SHORT, &true, answer);
    })
}

/// `frame`, a `GetCredentialResponse` or a `WatchCredentialResponse`, with the cluster that it lacks: one credential is for
/// several contexts.
pub(super) fn with_cluster(frame: &Bytes, cluster: &Cluster) -> Bytes {
    const CLUSTER: u32 = 2;
    let cluster = convert::cluster_message(cluster);
    extended(frame, encoding::message::encoded_len(CLUSTER, &cluster), |answer| {
        encoding::message::encode(CLUSTER, &cluster, answer);
    })
}

/// `frame` with a further field of `size` bytes. A copy, because an answer from memory is one piece, and few are extended.
fn extended(frame: &Bytes, size: usize, put: impl FnOnce(&mut BytesMut)) -> Bytes {
    let answer = frame.get(HEAD..).unwrap_or_default();
    let mut whole = BytesMut::with_capacity(HEAD + answer.len() + size);
    put_head(answer.len() + size, &mut whole);
    whole.put_slice(answer);
    put(&mut whole);
    whole.freeze()
}

/// The message of `frame`, for calls that are rare.
pub(super) fn decoded<T: Message + Default>(frame: &Bytes) -> Result<T, Status> {
    T::decode(frame.get(HEAD..).unwrap_or_default()).map_err(|_invalid| status::defect())
}

/// What a stream of messages follows. A message is made when the peer can take it, so a slow reader gets only the newest
/// state, and delays no other reader.
pub(super) trait Follow: Send + Sized + 'static {
    /// The next message, framed. `None`: the stream ends.
    fn next(&mut self) -> impl Future<Output = Option<Result<Bytes, Status>>> + Send;

    /// The body of its messages. The trailers follow the last one, or an error.
    fn body(self) -> Body {
        let frames = stream::unfold(Some(self), async |following| {
            let mut following = following?;
            let (frame, rest) = match following.next().await {
                Some(Ok(message)) => (Frame::data(message), Some(following)),
                Some(Err(status)) => (Frame::trailers(error_trailers(&status)), None),
                None => (Frame::trailers(ok_trailers()), None),
            };
            Some((Ok::<_, Infallible>(frame), rest))
        });
        Body::new(StreamBody::new(frames))
    }

    /// A response of its messages, typed as the generated service expects it.
    fn response<T: Send + 'static>(self) -> Response<MessageStream<T>> {
        let mut response = Response::new(stream::pending().boxed() as MessageStream<T>);
        response.extensions_mut().insert(Preencoded(Arc::new(Mutex::new(Some(self.body())))));
        response
    }
}

impl Preencoded {
    /// Takes the body. `None` if a clone has already taken it.
    pub(super) fn into_body(self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Replaces the body of `response` with the one in its extensions, if there is one.
    pub(super) fn put_in_place(response: &mut http::Response<Body>) {
        let beside = response.extensions_mut().remove::<Self>();
        if let Some(body) = beside.and_then(Self::into_body) {
            *response.body_mut() = body;
        }
    }
}

pub(super) fn response(frame: Bytes) -> http::Response<Body> {
    let body = Full::new(frame).with_trailers(ready(Some(Ok(ok_trailers()))));
    let mut response = http::Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

#[cfg(test)]
pub(super) mod tests;
