//! Checks whether a private key belongs to a certificate. Its format is detected from its content, not from its PEM label.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair,
};
use x509_parser::{
    asn1_rs::{Any, Class, FromDer, Oid, Tag, oid},
    x509::SubjectPublicKeyInfo,
};

pub(super) enum PrivateKey {
    /// Its public key; several candidates for a SEC1 key that does not name its curve.
    Known(Vec<PublicKey>),
    /// A private key on a curve that TLS does not have.
    Secp256k1,
    /// A private key of a kind that the library does not support: RSA-1024, Ed448, other curves.
    Unknown,
}

pub(super) enum PublicKey {
    Ec(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa(Vec<u8>),
}

impl PrivateKey {
    /// Reads DER in SEC1, PKCS#1 or PKCS#8 (version 1 or 2). `None`: another format, or broken.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        // The library ignores bytes after the key.
        let (_, sequence) =
            Any::from_der(der).ok().filter(|(rest, any)| rest.is_empty() && any.tag() == Tag::Sequence)?;
        if names_secp256k1(sequence.data) {
            return Some(Self::Secp256k1);
        }
        let known = public_keys(der);
        if known.is_empty() { shape(sequence.data) } else { Some(Self::Known(known)) }
    }

    /// Whether the key belongs to the certificate; `None` if the kind of key is not supported.
    pub(super) fn belongs_to(&self, certificate: &SubjectPublicKeyInfo<'_>) -> Option<bool> {
        match self {
            Self::Known(keys) => Some(keys.iter().any(|key| key.is(certificate))),
            Self::Secp256k1 | Self::Unknown => None,
        }
    }
}

impl PublicKey {
    fn is(&self, certificate: &SubjectPublicKeyInfo<'_>) -> bool {
        let data: &[u8] = &certificate.subject_public_key.data;
        match self {
            Self::Ec(point) => is_same_point(point, data),
            Self::Ed25519(key) => key == data && certificate.algorithm.algorithm == ED25519,
            // The public exponent is practically always the same. RSA-PSS certificates have the same form of key.
            Self::Rsa(key) => modulus(key).is_some_and(|ours| modulus(data) == Some(ours)),
        }
    }
}

const ED25519: Oid<'static> = oid!(1.3.101.112);
const EC: Oid<'static> = oid!(1.2.840.10045.2.1);
const SECP256K1: Oid<'static> = oid!(1.3.132.0.10);
const JUDGED_CURVES: [Oid<'static>; 3] = [oid!(1.2.840.10045.3.1.7), oid!(1.3.132.0.34), oid!(1.3.132.0.35)];

pub(super) fn is_secp256k1(certificate: &SubjectPublicKeyInfo<'_>) -> bool {
    let algorithm = &certificate.algorithm;
    let curve = || algorithm.parameters.as_ref().and_then(|curve| Oid::try_from(curve).ok());
    algorithm.algorithm == EC && curve() == Some(SECP256K1)
}

fn names_secp256k1(content: &[u8]) -> bool {
    let Some(items) = items(content) else { return false };
    let is_it = |der: &[u8]| Oid::from_der(der).is_ok_and(|(_, curve)| curve == SECP256K1);
    items.iter().any(|item| match (item.class(), item.tag()) {
        // PKCS#8: the algorithm and its curve.
        (Class::Universal, Tag::Sequence) => {
            Oid::from_der(item.data).is_ok_and(|(curve, algorithm)| algorithm == EC && is_it(curve))
        }
        // SEC1: the curve.
        (Class::ContextSpecific, Tag(0)) => is_it(item.data),
        _ => false,
    })
}

fn public_keys(der: &[u8]) -> Vec<PublicKey> {
    let curves =
        [&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P521_SHA512_ASN1_SIGNING];
    let ec = curves.into_iter().filter_map(|curve| {
        let pair = EcdsaKeyPair::from_private_key_der(curve, der).ok()?;
        Some(PublicKey::Ec(pair.public_key().as_ref().to_vec()))
    });
    let ed25519 = Ed25519KeyPair::from_pkcs8(der).ok();
    let ed25519 = ed25519.map(|pair| PublicKey::Ed25519(pair.public_key().as_ref().to_vec()));
    let rsa = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok();
    let rsa = rsa.map(|pair| PublicKey::Rsa(pair.public_key().as_ref().to_vec()));
    ec.chain(ed25519).chain(rsa).collect()
}

/// Whether an uncompressed point equals a point in either form.
fn is_same_point(point: &[u8], other: &[u8]) -> bool {
    match (point, other) {
        ([4, coordinates @ ..], [form @ (2 | 3), x @ ..]) => {
            let (ours, y) = coordinates.split_at(coordinates.len() / 2);
            ours == x && y.last().is_some_and(|last| last & 1 == form & 1)
        }
        _ => point == other,
    }
}

/// The modulus of an `RSAPublicKey`, without leading zeros.
fn modulus(der: &[u8]) -> Option<&[u8]> {
    let (rest, sequence) = Any::from_der(der).ok().filter(|(_, any)| any.tag() == Tag::Sequence)?;
    let (_, modulus) = Any::from_der(sequence.data).ok().filter(|(_, any)| any.tag() == Tag::Integer)?;
    let zeros = modulus.data.iter().take_while(|byte| **byte == 0).count();
    rest.is_empty().then(|| modulus.data.get(zeros..))?
}

/// Whether this looks like a private key of a kind that the library does not support.
fn shape(content: &[u8]) -> Option<PrivateKey> {
    let items = items(content)?;
    let tags: Vec<Tag> = items.iter().map(Any::tag).collect();
    let shaped = match *tags {
        // PKCS#8: version, algorithm, key.
        [Tag::Integer, Tag::Sequence, Tag::OctetString, ..] => !is_judged(items.get(1)?.data)?,
        // SEC1: version, key.
        [Tag::Integer, Tag::OctetString, ..] => true,
        // PKCS#1: version and eight numbers.
        _ => tags.len() >= 9 && tags.iter().take(9).all(|tag| *tag == Tag::Integer),
    };
    shaped.then_some(PrivateKey::Unknown)
}

/// Whether the library supports the algorithm. Then a key that it cannot read is broken.
fn is_judged(algorithm: &[u8]) -> Option<bool> {
    let (parameters, algorithm) = Oid::from_der(algorithm).ok()?;
    let curve = || Oid::from_der(parameters).is_ok_and(|(_, curve)| JUDGED_CURVES.contains(&curve));
    Some(algorithm == ED25519 || algorithm == EC && curve())
}

fn items(mut content: &[u8]) -> Option<Vec<Any<'_>>> {
    let mut items = Vec::new();
    while !content.is_empty() {
        let (rest, item) = Any::from_der(content).ok()?;
        content = rest;
        items.push(item);
    }
    Some(items)
}
