//! The values of flags, checked.

use std::{ffi::OsStr, time::Duration};

use credbroker_client::ClusterProfileRef;

use super::{API_VERSION, CLUSTER_PROFILE, DEFINITION, FALLBACK, PROXY, SERVER, TIMEOUT, UsageError};
use crate::{document::ApiVersion, timeout as parsed};

pub(super) fn provider_name(flag: &'static str, value: &OsStr) -> Result<String, UsageError> {
    let name = value.to_str().filter(|name| !name.is_empty() && !name.chars().any(char::is_control));
    name.map(str::to_owned).ok_or_else(|| refused(flag, value, "the name of a provider"))
}

pub(super) fn definition(value: &OsStr) -> Result<String, UsageError> {
    let digest =
        value.to_str().filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric()));
    digest
        .map(str::to_owned)
        .ok_or_else(|| refused(DEFINITION, value, "a digest that `credbroker status -o json` lists"))
}

pub(super) fn cluster_profile(value: &OsStr) -> Result<ClusterProfileRef, UsageError> {
    let profile = value.to_str().and_then(|text| text.parse().ok());
    profile.ok_or_else(|| refused(CLUSTER_PROFILE, value, "NAMESPACE/NAME"))
}

pub(super) fn server(value: &OsStr) -> Result<String, UsageError> {
    let url = value.to_str().filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    url.map(str::to_owned).ok_or_else(|| refused(SERVER, value, "the URL of the cluster's API server"))
}

pub(super) fn timeout(value: &OsStr) -> Result<Duration, UsageError> {
    let text = value.to_str().ok_or_else(|| refused(TIMEOUT, value, "a duration"))?;
    parsed(text).map_err(|error| UsageError::Duration { flag: TIMEOUT, value: text.to_owned(), error })
}

pub(super) fn api_version(value: &OsStr) -> Result<ApiVersion, UsageError> {
    value
        .to_str()
        .and_then(ApiVersion::from_short_name)
        .ok_or_else(|| refused(API_VERSION, value, "v1 or v1beta1"))
}

/// The path of a target at the proxy.
pub(super) fn target(value: &OsStr) -> Result<String, UsageError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.' | b'_');
    let path = value.to_str().filter(|path| path.starts_with('/') && path.bytes().all(is_plain));
    path.map(str::to_owned)
        .ok_or_else(|| refused(PROXY, value, "/clusters/NAMESPACE/NAME or /contexts/NAME-DIGEST"))
}

/// Whether the original may run.
pub(super) fn fallback(value: &OsStr) -> Result<bool, UsageError> {
    match value.to_str() {
        Some("auto") => Ok(true),
        Some("never") => Ok(false),
        _ => Err(refused(FALLBACK, value, "auto or never")),
    }
}

pub(super) fn refused(flag: &'static str, value: &OsStr, expected: &'static str) -> UsageError {
    UsageError::Value { flag, value: value.to_string_lossy().into_owned(), expected }
}
