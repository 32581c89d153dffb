//! The user and password of a proxy.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use percent_encoding::percent_decode_str;

/// A tunnel through `proxy`, with the user and password of its URL.
pub(crate) fn tunnel<C>(proxy: Uri, connector: C) -> Tunnel<C> {
    let authorization = basic(&proxy);
    let tunnel = Tunnel::new(proxy, connector);
    match authorization {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    }
}

fn basic(proxy: &Uri) -> Option<HeaderValue> {
    let (user, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    let decoded: Vec<u8> = percent_decode_str(user).collect();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(decoded))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_and_the_password_are_percent_decoded() {
        let header = basic(&Uri::from_static("http://user:pa%40ss@proxy.example:3128")).unwrap();
        assert!(header == "Basic dXNlcjpwYUBzcw==" && header.is_sensitive());
        assert_eq!(basic(&Uri::from_static("http://proxy.example:3128")), None);
    }
}
