//! Which credentials are fetched before they are requested.

use std::num::NonZeroUsize;

use crate::{problem::Report, reader::Cursor, table::prewarm as table};
use credbroker_credential::text::nearest;
use credbroker_plugin::{Globs, ProfileName};

/// A rule for credentials that are fetched before they are requested.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Prewarm {
    /// `NAMESPACE/NAME`, with globs.
    pub profiles: Globs,
    /// Names of providers; empty: all.
    pub providers: Vec<String>,
    /// Plugin runs at a time, of each provider.
    pub concurrency: NonZeroUsize,
    /// Plugin runs that are started in a second, of each provider.
    pub runs_per_second: NonZeroUsize,
}

impl Prewarm {
    /// Whether the rule covers a profile that leads to that provider.
    pub fn covers(&self, profile: &ProfileName, provider: &str) -> bool {
        let provider = self.providers.is_empty() || self.providers.iter().any(|name| name == provider);
        provider && self.profiles.matches(&profile.to_string())
    }

    /// Reads a rule. `access` are the providers that may serve profiles.
    pub(super) fn read(at: &Cursor<'_>, access: &[&str], report: &mut Report) -> Option<Self> {
        let fields = at.section(&table::SECTION, report)?;
        let profiles = fields.at(&table::CLUSTER_PROFILES).map(|value| value.items(report));
        let mut globs = Vec::new();
        for item in profiles.iter().flatten() {
            match item.text(report) {
                Some(glob) if glob.matches('/').count() == 1 => globs.push(glob),
                Some(_) => item.problem(report, "must be `NAMESPACE/NAME`, in which `*` matches any text"),
                None => {}
            }
        }
        if profiles.is_none() {
            globs.push("*");
        }
        let names = fields.at(&table::PROVIDERS).map(|value| value.items(report)).unwrap_or_default();
        let mut providers = Vec::new();
        for item in &names {
            match item.text(report) {
                Some(name) if access.contains(&name) => providers.push(name.to_owned()),
                Some(name) => {
                    let meant = nearest(name, access.iter().copied());
                    let meant = meant.map(|meant| format!(", did you mean `{meant}`?")).unwrap_or_default();
                    item.problem(report, format!("`{name}` is not one of `providers`{meant}"));
                }
                None => {}
            }
        }
        Some(Self {
            profiles: Globs::new(globs),
            providers,
            concurrency: table::CONCURRENCY.read(&fields, report),
            runs_per_second: table::RUNS_PER_SECOND.read(&fields, report),
        })
    }
}
