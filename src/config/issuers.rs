//! The section `issuers`: how often those may be asked that issue the credentials.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroUsize,
    sync::Arc,
};

use super::{
    problem::Report,
    provider::is_name,
    reader::{Cursor, Fields},
};
use crate::{
    plugin::{Issuer, Provider},
    text::nearest,
};

/// Reads the section, if there is one, and gives each provider its issuer, which until now has only its name. An issuer
/// without a section gets the defaults, with `concurrency`.
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
        let name = Arc::clone(&provider.issuer.name);
        let default = || Arc::new(Issuer::new(Arc::clone(&name), concurrency));
        provider.issuer = Arc::clone(issuers.entry(Arc::clone(&name)).or_insert_with(default));
        used.insert(name);
    }
    if !report.problems.is_empty() {
        return; // a provider that could not be read may be the one
    }
    for (name, at) in places.iter().filter(|(name, _)| !used.contains(*name)) {
        let meant = nearest(name, used.iter().map(|name| &**name));
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        at.warning(report, format!("no provider has the issuer `{name}`, so this has no effect{meant}"));
    }
}

fn issuer(at: &Cursor<'_>, concurrency: NonZeroUsize, report: &mut Report) -> Option<Issuer> {
    let fields = at.fields(&["name", "runsPerSecond", "concurrency"], report)?;
    let counts = ["runsPerSecond", "concurrency"].map(|key| count(&fields, key, report));
    let Some(value) = fields.get("name") else {
        at.problem(
            report,
            "name must be specified: the `issuer` of some provider, or the name of one that has no `issuer`",
        );
        return None;
    };
    let name = value.text(report)?;
    if !is_name(&value, name, report) {
        return None;
    }
    let default = Issuer::new(name, concurrency);
    let [runs_per_second, concurrency] = counts;
    Some(Issuer {
        runs_per_second: runs_per_second.unwrap_or(default.runs_per_second),
        concurrency: concurrency.unwrap_or(default.concurrency),
        ..default
    })
}

fn count(fields: &Fields<'_>, key: &str, report: &mut Report) -> Option<NonZeroUsize> {
    fields.get(key)?.count(report)
}

#[cfg(test)]
mod tests;
