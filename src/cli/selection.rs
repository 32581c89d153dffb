//! Which credentials `credbroker refresh` and `evict` mean.

use std::fmt;

use credbroker_client::admin::Selector;

/// Exactly one of these.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct SelectionArgs {
    /// The credentials of this provider
    provider: Option<String>,
    /// The credential with this key, as `credbroker status` prints it
    #[arg(long)]
    key: Option<String>,
    /// All credentials
    #[arg(long)]
    all: bool,
}

impl SelectionArgs {
    pub(super) fn selector(&self) -> Selector {
        match (&self.provider, &self.key) {
            (Some(provider), _) => Selector::Provider(provider.clone()),
            (None, Some(key)) => Selector::Key(key.clone()),
            (None, None) => Selector::All,
        }
    }
}

impl fmt::Display for SelectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.provider, &self.key) {
            (Some(provider), _) => f.write_str(provider),
            (None, Some(key)) => write!(f, "key {key}"),
            (None, None) => f.write_str("all providers"),
        }
    }
}
