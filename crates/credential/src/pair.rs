//! A client certificate and its key, checked against each other.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use base64::prelude::{BASE64_STANDARD, Engine};
use secrecy::SecretSlice;
use x509_parser::{
    certificate::{X509Certificate, X509CertificateParser},
    nom::Parser,
    time::ASN1Time,
    x509::X509Version,
};
use zeroize::Zeroizing;

use crate::{
    key::{PrivateKey, is_secp256k1},
    sha256::Sha256,
    timestamp::shift,
};

const CERTIFICATE: &str = "clientCertificateData";
const KEY: &str = "clientKeyData";

/// Certificates in a chain: more than any public or private hierarchy has, and few enough for a TLS message of 16 KiB.
const LONGEST_CHAIN: usize = 16;

const KEY_IN_CERTIFICATE: &str = "`clientCertificateData` contains a private key, which is left out of the certificate that callers get; the plugin should print it only in `clientKeyData`";
const UNJUDGED: &str = "whether the private key belongs to the client certificate cannot be checked for this kind of key; both are passed on unchanged";
const VERSION_1: &str = "the client certificate is X.509 version 1, which some TLS libraries refuse";

/// A client certificate chain and its private key, byte for byte as the plugin printed them.
#[derive(Debug)]
pub struct ClientPair {
    /// PEM, leaf first.
    pub chain_pem: SecretSlice<u8>,
    /// PEM; belongs to the leaf.
    pub key_pem: SecretSlice<u8>,
    /// Of the DER certificates: changes if and only if the TLS identity does, because the key belongs to the leaf.
    pub fingerprint: Sha256,
    /// The validity of the leaf.
    pub validity: Validity,
}

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    /// Its `NotBefore`.
    pub from: SystemTime,
    /// Its `NotAfter`.
    pub to: SystemTime,
}

/// Why a client certificate and its key are not accepted. Never contains them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PairError {
    /// This field is base64-encoded twice.
    #[error("`{0}` is base64; it must be the PEM text itself")]
    Base64(&'static str),
    /// No CERTIFICATE block.
    #[error("`{CERTIFICATE}` has no PEM block labeled CERTIFICATE")]
    CertificateMissing,
    /// More certificates than any server accepts: their number.
    #[error("`{CERTIFICATE}` has {} certificates; at most {LONGEST_CHAIN} are accepted", .0)]
    ChainTooLong(usize),
    /// Not X.509. Certificates are counted from 1.
    #[error("certificate {} in `{CERTIFICATE}` is not an X.509 certificate", .0)]
    CertificateUnreadable(usize),
    /// The key needs a passphrase.
    #[error("the private key is encrypted; the plugin must print it without a passphrase")]
    EncryptedKey,
    /// The key does not belong to the chain.
    #[error("the private key does not belong to the client certificate")]
    KeyMismatch,
    /// No private key block.
    #[error("`{KEY}` has no PEM block labeled PRIVATE KEY")]
    KeyMissing,
    /// Neither SEC1, PKCS#1 nor PKCS#8.
    #[error("the private key is neither SEC1, PKCS#1 nor PKCS#8")]
    KeyUnreadable,
    /// The key belongs to another certificate of the chain than the first.
    #[error(
        "the private key belongs to certificate {0} of the chain; the client's own certificate must be the first"
    )]
    LeafNotFirst(usize),
    /// A block that does not end, or is not base64: the field, and the line of its `BEGIN`, counted from 1.
    #[error("the PEM block that begins on line {1} of `{0}` is broken")]
    PemBroken(&'static str, usize),
    /// A curve that TLS does not have.
    #[error(
        "the client certificate or its key uses the curve secp256k1, which TLS does not support; issue a certificate with another kind of key, such as P-256"
    )]
    Secp256k1,
    /// Certificate and key are swapped.
    #[error("`{CERTIFICATE}` and `{KEY}` are swapped")]
    Swapped,
}

/// Checks a pair, and keeps its bytes, except for a private key among the certificates. With warnings about it.
pub(super) fn client_pair(chain: &str, key: &str) -> Result<(ClientPair, Vec<&'static str>), PairError> {
    let (chain_blocks, key_blocks) = (blocks(chain), blocks(key));
    let certificates = certificates(chain, &chain_blocks, &key_blocks)?;
    if certificates.len() > LONGEST_CHAIN {
        return Err(PairError::ChainTooLong(certificates.len()));
    }
    let private_key = private_key(key, &key_blocks)?;

    let mut parsed = Vec::new();
    for (index, der) in certificates.iter().enumerate() {
        parsed.push(certificate(der).ok_or(PairError::CertificateUnreadable(index + 1))?);
    }
    let leaf = parsed.first().ok_or(PairError::CertificateMissing)?;
    if matches!(private_key, PrivateKey::Secp256k1) || is_secp256k1(leaf.public_key()) {
        return Err(PairError::Secp256k1);
    }
    let judged = private_key.belongs_to(leaf.public_key());
    if judged == Some(false) {
        let owner = parsed.iter().position(|other| private_key.belongs_to(other.public_key()) == Some(true));
        return Err(owner.map_or(PairError::KeyMismatch, |at| PairError::LeafNotFirst(at + 1)));
    }
    let unusual = match judged {
        None => Some(UNJUDGED),
        Some(_) => (leaf.version() == X509Version::V1).then_some(VERSION_1),
    };
    // The certificates alone, if anything in the text may be a private key: a part of a broken block too.
    let alone = || certificates.iter().map(|der| certificate_block(der)).collect::<String>();
    let chain_alone = chain.contains("PRIVATE KEY").then(alone);
    let warnings = unusual.into_iter().chain(chain_alone.is_some().then_some(KEY_IN_CERTIFICATE)).collect();
    let pair = ClientPair {
        chain_pem: chain_alone.unwrap_or_else(|| chain.to_owned()).into_bytes().into(),
        key_pem: key.as_bytes().to_vec().into(),
        fingerprint: fingerprint(&certificates),
        validity: Validity { from: time(leaf.validity().not_before), to: time(leaf.validity().not_after) },
    };
    Ok((pair, warnings))
}

/// The certificates of the chain field; other blocks are skipped, as Go does.
fn certificates<'a>(
    text: &str,
    blocks: &'a [Block<'_>],
    key_blocks: &[Block<'_>],
) -> Result<Vec<&'a Zeroizing<Vec<u8>>>, PairError> {
    let certificates: Vec<&Block<'_>> = blocks.iter().filter(|block| block.is_certificate()).collect();
    if certificates.is_empty() {
        let swapped =
            blocks.iter().any(Block::is_private_key) && key_blocks.iter().any(Block::is_certificate);
        return Err(match () {
            () if swapped => PairError::Swapped,
            () if blocks.is_empty() && is_base64(text) => PairError::Base64(CERTIFICATE),
            () => PairError::CertificateMissing,
        });
    }
    let der = |block: &'a Block<'_>| block.der.as_ref().ok_or(PairError::PemBroken(CERTIFICATE, block.line));
    certificates.into_iter().map(der).collect()
}

/// The first private key of the key field, which may also contain a certificate.
fn private_key(text: &str, blocks: &[Block<'_>]) -> Result<PrivateKey, PairError> {
    let Some(block) = blocks.iter().find(|block| block.is_private_key()) else {
        let base64 = blocks.is_empty() && is_base64(text);
        return Err(if base64 { PairError::Base64(KEY) } else { PairError::KeyMissing });
    };
    if block.encrypted || block.label.contains("ENCRYPTED") {
        return Err(PairError::EncryptedKey);
    }
    let der = block.der.as_ref().ok_or(PairError::PemBroken(KEY, block.line))?;
    PrivateKey::read(der).ok_or(PairError::KeyUnreadable)
}

/// Each certificate is prefixed with its length, so that two different chains never give the same bytes.
fn fingerprint(certificates: &[&Zeroizing<Vec<u8>>]) -> Sha256 {
    let mut context = Context::new(&SHA256);
    for der in certificates {
        context.update(&(der.len() as u64).to_be_bytes());
        context.update(der);
    }
    context.finish().into()
}

/// Reads exactly one DER certificate, without its extensions.
fn certificate(der: &[u8]) -> Option<X509Certificate<'_>> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    parser.parse(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, certificate)| certificate)
}

fn time(time: ASN1Time) -> SystemTime {
    let (seconds, epoch) = (time.timestamp(), SystemTime::UNIX_EPOCH);
    let time = shift(epoch, seconds < 0, Duration::from_secs(seconds.unsigned_abs()));
    time.unwrap_or(epoch) // not reached: an ASN.1 year has four digits
}

/// One PEM block, found by its label as in Go: text around blocks is skipped.
struct Block<'a> {
    label: &'a str,
    /// The line of `BEGIN`, counted from 1.
    line: usize,
    /// A `Proc-Type` header says that it is encrypted.
    encrypted: bool,
    /// The content; `None` if it is not base64 or its `END` is missing.
    der: Option<Zeroizing<Vec<u8>>>,
}

impl Block<'_> {
    /// Whether it contains a private key in any format.
    fn is_private_key(&self) -> bool {
        self.label.strip_suffix("PRIVATE KEY").is_some_and(|kind| kind.is_empty() || kind.ends_with(' '))
    }

    fn is_certificate(&self) -> bool {
        self.label == "CERTIFICATE"
    }
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut lines = text.lines().enumerate().peekable();
    let mut blocks = Vec::new();
    while let Some((number, line)) = lines.next() {
        let Some(label) = label(line, "-----BEGIN ") else { continue };
        let mut block = Block { label, line: number + 1, encrypted: false, der: None };
        let mut base64 = Zeroizing::new(String::new());
        // The beginning of the next block ends an unfinished one.
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with("-----BEGIN ")) {
            if self::label(line, "-----END ") == Some(label) {
                block.der = BASE64_STANDARD.decode(base64.as_bytes()).ok().map(Zeroizing::new);
                break;
            }
            match line.split_once(':') {
                Some((name, value)) => {
                    block.encrypted |= name.trim() == "Proc-Type" && value.trim().ends_with("ENCRYPTED");
                }
                None => base64.extend(line.chars().filter(|character| !character.is_ascii_whitespace())),
            }
        }
        blocks.push(block);
    }
    blocks
}

/// A block labeled CERTIFICATE, in lines of 64 characters as RFC 7468 demands.
fn certificate_block(der: &[u8]) -> String {
    let base64 = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = base64.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// Whether this is base64 of PEM or of DER: the output of a plugin that encodes twice.
fn is_base64(text: &str) -> bool {
    let text: String = text.chars().filter(|character| !character.is_ascii_whitespace()).collect();
    !text.is_empty() && BASE64_STANDARD.decode(text).is_ok()
}

/// The label of a line that starts with `prefix`. Spaces may follow it.
fn label<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    line.trim_end().strip_prefix(prefix)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests;
