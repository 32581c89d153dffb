//! No part of an output may appear in an error, a `Debug` text or a warning.

use std::collections::BTreeSet;

use super::*;

/// A value that is used for every secret. It is valid base64, so that a PEM block can contain it.
const CANARY: &str = "CaNaRyCaNaRy";

/// A PEM block that contains the canary in its text and in its decoded bytes.
fn pem(label: &str) -> String {
    format!("{CANARY}\n-----BEGIN {label}-----\n{CANARY}\n-----END {label}-----\n{CANARY}\n")
}

/// A valid pair with the canary before and after it.
fn good() -> (String, String) {
    (format!("{CANARY}\n{CHAIN}{CANARY}\n"), format!("{CANARY}\n{KEY}{CANARY}\n"))
}

/// An output with the canary in each field that `fields` does not replace.
fn top(fields: &Value) -> String {
    let status = json!({ CANARY: CANARY, "token": CANARY });
    let all = json!({ "apiVersion": ApiVersion::V1.as_str(), CANARY: { CANARY: [CANARY] }, "spec": CANARY, "status": status });
    merged(all, fields).to_string()
}

fn full(status: &Value) -> String {
    let all = json!({ CANARY: CANARY, "token": CANARY, "expirationTimestamp": "2026-07-24T10:20:30Z" });
    top(&json!({ "status": merged(all, status) }))
}

fn merged(mut all: Value, more: &Value) -> Value {
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

/// An output for each variant of the error.
fn refusals() -> Vec<String> {
    let (chain, key) = good();
    let pair =
        |chain: &str, key: &str| full(&json!({ "clientCertificateData": chain, "clientKeyData": key }));
    let mut outputs = vec![
        String::new(),
        full(&json!({ "expirationTimestamp": CANARY })),
        full(&json!({ "clientCertificateData": chain })),
        full(&json!({ "clientKeyData": key })),
        full(&json!({ "token": "" })),
        top(&json!({ "status": null })),
        format!("[{CANARY}]"),
        CANARY.to_owned(),
        full(&json!({ "token": format!("{CANARY}\n") })),
        full(&json!({ "token": format!("{CANARY}\u{1}{CANARY}") })),
        full(&json!({ "token": format!("{CANARY}é") })),
        top(&json!({ "apiVersion": CANARY })),
        top(&json!({ "apiVersion": null })),
        top(&json!({ "kind": CANARY })),
        full(&json!({ "token": [CANARY] })),
        top(&json!({ "status": CANARY })),
        // PairError
        pair(CANARY, &key),
        pair(&chain, CANARY),
        pair(&format!("{CANARY}!"), &key),
        pair(&chain, &format!("{CANARY}!")),
        pair(&pem("CERTIFICATE"), &key),
        pair(&chain, &pem("ENCRYPTED PRIVATE KEY")),
        pair(&chain, include_str!("../../fixtures/p256-sec1.key.pem")),
        pair(&chain, &pem("PRIVATE KEY")),
        pair(&format!("{}{chain}", include_str!("../../fixtures/ed448.crt.pem")), &key),
        pair(&format!("-----BEGIN CERTIFICATE-----\n{CANARY}"), &key),
        pair(&chain, &format!("-----BEGIN {CANARY} PRIVATE KEY-----\n{CANARY}")),
        pair(&key, &chain),
        pair(&chain.repeat(17), &key),
        pair(
            include_str!("../../fixtures/secp256k1.crt.pem"),
            include_str!("../../fixtures/secp256k1.key.pem"),
        ),
        // ParseErrorKind
        format!("{}{CANARY}", "[".repeat(70)),
    ];
    let documents = [
        "@: *@",
        "@: 1\n@: 2",
        "[@]: @",
        "<<: {@: @}",
        "@: @\n--- @",
        "{\"@\": \"@",
        "@: !@ @",
        "{\"@\": \"@\"} @",
    ];
    outputs.extend(documents.map(|text| text.replace('@', CANARY)));
    outputs
}

/// The names of the variants, from the outermost to the innermost.
fn name(error: &DecodeError) -> String {
    let first = |shown: &str| shown.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
    match error {
        DecodeError::Pair(error) => first(&format!("{error:?}")),
        DecodeError::Document(source) => first(&format!("{:?}", source.kind)),
        other => first(&format!("{other:?}")),
    }
}

fn check(shown: &str) {
    assert!(!shown.contains("CaNaRy"), "{shown}");
    // The canary as a list of bytes, encoded and decoded.
    for bytes in [BASE64_STANDARD.decode(CANARY).unwrap(), CANARY.as_bytes().to_vec()] {
        let listed = format!("{:?}", &bytes[..3]);
        assert!(!shown.contains(listed.trim_matches(['[', ']'])), "{shown}");
    }
}

fn check_debug(value: &impl Debug) {
    check(&format!("{value:?}"));
    // With `{:#?}`, a list of bytes has one byte per line.
    check(&format!("{value:#?}").replace(char::is_whitespace, "").replace(',', ", "));
}

#[test]
fn no_error_shows_any_of_the_output() {
    let (mut seen, mut messages) = (BTreeSet::new(), BTreeSet::new());
    let not_utf8 = [CANARY.as_bytes(), b"\xff"].concat();
    for text in refusals().into_iter().map(String::into_bytes).chain([not_utf8]) {
        let error = refused(&text);
        seen.insert(name(&error));
        check_debug(&error);
        let mut next: Option<&dyn Error> = Some(&error);
        while let Some(error) = next {
            check(&error.to_string());
            messages.insert(error.to_string());
            check(&format!("{error:?}"));
            next = error.source();
        }
    }
    let all = "Alias BadTimestamp Base64 CertificateMissing CertificateUnreadable ChainTooLong DuplicateKey Empty EncryptedKey \
               HalfPair Key KeyMismatch KeyMissing KeyUnreadable LeafNotFirst MergeKey NoCredential NoStatus NotAnObject \
               NotUtf8 PemBroken SecondDocument Secp256k1 Swapped Syntax Tag TextAfter TokenBlank TokenControl TokenNotAscii \
               TooDeep VersionMismatch VersionMissing WrongKind WrongType";
    assert_eq!(
        seen.iter().map(String::as_str).collect::<Vec<_>>(),
        all.split_whitespace().collect::<Vec<_>>()
    );
    insta::assert_snapshot!(messages.into_iter().collect::<Vec<_>>().join("\n"));
}

/// A new variant does not compile here until the list above has an output for it.
#[expect(dead_code, reason = "it only has to compile")]
fn every_variant_is_provoked(error: &DecodeError) {
    match error {
        DecodeError::BadTimestamp { .. }
        | DecodeError::Document { .. }
        | DecodeError::Empty
        | DecodeError::HalfPair { .. }
        | DecodeError::NoCredential
        | DecodeError::NoStatus
        | DecodeError::NotAnObject { .. }
        | DecodeError::TokenBlank { .. }
        | DecodeError::TokenControl { .. }
        | DecodeError::TokenNotAscii { .. }
        | DecodeError::VersionMismatch { .. }
        | DecodeError::VersionMissing { .. }
        | DecodeError::WrongKind { .. }
        | DecodeError::WrongType(..)
        | DecodeError::Pair(
            PairError::Base64 { .. }
            | PairError::CertificateMissing
            | PairError::CertificateUnreadable { .. }
            | PairError::ChainTooLong { .. }
            | PairError::EncryptedKey
            | PairError::KeyMismatch
            | PairError::KeyMissing
            | PairError::KeyUnreadable
            | PairError::LeafNotFirst { .. }
            | PairError::PemBroken { .. }
            | PairError::Secp256k1
            | PairError::Swapped,
        ) => {}
    }
}

#[test]
fn no_debug_of_a_credential_shows_its_secrets() {
    let (chain, key) = good();
    let decoded = decoded(full(&json!({ "clientCertificateData": chain, "clientKeyData": key })));
    assert_eq!(token(&decoded), Some(CANARY));
    check_debug(&decoded);
    check_debug(&decoded.material);
    decoded.warnings.iter().copied().for_each(check);
    check_debug(&document::yaml(full(&json!({})).as_bytes(), Aliases::Refuse).unwrap());
}
