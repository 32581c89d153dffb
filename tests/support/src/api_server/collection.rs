//! The objects, and every change to them that a watch may still ask for.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustls::pki_types::UnixTime;
use serde_json::{Map, Value, json};

use super::resource::Collection;

/// Namespace and name: also the order of a list.
pub(super) type Key = (String, String);
pub(super) type Objects = BTreeMap<Key, Arc<Value>>;

/// How many changes of a collection are remembered; a watch that is further behind has expired.
const REMEMBERED: usize = 20_000;

/// One change of one object. A list shows what was there before a later change.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) key: Key,
    pub(super) before: Option<Arc<Value>>,
    pub(super) after: Option<Arc<Value>>,
}

#[derive(Debug, Default)]
struct Kept {
    objects: Objects,
    changes: VecDeque<Change>,
    /// Changes up to this revision were forgotten.
    forgotten: u64,
}

/// All collections of a server under one counter of revisions.
#[derive(Debug)]
pub(super) struct Store {
    kept: BTreeMap<Collection, Kept>,
    revision: u64,
    /// A request for an older one fails with 410 Gone.
    compacted: u64,
    /// A watch gets that as the status of its response instead of as its first event.
    gone_by_status: bool,
    created: u64,
}

/// What was asked for is older than what the store remembers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) asked: u64,
    pub(super) oldest: u64,
}

impl Default for Store {
    fn default() -> Self {
        let kept = Collection::ALL.into_iter().map(|one| (one, Kept::default())).collect();
        // Zero means "any" to a client, and a real server is never at its first revision.
        Self { kept, revision: 1000, compacted: 0, gone_by_status: false, created: 0 }
    }
}

impl Store {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn objects(&self, collection: Collection) -> &Objects {
        &self.kept(collection).objects
    }

    pub(super) fn get(&self, collection: Collection, key: &Key) -> Option<&Arc<Value>> {
        self.objects(collection).get(key)
    }

    /// Puts `object` under `key` as a new revision. Returns what is stored, which is what was there if nothing changes.
    ///
    /// The server's own metadata (uid, creation, revision) is written here and nowhere else.
    pub(super) fn put(&mut self, collection: Collection, key: Key, mut object: Value) -> Arc<Value> {
        let before = self.get(collection, &key).cloned();
        let revision = self.revision + 1;
        if before.is_none() {
            self.created += 1;
        }
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.created);
        let root = members(&mut object);
        root.entry("apiVersion").or_insert_with(|| json!(collection.api_version()));
        root.entry("kind").or_insert_with(|| json!(collection.kind()));
        let metadata = members(root.entry("metadata").or_insert(Value::Null));
        metadata.insert("namespace".to_owned(), json!(key.0));
        metadata.insert("name".to_owned(), json!(key.1));
        if let Some(before) = &before {
            for name in ["uid", "creationTimestamp", "resourceVersion"] {
                metadata.insert(name.to_owned(), before["metadata"][name].clone());
            }
        } else {
            metadata.insert("uid".to_owned(), json!(uid));
            metadata.insert("creationTimestamp".to_owned(), json!(now()));
        }
        if let Some(before) = before.as_ref().filter(|before| ***before == object) {
            return Arc::clone(before);
        }
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        let after = Arc::new(object);
        self.record(collection, key, before, Some(Arc::clone(&after)));
        after
    }

    /// Removes an object; what it was at the end carries the revision of its removal.
    pub(super) fn remove(&mut self, collection: Collection, key: &Key) -> Option<Arc<Value>> {
        let before = self.kept_mut(collection).objects.get(key).cloned()?;
        self.record(collection, key.clone(), Some(Arc::clone(&before)), None);
        Some(at_revision(&before, self.revision).into())
    }

    /// The changes after `revision`, oldest first, for a watch that was running all the time.
    pub(super) fn changes_after(&self, collection: Collection, revision: u64) -> Result<Vec<Change>, Gone> {
        let kept = self.kept(collection);
        if revision < kept.forgotten {
            return Err(Gone { asked: revision, oldest: kept.forgotten });
        }
        let from = kept.changes.partition_point(|change| change.revision <= revision);
        Ok(kept.changes.range(from..).cloned().collect())
    }

    /// Whether a new request may still start from `revision`.
    pub(super) fn check(&self, collection: Collection, revision: u64) -> Result<(), Gone> {
        let oldest = self.compacted.max(self.kept(collection).forgotten);
        if revision < oldest { Err(Gone { asked: revision, oldest }) } else { Ok(()) }
    }

    pub(super) fn gone_by_status(&self) -> bool {
        self.gone_by_status
    }

    /// The objects as they were at `revision`.
    pub(super) fn objects_at(&self, collection: Collection, revision: u64) -> Result<Objects, Gone> {
        self.check(collection, revision)?;
        let mut objects = self.objects(collection).clone();
        for change in self.changes_after(collection, revision)?.into_iter().rev() {
            match change.before {
                Some(before) => objects.insert(change.key, before),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// Makes every revision that any client has seen too old to start from. Running watches keep their place.
    pub(super) fn compact(&mut self, gone_by_status: bool) {
        self.revision += 1;
        self.compacted = self.revision;
        self.gone_by_status = gone_by_status;
    }

    fn record(
        &mut self,
        collection: Collection,
        key: Key,
        before: Option<Arc<Value>>,
        after: Option<Arc<Value>>,
    ) {
        self.revision += 1;
        let revision = self.revision;
        let kept = self.kept_mut(collection);
        match &after {
            Some(after) => kept.objects.insert(key.clone(), Arc::clone(after)),
            None => kept.objects.remove(&key),
        };
        kept.changes.push_back(Change { revision, key, before, after });
        if kept.changes.len() > REMEMBERED {
            kept.forgotten = kept.changes.pop_front().map_or(0, |change| change.revision);
        }
    }

    fn kept(&self, collection: Collection) -> &Kept {
        self.kept.get(&collection).expect("every collection is there")
    }

    fn kept_mut(&mut self, collection: Collection) -> &mut Kept {
        self.kept.entry(collection).or_default()
    }
}

/// `object` as an event at another revision than its own shows it.
pub(super) fn at_revision(object: &Value, revision: u64) -> Value {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(revision.to_string());
    object
}

fn members(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was made an object")
}

fn now() -> String {
    let seconds = i64::try_from(UnixTime::now().as_secs()).expect("a time in this era");
    jiff::Timestamp::from_second(seconds).expect("a time in this era").to_string()
}
