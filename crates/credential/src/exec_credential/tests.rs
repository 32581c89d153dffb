use std::{
    error::Error,
    fmt::Debug,
    time::{Duration, SystemTime},
};

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use proptest::prelude::*;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::*;
use crate::{
    PairError,
    document::{ParseError, Position},
};

mod canary;

const CHAIN: &str = include_str!("../fixtures/rsa2048.crt.pem");
const KEY: &str = include_str!("../fixtures/rsa2048-pkcs1.key.pem");

fn document(status: &Value) -> String {
    json!({ "kind": "ExecCredential", "apiVersion": ApiVersion::V1.as_str(), "status": status }).to_string()
}

fn decoded(text: impl AsRef<[u8]>) -> Decoded {
    let text = text.as_ref();
    decode(text, ApiVersion::V1).unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(text)))
}

fn refused(text: impl AsRef<[u8]>) -> DecodeError {
    decode(text.as_ref(), ApiVersion::V1).unwrap_err()
}

fn status_refused(status: &Value) -> DecodeError {
    refused(document(status))
}

fn token(decoded: &Decoded) -> Option<&str> {
    decoded.material.token.as_ref().map(|token| token.secret.expose_secret())
}

#[test]
fn json_and_yaml_are_read_alike() {
    let json = document(&json!({ "token": "t", "expirationTimestamp": "2026-07-24T10:20:30Z" }));
    let yaml = "# c\n---\napiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\nstatus:\n  token: t\n  \
                expirationTimestamp: 2026-07-24T10:20:30Z\n---\n";
    let flow = "{apiVersion: client.authentication.k8s.io/v1, status: {token: t, expirationTimestamp: '2026-07-24T10:20:30Z'}}";
    for text in
        [format!("\u{feff}\n {json} \n\n"), yaml.to_owned(), yaml.replace('\n', "\r\n"), flow.to_owned()]
    {
        let decoded = decoded(&text);
        assert_eq!(token(&decoded), Some("t"), "{text}");
        assert_eq!(decoded.expires_at, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_784_888_430)));
        assert!(decoded.material.pair.is_none() && decoded.warnings.is_empty());
    }
}

#[test]
fn each_version_is_accepted_if_it_is_the_expected_one() {
    for version in [ApiVersion::V1, ApiVersion::V1Beta1, ApiVersion::V1Alpha1] {
        let text = json!({ "apiVersion": version.as_str(), "status": { "token": "t" } }).to_string();
        assert_eq!(token(&decode(text.as_bytes(), version).unwrap()), Some("t"));
        let other = if version == ApiVersion::V1 { ApiVersion::V1Beta1 } else { ApiVersion::V1 };
        let error = decode(text.as_bytes(), other).unwrap_err();
        assert!(
            matches!(error, DecodeError::VersionMismatch(expected, found) if expected == other && found == Some(version))
        );
    }
}

#[test]
fn an_error_names_the_found_version_only_if_it_exists() {
    let text = json!({ "apiVersion": "client.authentication.k8s.io/v1beta1", "status": { "token": "t" } });
    assert_eq!(
        refused(text.to_string()).to_string(),
        "the plugin printed client.authentication.k8s.io/v1beta1, but the provider is configured for \
         client.authentication.k8s.io/v1; set `apiVersion` of the provider to the version that the plugin prints"
    );
    for version in
        ["v1", "example.com/v1", "client.authentication.k8s.io/V1", " client.authentication.k8s.io/v1"]
    {
        let error = refused(json!({ "apiVersion": version, "status": { "token": "t" } }).to_string());
        assert!(matches!(error, DecodeError::VersionMismatch(_, None)), "{error:?}");
    }
    for text in
        [r#"{"status":{"token":"t"}}"#, r#"{"apiVersion":""}"#, r#"{"apiVersion":null}"#, "error: no login"]
    {
        assert!(matches!(refused(text), DecodeError::VersionMissing { .. }), "{text}");
    }
}

#[test]
fn a_missing_kind_is_accepted_and_another_kind_is_refused() {
    let with = |kind: Value| {
        json!({ "kind": kind, "apiVersion": ApiVersion::V1.as_str(), "status": { "token": "t" } }).to_string()
    };
    for kind in [json!(null), json!(""), json!("ExecCredential")] {
        assert_eq!(token(&decoded(with(kind))), Some("t"));
    }
    for kind in ["execCredential", "EXECCREDENTIAL", "ExecCredential ", "Status"] {
        assert!(matches!(refused(with(kind.into())), DecodeError::WrongKind { .. }), "{kind}");
    }
}

#[test]
fn unknown_fields_and_an_echoed_spec_are_ignored_and_names_are_case_sensitive() {
    let text = json!({
        "apiVersion": ApiVersion::V1.as_str(), "metadata": { "x": [1] }, "spec": ["anything"], "Status": 1, "extra": {},
        "status": { "token": "t", "Token": 1, "more": { "a": [] } },
    });
    assert_eq!(token(&decoded(text.to_string())), Some("t"));
    assert!(matches!(status_refused(&json!({ "Token": "t" })), DecodeError::NoCredential));
}

#[test]
fn a_wrong_type_is_refused_with_the_name_of_its_field() {
    let cases = [
        ("status.token", json!({ "token": 12345 })),
        ("status.token", json!({ "token": true })),
        ("status.token", json!({ "token": ["t"] })),
        ("status.token", json!({ "token": { "a": "t" } })),
        (
            "status.clientCertificateData",
            json!({ "token": "t", "clientCertificateData": 1, "clientKeyData": KEY }),
        ),
        ("status.clientKeyData", json!({ "clientCertificateData": CHAIN, "clientKeyData": [KEY] })),
        ("status.expirationTimestamp", json!({ "token": "t", "expirationTimestamp": 1_784_888_430 })),
        ("status", json!(["t"])),
        ("status", json!("t")),
    ];
    for (name, status) in cases {
        let error = status_refused(&status);
        assert!(matches!(error, DecodeError::WrongType(field, ..) if field == name), "{status}: {error:?}");
    }
    for text in [r#"{"kind":1}"#, r#"{"apiVersion":["client.authentication.k8s.io/v1"]}"#] {
        assert!(matches!(refused(text), DecodeError::WrongType(..)));
    }
    for text in [r#"["x"]"#, "null", "1", "\"x\"", "logged in", "~"] {
        assert!(matches!(refused(text), DecodeError::NotAnObject { .. }), "{text}");
    }
    for word in ["12345", "true", "yes", "1e3", "0x10"] {
        let yaml = format!("apiVersion: client.authentication.k8s.io/v1\nstatus:\n  token: {word}\n");
        let at = Position { line: 3, column: 10 };
        let error = refused(&yaml);
        assert!(matches!(error, DecodeError::WrongType(.., place) if place == at), "{word}: {error:?}");
    }
}

#[test]
fn output_with_a_missing_part_is_refused() {
    assert!(matches!(refused(""), DecodeError::Empty));
    assert!(matches!(refused(" \r\n\t\n"), DecodeError::Empty));
    assert!(matches!(refused("---\n# nothing\n"), DecodeError::Empty));
    assert!(matches!(refused(r#"{"apiVersion":"client.authentication.k8s.io/v1"}"#), DecodeError::NoStatus));
    assert!(matches!(status_refused(&json!(null)), DecodeError::NoStatus));
    for status in [json!({}), json!({ "token": null }), json!({ "token": "", "clientKeyData": "" })] {
        assert!(matches!(status_refused(&status), DecodeError::NoCredential), "{status}");
    }
    for status in [
        json!({ "clientCertificateData": CHAIN }),
        json!({ "clientCertificateData": CHAIN, "clientKeyData": null, "token": "t" }),
        json!({ "clientCertificateData": CHAIN, "clientKeyData": "", "token": "t" }),
    ] {
        assert!(matches!(status_refused(&status), DecodeError::HalfPair("clientKeyData")), "{status}");
    }
    let status = json!({ "clientKeyData": KEY, "token": "t" });
    assert!(matches!(status_refused(&status), DecodeError::HalfPair("clientCertificateData")));
}

#[test]
fn exactly_one_document_is_accepted() {
    let good = document(&json!({ "token": "t" }));
    for text in [
        format!("{good}{good}"),
        format!("{good}\n{good}"),
        format!("{good}\ndone"),
        format!("Logging in...\n{good}"),
        format!("{good}\n---\n{good}"),
        good.replace("\"t\"", "\"t\",\"token\":\"u\""),
        good.replace("\"t\"", "\"\\ud800\""),
        good.replace('}', ""),
    ] {
        let error = refused(&text);
        assert!(
            matches!(error, DecodeError::Document { .. } | DecodeError::NotAnObject { .. }),
            "{text}: {error:?}"
        );
    }
    let error = refused(good.as_bytes().iter().copied().chain([0xff]).collect::<Vec<_>>());
    assert!(matches!(error, DecodeError::Document(ParseError { kind: ParseErrorKind::NotUtf8, .. })));
}

#[test]
fn a_token_must_fit_an_http_header() {
    for good in ["t", "a b", "k8s-aws-v1.aHR0", "~!@#$%^&*()_+{}|:\"<>?`-=[]\\;',./"] {
        assert_eq!(token(&decoded(document(&json!({ "token": good })))), Some(good));
    }
    for bad in [" t", "t ", "t\n", "t\r\n", "\tt", "t\u{85}", "\u{a0}t", " "] {
        let error = status_refused(&json!({ "token": bad }));
        assert!(matches!(error, DecodeError::TokenBlank { .. }), "{bad:?}: {error:?}");
    }
    for bad in ["a\nb", "a\0b", "a\tb", "a\x7fb", "a\u{9b}b", "a\x1b[0mb"] {
        // YAML has these only as escape sequences.
        let text = document(&json!({ "token": bad })).replace('\x7f', "\\u007f").replace('\u{9b}', "\\u009b");
        let error = refused(text);
        assert!(matches!(error, DecodeError::TokenControl { .. }), "{bad:?}: {error:?}");
    }
    for bad in ["é", "a\u{200b}b", "\u{feff}t"] {
        let error = status_refused(&json!({ "token": bad }));
        assert!(matches!(error, DecodeError::TokenNotAscii { .. }), "{bad:?}: {error:?}");
    }
}

#[test]
fn a_pair_is_accepted_with_and_without_a_token() {
    for with in [None, Some("t")] {
        let status = json!({ "token": with, "clientCertificateData": CHAIN, "clientKeyData": KEY });
        let decoded = decoded(document(&status));
        assert_eq!(token(&decoded), with);
        let pair = decoded.material.pair.unwrap();
        assert_eq!(pair.chain_pem.expose_secret(), CHAIN.as_bytes());
        assert_eq!(pair.key_pem.expose_secret(), KEY.as_bytes());
    }
    let yaml = format!(
        "apiVersion: client.authentication.k8s.io/v1\nstatus:\n  clientCertificateData: |\n{}  clientKeyData: |\n{}",
        indented(CHAIN),
        indented(KEY)
    );
    assert!(decoded(yaml).material.pair.is_some());
    let unknown = json!({
        "clientCertificateData": include_str!("../fixtures/ed448.crt.pem"),
        "clientKeyData": include_str!("../fixtures/ed448.key.pem"),
    });
    assert_eq!(decoded(document(&unknown)).warnings.len(), 1);
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |all, line| all + "    " + line + "\n")
}

#[test]
fn a_timestamp_that_is_not_rfc_3339_is_refused() {
    let at = |text: Value| {
        decode(document(&json!({ "token": "t", "expirationTimestamp": text })).as_bytes(), ApiVersion::V1)
    };
    for none in [json!(null), json!("0001-01-01T00:00:00Z")] {
        assert_eq!(at(none).unwrap().expires_at, None);
    }
    assert!(at(json!("9999-12-31T23:59:59Z")).unwrap().expires_at.is_some());
    for bad in ["", "never", "2026-07-24 10:20:30Z", "2026-07-24T10:20:30"] {
        assert!(matches!(at(json!(bad)), Err(DecodeError::BadTimestamp { .. })), "{bad}");
    }
}

#[test]
fn the_expiry_of_a_jwt_is_kept_beside_it() {
    let jwt = format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(r#"{"exp":1784888430}"#));
    let decoded = decoded(document(&json!({ "token": jwt })));
    let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(1_784_888_430);
    assert_eq!(decoded.material.token.unwrap().expires_at, Some(expected));
    assert_eq!(decoded.expires_at, None);
}

proptest! {
    #[test]
    fn no_output_causes_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(decode(&bytes, ApiVersion::V1));
    }

    #[test]
    fn no_change_of_a_valid_output_causes_a_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
        yaml: bool,
    ) {
        let mut bytes = if yaml {
            format!("apiVersion: client.authentication.k8s.io/v1\nstatus:\n  token: t\n  clientCertificateData: |\n{}  \
                     clientKeyData: |\n{}", indented(CHAIN), indented(KEY)).into_bytes()
        } else {
            document(&json!({ "token": "a.e30.c", "expirationTimestamp": "2026-07-24T10:20:30.5+01:00",
                "clientCertificateData": CHAIN, "clientKeyData": KEY })).into_bytes()
        };
        for (index, byte, edit) in edits {
            let at = index.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        drop(decode(&bytes, ApiVersion::V1));
    }

    #[test]
    fn no_change_of_a_certificate_or_key_causes_a_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        of_key: bool,
    ) {
        let encode = |pem: &str, label, edited| {
            let body: String = pem.lines().skip(2).take_while(|line| !line.starts_with('-')).collect();
            let mut der = BASE64_STANDARD.decode(body).unwrap();
            for (index, byte) in edits.iter().filter(|_| edited) {
                let at = index.index(der.len());
                der[at] = *byte;
            }
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
        };
        let chain = encode(CHAIN, "CERTIFICATE", !of_key);
        let key = encode(KEY, "RSA PRIVATE KEY", of_key);
        drop(decode(document(&json!({ "clientCertificateData": chain, "clientKeyData": key })).as_bytes(), ApiVersion::V1));
    }
}

fn jwt(payload: &str) -> String {
    format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(payload))
}

fn at(seconds: f64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds)
}

#[test]
fn the_claim_is_read_as_an_integer_or_a_fraction() {
    assert_eq!(token_expiry(&jwt(r#"{"aud":["x"],"exp":1784888430}"#)), Some(at(1_784_888_430.0)));
    assert_eq!(token_expiry(&jwt(r#"{"exp":1784888430.5}"#)), Some(at(1_784_888_430.5)));
    assert_eq!(token_expiry(&jwt(r#"{"exp":1.7e9}"#)), Some(at(1.7e9)));
    assert!(token_expiry(&jwt(r#"{"exp":-1}"#)) < Some(at(0.0)));
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
    for text in payloads.map(jwt) {
        assert_eq!(token_expiry(&text), None, "{text}");
    }
    let good = jwt(r#"{"exp":1}"#);
    for text in ["", ".", "..", "a.b.c", "opaque", "k8s-aws-v1.aHR0cHM6Ly9zdHM"] {
        assert_eq!(token_expiry(text), None, "{text}");
    }
    assert_eq!(token_expiry(&format!("{good}.e30")), None, "five parts or four are encrypted or unknown");
    assert_eq!(token_expiry(good.strip_suffix(".c2ln").unwrap()), None);
}
