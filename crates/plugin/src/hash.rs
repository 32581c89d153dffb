//! The input of hashes that identify runs and definitions.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use aws_lc_rs::digest::{SHA256, digest};

use credbroker_credential::Cluster;

/// Input of a hash. Every field has a fixed size or starts with its length, and every list has its count, so two inputs
/// are equal only if all their fields are.
pub(super) struct HashInput(Vec<u8>);

impl HashInput {
    /// `version` names the layout; a new version changes every key. `large` is the size of fields that may be large.
    /// The buffer is allocated once with that size and not more, because every freed block is wiped.
    pub(super) fn new(version: &[u8], large: usize) -> Self {
        let mut fields = Self(Vec::with_capacity(large + 1024));
        fields.text(version);
        fields
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.0.extend_from_slice(text);
    }

    pub(super) fn variables<'a>(&mut self, sorted: impl Iterator<Item = (&'a OsStr, &'a OsStr)>) {
        let mut count = 0_usize;
        for (name, value) in sorted {
            self.text(name.as_bytes());
            self.text(value.as_bytes());
            count += 1;
        }
        self.count(count); // known only here; unambiguous, because this list is the last field
    }

    pub(super) fn cluster(&mut self, cluster: &Cluster) {
        // A new field of `Cluster` does not compile here until it is added to the key.
        let Cluster {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression,
            config,
        } = cluster;
        self.text(server.as_bytes());
        self.text(tls_server_name.as_bytes());
        self.flag(*insecure_skip_tls_verify);
        self.text(certificate_authority_data);
        self.text(proxy_url.as_bytes());
        self.flag(*disable_compression);
        self.text(config);
    }

    pub(super) fn hash(self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &self.0).as_ref());
        hash
    }
}
