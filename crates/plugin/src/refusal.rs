//! Why a plugin that exists is not started.

use std::path::PathBuf;

use credbroker_credential::text::shown_path;

/// Why a plugin that exists is not started.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// `credentialPluginPolicy` is `DenyAll`.
    #[error("`credentialPluginPolicy` is `DenyAll`")]
    DenyAll,
    /// The file has another SHA-256 than the provider's `sha256`.
    #[error(
        "its SHA-256 is {actual}, which is not the provider's `sha256`; if the plugin was upgraded, change that value"
    )]
    Digest {
        /// Its SHA-256, in hexadecimal.
        actual: String,
    },
    /// The allowlist does not have the plugin.
    #[error("`credentialPluginAllowlist` does not permit it; add `- command: {}` to it", shown_path(.command))]
    NotListed {
        /// The file, or the command if there is none.
        command: PathBuf,
    },
    /// Another user owns the file, or a directory or link on the way to it.
    #[error(
        "{} belongs to uid {owner}, who can replace it; run `chown root {}`, or set `sandbox: compatible` for the provider",
        shown_path(.path), shown_path(.path)
    )]
    Owner {
        /// The file, directory or link.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Users other than the owner can write the file, or a directory on the way to it.
    #[error(
        "users other than its owner can write {} (mode {mode:04o}); run `chmod go-w {}`, or set `sandbox: compatible` for the provider",
        shown_path(.path), shown_path(.path)
    )]
    Writable {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

impl Refusal {
    /// Whether the plugin policy refuses it, which client-go has too.
    pub fn is_of_policy(&self) -> bool {
        matches!(self, Self::DenyAll | Self::NotListed { .. })
    }

    /// Whether the compatible sandbox starts the plugin nevertheless.
    pub(super) fn is_tolerable(&self) -> bool {
        matches!(self, Self::Owner { .. } | Self::Writable { .. })
    }
}
