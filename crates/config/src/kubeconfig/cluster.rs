//! The clusters of the contexts that use a user: what its plugin gets when the caller sends none, and where its
//! credentials can be verified.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::{Kubeconfig, Mode, Named, endpoint::cluster};
use crate::problem::Report;
use credbroker_credential::{Cluster, document::Node};

/// A cluster or user: its file, by identity, and its name there.
type DefinitionRef<'a> = (&'a Path, &'a str);

/// The clusters that contexts lead to. Each is read once, and so is each file of authorities, however many contexts and
/// users share it; a problem with one is reported once, as a warning.
#[derive(Debug)]
pub(super) struct ContextClusters<'a> {
    /// Of a user, the clusters of the contexts that lead to it.
    by_user: HashMap<DefinitionRef<'a>, Vec<DefinitionRef<'a>>>,
    all: DefinedItems<'a>,
    /// `None`: it cannot be read.
    read: HashMap<DefinitionRef<'a>, Option<Cluster>>,
    files: HashMap<PathBuf, Bytes>,
}

/// Why is in the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreadable;

impl<'a> ContextClusters<'a> {
    /// A context leads to the user and the cluster of the same file, or to the first ones of these names. In a list that
    /// is used as one kubeconfig (`Mode::Ambient`), client-go lets it lead to the first ones in any case.
    pub(super) fn of(kubeconfig: &'a Kubeconfig, mode: Mode) -> Self {
        let (users, all) = (
            DefinedItems::of(kubeconfig, "users", "user"),
            DefinedItems::of(kubeconfig, "clusters", "cluster"),
        );
        let mut by_user: HashMap<_, Vec<_>> = HashMap::new();
        let mut lead = |context: &Named<'a>, file: Option<&'a Path>| {
            let (Some(user), Some(cluster)) = (text(context.body, "user"), text(context.body, "cluster"))
            else {
                return;
            };
            let (Some(user), Some(cluster)) = (users.find(user, file), all.find(cluster, file)) else {
                return;
            };
            by_user.entry(place_of(user)).or_default().push(place_of(cluster));
        };
        for file in kubeconfig.files() {
            file.items("contexts", "context").for_each(|context| lead(&context, Some(&file.identity)));
        }
        if mode == Mode::Ambient {
            kubeconfig.contexts().iter().for_each(|context| lead(context, None));
        }
        Self { by_user, all, read: HashMap::new(), files: HashMap::new() }
    }

    /// The distinct clusters of the contexts that lead to `user`. If one of them cannot be read there are none: the
    /// others would wrongly look like all there are.
    pub(super) fn of_user(&mut self, user: &Named<'a>, report: &mut Report) -> Vec<Cluster> {
        let mut seen = HashSet::new();
        let mut places = self.by_user.get(&(user.identity, user.name)).cloned().unwrap_or_default();
        places.retain(|place| seen.insert(*place));
        let mut clusters = Vec::new();
        for (file, name) in places {
            let named = self.all.find(name, Some(file)).copied();
            match named.map(|named| self.read(&named, report)) {
                Some(Ok(cluster)) if !clusters.contains(&cluster) => clusters.push(cluster),
                Some(Ok(_)) | None => {}
                Some(Err(Unreadable)) => return Vec::new(),
            }
        }
        clusters
    }

    /// The first cluster of that name; `None`: there is none.
    pub(super) fn named(
        &mut self,
        name: &'a str,
        report: &mut Report,
    ) -> Result<Option<Cluster>, Unreadable> {
        let named = self.all.find(name, None).copied();
        named.map(|named| self.read(&named, report)).transpose()
    }

    fn read(&mut self, named: &Named<'a>, report: &mut Report) -> Result<Cluster, Unreadable> {
        let read = self.read.entry(place_of(named)).or_insert_with(|| {
            let mut found = Report::default();
            let read = cluster(named, &mut self.files, &mut found).filter(|_| found.problems.is_empty());
            report.append_as_warnings(found);
            read
        });
        read.clone().ok_or(Unreadable)
    }
}

/// Every item of one list.
#[derive(Debug)]
struct DefinedItems<'a> {
    at: HashMap<DefinitionRef<'a>, Named<'a>>,
    first: HashMap<&'a str, Named<'a>>,
}

impl<'a> DefinedItems<'a> {
    fn of(kubeconfig: &'a Kubeconfig, list: &str, body: &'static str) -> Self {
        let (mut at, mut first) = (HashMap::new(), HashMap::new());
        for named in kubeconfig.files().iter().flat_map(|file| file.items(list, body)) {
            at.insert(place_of(&named), named);
            first.entry(named.name).or_insert(named);
        }
        Self { at, first }
    }

    /// The one of `file`, else the first one.
    fn find(&self, name: &'a str, file: Option<&'a Path>) -> Option<&Named<'a>> {
        file.and_then(|file| self.at.get(&(file, name))).or_else(|| self.first.get(name))
    }
}

fn place_of<'a>(named: &Named<'a>) -> DefinitionRef<'a> {
    (named.identity, named.name)
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key).and_then(Node::as_str)
}
