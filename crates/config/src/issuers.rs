//! The section `issuers`: rate limits of the services that issue credentials.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroUsize,
    sync::Arc,
};

use super::{problem::Report, reader::Cursor, table::issuer as table};
use credbroker_credential::text::nearest;
use credbroker_plugin::{Issuer, Provider};

/// Reads the section, if there is one, and gives each provider its issuer, of which only the name is known before. An
/// issuer without a section gets the defaults, with `concurrency`. A section with the name of a kubeconfig's user is the
/// issuer of all users of that name, each of which is its own issuer otherwise.
pub(super) fn issuers<'a>(
    section: Option<&Cursor<'_>>,
    concurrency: NonZeroUsize,
    providers: impl Iterator<Item = &'a mut Provider>,
    report: &mut Report,
) {
    let sections = section.map(|section| section.items(report)).unwrap_or_default();
    let mut places: HashMap<Arc<str>, &Cursor<'_>> = HashMap::new();
    let mut issuers: HashMap<Arc<str>, Arc<Issuer>> = HashMap::new();
    for at in &sections {
        let Some(issuer) = issuer(at, concurrency, report) else { continue };
        let first = *places.entry(Arc::clone(&issuer.name)).or_insert(at);
        if first.place() != at.place() {
            let message = format!(
                "issuer `{}` is defined already at {}; remove one of them",
                issuer.name,
                first.place()
            );
            at.problem(report, message);
        }
        issuers.insert(Arc::clone(&issuer.name), Arc::new(issuer));
    }
    let mut used = HashSet::new();
    for provider in providers {
        let is_named = provider.definition.is_some() && places.contains_key(&provider.name);
        let name = Arc::clone(if is_named { &provider.name } else { &provider.issuer.name });
        let default = || Arc::new(default_issuer(Arc::clone(&name), concurrency));
        provider.issuer = Arc::clone(issuers.entry(Arc::clone(&name)).or_insert_with(default));
        used.insert(name);
    }
    if !report.problems.is_empty() {
        return; // a provider that could not be read may have the issuer
    }
    for (name, at) in places.iter().filter(|(name, _)| !used.contains(*name)) {
        let meant = nearest(name, used.iter().map(|name| &**name));
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        at.warning(report, format!("no provider has the issuer `{name}`, so this has no effect{meant}"));
    }
}

fn issuer(at: &Cursor<'_>, concurrency: NonZeroUsize, report: &mut Report) -> Option<Issuer> {
    let fields = at.section(&table::SECTION, report)?;
    let runs_per_second = table::RUNS_PER_SECOND.read(&fields, report);
    let concurrency = table::CONCURRENCY.read(&fields, report).unwrap_or(concurrency);
    let name = table::NAME.read(&fields, report)?.into();
    Some(Issuer { name, runs_per_second, concurrency })
}

/// The issuer of that name without a section.
pub(super) fn default_issuer(name: Arc<str>, concurrency: NonZeroUsize) -> Issuer {
    Issuer { name, runs_per_second: table::RUNS_PER_SECOND.absent.0, concurrency }
}

#[cfg(test)]
mod tests;
