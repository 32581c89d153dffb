//! The digest of a context: everything that the context means, and no secret.

use std::{os::unix::ffi::OsStrExt as _, path::Path};

use aws_lc_rs::digest::{Context, SHA256};

use super::files::Named;
use credbroker_credential::{Cluster, Sha256};

/// Names the layout of the digest's input. A change of the layout needs another one.
const VERSION: &str = "credbroker context 1";
/// As many as the digest of a definition has.
const DIGITS: usize = 40;

/// The digest as it is built. Every text has its length in front, so that no two inputs are equal by concatenation.
pub(super) struct ContextDigest(Context);

impl ContextDigest {
    pub(super) fn new() -> Self {
        let mut digest = Self(Context::new(&SHA256));
        digest.text(VERSION);
        digest
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    /// The file and the name of an item of a kubeconfig.
    pub(super) fn definition(&mut self, named: &Named<'_>) {
        self.path(named.identity);
        self.text(named.name);
    }

    /// All of `cluster`: with another certificate authority or proxy it may be another cluster.
    pub(super) fn cluster(&mut self, cluster: &Cluster) {
        // A new field of `Cluster` does not compile here until it is added to the input.
        let Cluster {
            server,
            tls_server_name,
            insecure_skip_tls_verify,
            certificate_authority_data,
            proxy_url,
            disable_compression,
            config,
        } = cluster;
        self.text(server);
        self.text(tls_server_name);
        self.bytes(&[u8::from(*insecure_skip_tls_verify), u8::from(*disable_compression)]);
        self.bytes(certificate_authority_data);
        self.text(proxy_url);
        self.bytes(config);
    }

    /// 40 hexadecimal digits.
    pub(super) fn finish(self) -> String {
        let mut digits = Sha256::from(self.0.finish()).to_string();
        digits.truncate(DIGITS);
        digits
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }
}
