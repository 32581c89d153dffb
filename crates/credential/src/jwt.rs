//! The expiry in a JSON web token.

use std::time::{Duration, SystemTime};

use base64::{
    Engine,
    alphabet::URL_SAFE,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use crate::document::json;

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The `exp` claim of a JWT: three base64url parts, of which the second is a JSON object. The signature is not verified,
/// so the claim may only shorten a lifetime. `None`: the token is not such a JWT.
pub(super) fn expiry(token: &str) -> Option<SystemTime> {
    let mut parts = token.split('.').map(|part| BASE64URL.decode(part).ok());
    let (_, payload, _) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    let seconds: f64 = json(&payload).ok()?.get("exp")?.as_number()?.parse().ok()?;
    let distance = Duration::try_from_secs_f64(seconds.abs()).ok()?;
    if seconds < 0.0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(payload: &str) -> String {
        format!("e30.{}.c2ln", base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(payload))
    }

    fn at(seconds: f64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_claim_is_read_as_an_integer_or_a_fraction() {
        assert_eq!(expiry(&token(r#"{"aud":["x"],"exp":1784888430}"#)), Some(at(1_784_888_430.0)));
        assert_eq!(expiry(&token(r#"{"exp":1784888430.5}"#)), Some(at(1_784_888_430.5)));
        assert_eq!(expiry(&token(r#"{"exp":1.7e9}"#)), Some(at(1.7e9)));
        assert!(expiry(&token(r#"{"exp":-1}"#)) < Some(at(0.0)));
    }

    #[test]
    fn a_text_that_is_not_a_jwt_has_no_expiry() {
        let payloads = [
            r#"{"exp":"1784888430"}"#,
            r#"{"exp":null}"#,
            r#"{"EXP":1}"#,
            "{}",
            "[1]",
            "1",
            "",
            r#"{"exp":1e300}"#,
        ];
        for text in payloads.map(token) {
            assert_eq!(expiry(&text), None, "{text}");
        }
        let good = token(r#"{"exp":1}"#);
        for text in ["", ".", "..", "a.b.c", "opaque", "k8s-aws-v1.aHR0cHM6Ly9zdHM"] {
            assert_eq!(expiry(text), None, "{text}");
        }
        assert_eq!(expiry(&format!("{good}.e30")), None, "five parts or four are encrypted or unknown");
        assert_eq!(expiry(good.strip_suffix(".c2ln").unwrap()), None);
    }
}
