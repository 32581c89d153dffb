//! The parts of an X.509 certificate that the broker uses.

use std::time::{Duration, SystemTime};

use x509_parser::{
    certificate::{X509Certificate, X509CertificateParser},
    nom::Parser,
    time::ASN1Time,
    x509::{SubjectPublicKeyInfo, X509Version},
};

/// A parsed certificate.
pub(super) struct Certificate<'a> {
    inner: X509Certificate<'a>,
}

impl<'a> Certificate<'a> {
    /// Reads exactly one DER certificate, without its extensions.
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
        let (rest, inner) = parser.parse(der).ok()?;
        rest.is_empty().then_some(Self { inner })
    }

    pub(super) fn public_key(&self) -> &SubjectPublicKeyInfo<'_> {
        self.inner.public_key()
    }

    pub(super) fn is_version_1(&self) -> bool {
        self.inner.version() == X509Version::V1
    }

    pub(super) fn not_before(&self) -> SystemTime {
        time(self.inner.validity().not_before)
    }

    pub(super) fn not_after(&self) -> SystemTime {
        time(self.inner.validity().not_after)
    }
}

fn time(time: ASN1Time) -> SystemTime {
    let seconds = time.timestamp();
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if seconds < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    time.unwrap_or(epoch) // not reached: an ASN.1 year has four digits
}
