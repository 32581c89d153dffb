mod pem;

use std::time::{Duration, SystemTime};

use aws_lc_rs::{
    digest::digest,
    encoding::{AsDer, EcPrivateKeyRfc5915Der},
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
        EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair,
    },
};
use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512,
    PKCS_ED25519, SignatureAlgorithm,
};
use secrecy::ExposeSecret;

use super::*;

const RSA: (&str, &str) =
    (include_str!("../fixtures/rsa2048.crt.pem"), include_str!("../fixtures/rsa2048-pkcs1.key.pem"));
const RSA_1024: (&str, &str) =
    (include_str!("../fixtures/rsa1024.crt.pem"), include_str!("../fixtures/rsa1024-pkcs1.key.pem"));
const RSA_PSS: (&str, &str) =
    (include_str!("../fixtures/rsapss.crt.pem"), include_str!("../fixtures/rsapss.key.pem"));
const ED448: (&str, &str) =
    (include_str!("../fixtures/ed448.crt.pem"), include_str!("../fixtures/ed448.key.pem"));
const BRAINPOOL: (&str, &str) =
    (include_str!("../fixtures/brainpool.crt.pem"), include_str!("../fixtures/brainpool.key.pem"));
const SECP256K1: (&str, &str) =
    (include_str!("../fixtures/secp256k1.crt.pem"), include_str!("../fixtures/secp256k1.key.pem"));
const SECP256K1_SEC1: &str = include_str!("../fixtures/secp256k1-sec1.key.pem");
const P256_SEC1: &str = include_str!("../fixtures/p256-sec1.key.pem");
const VERSION_1_CERTIFICATE: &str = include_str!("../fixtures/x509v1.crt.pem");
const COMPRESSED: &str = include_str!("../fixtures/compressed-point.crt.pem");
const ENCRYPTED: [&str; 2] = [
    include_str!("../fixtures/encrypted-pkcs1.key.pem"),
    include_str!("../fixtures/encrypted-pkcs8.key.pem"),
];

/// A self-signed certificate and its key as PKCS#8, both PEM.
fn issue(algorithm: &'static SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = CertificateParams::new(vec!["test".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn accepted(chain: &str, key: &str) -> (ClientPair, Vec<&'static str>) {
    client_pair(chain, key).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(chain: &str, key: &str) -> PairError {
    client_pair(chain, key).map(|_| ()).unwrap_err()
}

/// The first block of `pem` with another label.
fn relabelled(pem: &str, label: &str) -> String {
    let found = blocks(pem);
    block(label, found[0].der.as_ref().unwrap())
}

fn block(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}

/// The same EC key as SEC1 and as version 1 of PKCS#8.
fn sec1(curve: &'static EcdsaSigningAlgorithm, pem: &str) -> Vec<u8> {
    let der = blocks(pem)[0].der.as_ref().unwrap().to_vec();
    let pair = EcdsaKeyPair::from_pkcs8(curve, &der).unwrap();
    AsDer::<EcPrivateKeyRfc5915Der<'_>>::as_der(&pair.private_key()).unwrap().as_ref().to_vec()
}

#[test]
fn every_kind_of_key_is_accepted_with_any_label() {
    let labels = ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ANY PRIVATE KEY"];
    let curves = [
        (&PKCS_ECDSA_P256_SHA256, &ECDSA_P256_SHA256_ASN1_SIGNING),
        (&PKCS_ECDSA_P384_SHA384, &ECDSA_P384_SHA384_ASN1_SIGNING),
        (&PKCS_ECDSA_P521_SHA512, &ECDSA_P521_SHA512_ASN1_SIGNING),
    ];
    let mut pairs = vec![issue(&PKCS_ED25519), (RSA.0.to_owned(), RSA.1.to_owned())];
    for (algorithm, curve) in curves {
        let (chain, key) = issue(algorithm);
        pairs.push((chain.clone(), block("PRIVATE KEY", &sec1(curve, &key))));
        pairs.push((chain, key));
    }
    for (chain, key) in pairs {
        assert_eq!(accepted(&chain, &key).1, [""; 0]);
        for label in labels {
            assert_eq!(accepted(&chain, &relabelled(&key, label)).1, [""; 0], "{label}");
        }
    }
}

#[test]
fn rsa_is_accepted_as_pkcs8_too() {
    let pkcs1 = blocks(RSA.1)[0].der.as_ref().unwrap().to_vec();
    let mut pkcs8 =
        b"\x30\x82\0\0\x02\x01\0\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\0\x04\x82".to_vec();
    pkcs8.extend(u16::try_from(pkcs1.len()).unwrap().to_be_bytes());
    pkcs8.extend(pkcs1);
    let length = u16::try_from(pkcs8.len() - 4).unwrap();
    pkcs8[2..4].copy_from_slice(&length.to_be_bytes());
    assert_eq!(accepted(RSA.0, &block("EC PRIVATE KEY", &pkcs8)).1, [""; 0]);
}

#[test]
fn a_compressed_point_is_the_same_key() {
    assert_eq!(accepted(COMPRESSED, P256_SEC1).1, [""; 0]);
    assert_eq!(refused(COMPRESSED, &issue(&PKCS_ECDSA_P256_SHA256).1), PairError::KeyMismatch);
    let mut der = blocks(COMPRESSED)[0].der.as_ref().unwrap().to_vec();
    let point = der.windows(4).position(|window| window == [3, 0xe8, 0x90, 0x35]).unwrap();
    der[point] = 2; // the point on the other side of the curve
    assert_eq!(refused(&block("CERTIFICATE", &der), P256_SEC1), PairError::KeyMismatch);
}

#[test]
fn surrounding_text_other_blocks_and_crlf_are_ignored() {
    let (chain, key) = issue(&PKCS_ECDSA_P256_SHA256);
    let parameters = block("EC PARAMETERS", &[6, 8, 42, 134, 72, 206, 61, 3, 1, 7]);
    let chain = format!("Bag Attributes\n{parameters}text\n{chain}subject=x\n{}", RSA.0);
    let key = format!("{parameters}{}{key}bye\n", RSA.0);
    let (pair, warning) = accepted(&chain.replace('\n', "\r\n"), &key.replace('\n', "\r\n"));
    assert_eq!(warning, [""; 0]);
    assert_eq!(
        pair.chain_pem.expose_secret(),
        chain.replace('\n', "\r\n").as_bytes(),
        "the bytes are unchanged"
    );
    assert_eq!(pair.key_pem.expose_secret(), key.replace('\n', "\r\n").as_bytes());
    assert_eq!(
        pair.fingerprint,
        accepted(&chain, &key).0.fingerprint,
        "the text is not part of the identity"
    );
}

#[test]
fn the_fingerprint_covers_the_whole_chain() {
    let ders = [RSA.0, ED448.0].map(|pem| blocks(pem)[0].der.as_ref().unwrap().to_vec());
    let mut bytes = Vec::new();
    for der in &ders {
        bytes.extend((der.len() as u64).to_be_bytes());
        bytes.extend(der);
    }
    let pair = accepted(&format!("{}{}", RSA.0, ED448.0), RSA.1).0;
    assert_eq!(pair.fingerprint.0, digest(&SHA256, &bytes).as_ref());
    let (leaf, key) = issue(&PKCS_ED25519);
    let one = accepted(&leaf, &key).0.fingerprint;
    assert_ne!(accepted(&format!("{leaf}{}", RSA.0), &key).0.fingerprint, one);
    assert_ne!(accepted(RSA.0, RSA.1).0.fingerprint, one);
}

#[test]
fn the_validity_of_the_leaf_is_read() {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.not_before = rcgen::date_time_ymd(1950, 1, 1);
    params.not_after = rcgen::date_time_ymd(9999, 12, 31);
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let chain = params.self_signed(&key).unwrap().pem() + RSA.0;
    let pair = accepted(&chain, &key.serialize_pem()).0;
    assert_eq!(pair.validity.from, SystemTime::UNIX_EPOCH - Duration::from_secs(631_152_000));
    assert_eq!(pair.validity.to, SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_214_400));
}

#[test]
fn a_pair_that_cannot_be_checked_is_accepted_with_one_warning() {
    for (chain, key) in [RSA_1024, RSA_PSS, ED448, BRAINPOOL] {
        assert_eq!(accepted(chain, key).1, [UNJUDGED]);
    }
    assert_eq!(accepted(VERSION_1_CERTIFICATE, P256_SEC1).1, [VERSION_1]);
}

#[test]
fn a_proven_mismatch_is_refused() {
    let (p256, other) = (issue(&PKCS_ECDSA_P256_SHA256), issue(&PKCS_ECDSA_P256_SHA256));
    let (p384, ed25519) = (issue(&PKCS_ECDSA_P384_SHA384), issue(&PKCS_ED25519));
    for (chain, key) in [
        (&*p256.0, &*other.1),
        (&p256.0, &p384.1),
        (&p256.0, &ed25519.1),
        (&ed25519.0, &issue(&PKCS_ED25519).1),
        (&p256.0, RSA.1),
        (RSA.0, &p256.1),
        (RSA_1024.0, RSA.1),
        (ED448.0, &ed25519.1),
        (VERSION_1_CERTIFICATE, &p256.1),
        (&format!("{}{}", p256.0, RSA.0), &other.1),
    ] {
        assert_eq!(refused(chain, key), PairError::KeyMismatch);
    }
}

#[test]
fn a_chain_whose_leaf_is_not_first_is_refused() {
    let (leaf, key) = issue(&PKCS_ECDSA_P256_SHA256);
    assert_eq!(refused(&format!("{}{leaf}", RSA.0), &key), PairError::LeafNotFirst(2));
}

#[test]
fn an_encrypted_key_has_its_own_error() {
    for key in ENCRYPTED {
        assert_eq!(refused(RSA.0, key), PairError::EncryptedKey);
    }
}

#[test]
fn a_block_that_is_not_a_key_or_certificate_is_refused_with_its_field() {
    let (chain, key) = issue(&PKCS_ECDSA_P256_SHA256);
    let field = CERTIFICATE;
    assert_eq!(refused("x", &key), PairError::CertificateMissing);
    assert_eq!(refused(&key, &key), PairError::CertificateMissing);
    assert_eq!(refused(&key, &chain), PairError::Swapped);
    assert_eq!(refused(&BASE64_STANDARD.encode(&chain), &key), PairError::Base64(field));
    assert_eq!(refused(&chain, &BASE64_STANDARD.encode(&key)), PairError::Base64(KEY));
    assert_eq!(refused(&chain, "x!"), PairError::KeyMissing);
    assert_eq!(refused(&chain, &chain), PairError::KeyMissing);
    assert_eq!(refused(&chain, &relabelled(&key, "PUBLIC KEY")), PairError::KeyMissing);
    assert_eq!(refused(&chain.replace("-----END", "----END"), &key), PairError::PemBroken(field, 1));
    assert_eq!(refused(&chain, &format!("\n{}", key.replace('M', "*"))), PairError::PemBroken(KEY, 2));

    let junk = block("CERTIFICATE", b"junk");
    assert_eq!(refused(&junk, &key), PairError::CertificateUnreadable(1));
    assert_eq!(refused(&(chain.clone() + &junk), &key), PairError::CertificateUnreadable(2));
    let mut longer = blocks(&chain)[0].der.as_ref().unwrap().to_vec();
    longer.push(0);
    assert_eq!(refused(&block("CERTIFICATE", &longer), &key), PairError::CertificateUnreadable(1));
}

#[test]
fn junk_is_not_a_key_of_an_unknown_kind() {
    let (chain, key) = issue(&PKCS_ECDSA_P256_SHA256);
    let mut broken = blocks(&key)[0].der.as_ref().unwrap().to_vec();
    let mut longer = broken.clone();
    longer.push(0);
    let half = broken.len() / 2;
    broken[half..].fill(0xff); // the structure is still that of a PKCS#8 P-256 key
    let certificate = blocks(&chain)[0].der.as_ref().unwrap().to_vec();
    for der in [&b""[..], b"junk", b"\x30\x00", b"\x30\x03\x02\x01\x00", &broken, &longer, &certificate] {
        assert_eq!(refused(&chain, &block("PRIVATE KEY", der)), PairError::KeyUnreadable);
    }
}

#[test]
fn both_versions_of_pkcs8_are_read() {
    let (chain, key) = issue(&PKCS_ED25519);
    let pair = Ed25519KeyPair::from_pkcs8(blocks(&key)[0].der.as_ref().unwrap()).unwrap();
    let (first, second) = (pair.to_pkcs8v1().unwrap(), pair.to_pkcs8().unwrap());
    assert_ne!(first.as_ref(), second.as_ref());
    for der in [first, second] {
        assert_eq!(accepted(&chain, &block("PRIVATE KEY", der.as_ref())).1, [""; 0]);
    }
}

#[test]
fn a_private_key_among_the_certificates_is_left_out_with_a_warning() {
    let (leaf, key) = issue(&PKCS_ECDSA_P256_SHA256);
    let chain = format!("{leaf}{}", RSA.0);
    let clean = accepted(&chain, &key).0;
    let unfinished = key.replace("-----END PRIVATE KEY-----", "");
    let indented = key.replace("-----BEGIN", " -----BEGIN");
    let other = relabelled(&key, "EC PRIVATE KEY");
    for among in [&key, &unfinished, &indented, &other, &key.replace('\n', "\r\n")] {
        for field in
            [format!("{among}\n{chain}"), format!("{leaf}{among}\n{}", RSA.0), format!("{chain}{among}")]
        {
            let (pair, warnings) = accepted(&field, &key);
            assert_eq!(warnings, [KEY_IN_CERTIFICATE], "{field}");
            let served = String::from_utf8(pair.chain_pem.expose_secret().to_vec()).unwrap();
            let secret = key.lines().nth(1).unwrap();
            assert!(!served.contains("PRIVATE") && !served.contains(secret), "{served}");
            assert_eq!(accepted(&served, &key).0.fingerprint, clean.fingerprint, "the same certificates");
            assert_eq!(pair.fingerprint, clean.fingerprint);
            assert_eq!(pair.key_pem.expose_secret(), key.as_bytes());
        }
    }
}

#[test]
fn a_chain_has_at_most_16_certificates() {
    let (leaf, key) = issue(&PKCS_ED25519);
    let chain = |count: usize| format!("{leaf}{}", RSA.0.repeat(count - 1));
    assert!(accepted(&chain(16), &key).1.is_empty());
    assert_eq!(refused(&chain(17), &key), PairError::ChainTooLong(17));
}

#[test]
fn a_curve_that_tls_does_not_have_is_refused() {
    let (p256, key) = issue(&PKCS_ECDSA_P256_SHA256);
    for secp256k1 in [SECP256K1.1, SECP256K1_SEC1] {
        assert_eq!(refused(SECP256K1.0, secp256k1), PairError::Secp256k1);
        assert_eq!(refused(&p256, secp256k1), PairError::Secp256k1, "the key alone");
    }
    assert_eq!(refused(SECP256K1.0, &key), PairError::Secp256k1, "the certificate alone");
}
