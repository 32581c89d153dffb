//! The section `issuers`: rate limits of the services that issue credentials.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroUsize,
    sync::Arc,
};

use super::{
    problem::suggestion,
    reader::Fields,
    table::{issuer as table, root},
};
use credbroker_plugin::{Issuer, Provider};

/// Reads the section, if there is one, and gives each provider its issuer, of which only the name is known before. An
/// issuer without a section gets the defaults, with `concurrency`. A section with the name of a kubeconfig's user is the
/// issuer of all users of that name, each of which is its own issuer otherwise.
pub(super) fn issuers<'a>(
    root: &Fields<'_>,
    concurrency: NonZeroUsize,
    providers: impl Iterator<Item = &'a mut Provider>,
) {
    let sections = root::ISSUERS.read(root).unwrap_or_default();
    let mut places: HashMap<Arc<str>, &Fields<'_>> = HashMap::new();
    let mut issuers: HashMap<Arc<str>, Arc<Issuer>> = HashMap::new();
    for fields in &sections {
        let Some(issuer) = issuer(fields, concurrency) else { continue };
        let (name, place) = (Arc::clone(&issuer.name), fields.map.place());
        let first = places.entry(Arc::clone(&name)).or_insert(fields).map.place();
        if first != place {
            fields.map.problem(format!("issuer `{name}` is defined already at {first}; remove one of them"));
        }
        issuers.insert(name, Arc::new(issuer));
    }
    let mut used = HashSet::new();
    for provider in providers {
        let is_named = provider.definition.is_some() && places.contains_key(&provider.name);
        let name = Arc::clone(if is_named { &provider.name } else { &provider.issuer.name });
        let default = || Arc::new(default_issuer(Arc::clone(&name), concurrency));
        provider.issuer = Arc::clone(issuers.entry(Arc::clone(&name)).or_insert_with(default));
        used.insert(name);
    }
    if root.map.report.problems() > 0 {
        return; // a provider that could not be read may have the issuer
    }
    for (name, fields) in places.iter().filter(|(name, _)| !used.contains(*name)) {
        let meant = suggestion(';', name, used.iter().map(|name| &**name));
        fields.map.warning(format!("no provider has the issuer `{name}`, so this has no effect{meant}"));
    }
}

fn issuer(fields: &Fields<'_>, concurrency: NonZeroUsize) -> Option<Issuer> {
    let runs_per_second = table::RUNS_PER_SECOND.read(fields);
    let concurrency = table::CONCURRENCY.read(fields).unwrap_or(concurrency);
    let name = table::NAME.read(fields)?.into();
    Some(Issuer { name, runs_per_second, concurrency })
}

/// The issuer of that name without a section.
pub(super) fn default_issuer(name: Arc<str>, concurrency: NonZeroUsize) -> Issuer {
    Issuer { name, runs_per_second: table::RUNS_PER_SECOND.absent.0, concurrency }
}

#[cfg(test)]
mod tests;
