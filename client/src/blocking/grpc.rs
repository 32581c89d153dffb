//! The part of gRPC over HTTP/2 that one unary call needs. Pure.

use std::time::Duration;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use credbroker_proto::{
    Code,
    v1::{GetCredentialRequest, GetCredentialResponse},
    v1alpha1::AttendCredentialResponse,
};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, header};
use percent_encoding::percent_decode;
use prost::{Message, encoding};

use super::call::ExchangeError;

/// The default limit of gRPC clients. A credential has at most a mebibyte.
pub(super) const MAX_RESPONSE: usize = 4 * 1024 * 1024;
/// The bytes before each message: a compression flag, and the length in four bytes.
const PREFIX: usize = 5;
pub(super) const GET: &str = "http://localhost/credbroker.v1.CredentialBroker/GetCredential";
pub(super) const ATTEND: &str = "http://localhost/credbroker.v1alpha1.CredentialBrokerLogin/AttendCredential";
pub(super) const DEPOSIT: &str = "http://localhost/credbroker.v1alpha1.CredentialBrokerLogin/DepositOutput";
/// How the message of a plugin that needs a user ends.
const NEEDS_PERSON: &str = "(INTERACTION_REQUIRED)";
/// A timeout has at most eight digits.
const LONGEST_TIMEOUT: u128 = 99_999_999;

/// The parts of a response.
#[derive(Debug, Default)]
pub(super) struct RawResponse {
    pub(super) http_status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// `None`: the response had only headers.
    pub(super) trailers: Option<HeaderMap>,
}

/// An error status.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct ErrorStatus {
    pub(super) code: Code,
    pub(super) message: String,
    /// An encoded `google.rpc.Status`. Empty: none.
    pub(super) details: Vec<u8>,
}

/// A message with its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    prefixed(&message.encode_to_vec())
}

/// The message of `AttendCredential`, with what `get` says. It is encoded without a copy of these,
/// whose code would be as large as that of the call.
pub(super) fn attending(get: &GetCredentialRequest, is_login: bool, can_run_plugin: bool) -> Bytes {
    let mut message = Vec::new();
    if let Some(reference) = &get.r#ref {
        encoding::message::encode(1, reference, &mut message);
    }
    let (text, length) = (encoding::string::encode, encoding::string::encoded_len);
    encoding::btree_map::encode(text, length, text, length, 2, &get.session, &mut message);
    for (tag, value) in [(3, is_login), (4, can_run_plugin)] {
        if value {
            encoding::bool::encode(tag, &value, &mut message);
        }
    }
    if let Some(caller) = &get.exec_plugin_caller {
        encoding::message::encode(5, caller, &mut message);
    }
    if let Some(min_lifetime) = &get.min_lifetime {
        encoding::message::encode(6, min_lifetime, &mut message);
    }
    prefixed(&message)
}

fn prefixed(message: &[u8]) -> Bytes {
    let mut framed = Vec::with_capacity(PREFIX + message.len());
    framed.push(0);
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.extend_from_slice(message);
    framed.into()
}

/// The headers of a request. `left` is the time for the response; `None`: the broker decides.
pub(super) fn head(method: &'static str, left: Option<Duration>) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(method);
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(Ok(timeout)) = left.map(timeout).map(HeaderValue::try_from) {
        headers.insert("grpc-timeout", timeout);
    }
    request
}

/// A little less than is left, so that a response at the broker's deadline arrives before ours.
fn timeout(left: Duration) -> String {
    let margin = (left / 10).min(Duration::from_millis(500));
    let millis = left.saturating_sub(margin).as_millis().clamp(1, LONGEST_TIMEOUT);
    format!("{millis}m")
}

/// The message or the error status of a response. The outer error: it is not a gRPC response.
pub(super) fn outcome(
    answer: &RawResponse,
) -> Result<Result<GetCredentialResponse, ErrorStatus>, ExchangeError> {
    let heads = answer.trailers.iter().chain([&answer.headers]);
    let Some(found) = heads.into_iter().find_map(status) else {
        let http = answer.http_status;
        return Err(not_grpc(format!("the response has no gRPC status (HTTP {http})")));
    };
    if found.code != Code::Ok {
        return Ok(Err(found));
    }
    let undecodable = || not_grpc("the response is not a credential".into());
    let message = unframed(&answer.body).ok_or_else(undecodable)?;
    GetCredentialResponse::decode(message).map(Ok).ok().ok_or_else(undecodable)
}

/// Whether the plugin needs a user.
pub(super) fn needs_person(answer: &RawResponse) -> bool {
    answer.body.is_empty()
        && matches!(outcome(answer), Ok(Err(status)) if status.message.ends_with(NEEDS_PERSON))
}

/// Takes the first message with its prefix from the begin of `body`, if all of it is there.
pub(super) fn take_framed(body: &mut Vec<u8>) -> Option<Vec<u8>> {
    let [_, length @ ..] = *body.first_chunk::<PREFIX>()?;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(PREFIX)?;
    (body.len() >= length).then(|| body.drain(..length).collect())
}

/// The message with this prefix.
pub(super) fn message(framed: &[u8]) -> Option<AttendCredentialResponse> {
    AttendCredentialResponse::decode(unframed(framed)?).ok()
}

fn not_grpc(text: String) -> ExchangeError {
    ExchangeError::NotGrpc(text)
}

fn status(headers: &HeaderMap) -> Option<ErrorStatus> {
    let code = Code::from_header(headers.get("grpc-status")?.as_bytes());
    let bytes = |name| headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let message = percent_decode(bytes("grpc-message")).decode_utf8_lossy().into_owned();
    let details = PADDED_OR_NOT.decode(bytes("grpc-status-details-bin")).unwrap_or_default();
    Some(ErrorStatus { code, message, details })
}

/// gRPC writes base64 without padding, and accepts it.
const PADDED_OR_NOT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The only message of a body. It is not compressed, because the request does not offer that.
fn unframed(body: &[u8]) -> Option<&[u8]> {
    let ([0, length @ ..], message) = body.split_first_chunk::<PREFIX>()? else { return None };
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    (message.len() == length).then_some(message)
}

#[cfg(test)]
mod tests;
