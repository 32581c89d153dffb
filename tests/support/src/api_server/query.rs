//! What the query of a LIST or WATCH asks for.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use super::collection::{Key, Objects};
use super::resource::Target;
use super::routes::{Answer, failure};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) watch: bool,
    /// `None`: the newest, or anything, which is the same here.
    pub(super) revision: Option<u64>,
    pub(super) filter: Filter,
    pub(super) limit: Option<usize>,
    pub(super) continued: Option<Continued>,
    pub(super) bookmarks: bool,
    pub(super) initial_events: bool,
    pub(super) timeout: Option<Duration>,
}

/// Which objects of a collection are meant: those of this namespace, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter(Option<String>);

/// Where the next page begins, in a list that stays as it was when its first page was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Continued {
    pub(super) revision: u64,
    pub(super) from: Key,
}

impl Query {
    pub(super) fn parse(query: Option<&str>, target: &Target<'_>) -> Result<Self, Answer> {
        let mut parsed = Self { filter: Filter(target.namespace.map(str::to_owned)), ..Self::default() };
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let refused = || {
                let message = format!("Invalid value: {value:?} of the query parameter {name:?}");
                failure(StatusCode::BAD_REQUEST, "BadRequest", &message)
            };
            let number = || value.parse::<u64>().ok().ok_or_else(refused);
            let yes = value == "true" || value == "1";
            match name.as_ref() {
                "watch" => parsed.watch = yes,
                "allowWatchBookmarks" => parsed.bookmarks = yes,
                "sendInitialEvents" => parsed.initial_events = yes,
                "resourceVersion" if !value.is_empty() => {
                    parsed.revision = Some(number()?).filter(|&revision| revision > 0);
                }
                "limit" => parsed.limit = usize::try_from(number()?).ok().filter(|&limit| limit > 0),
                "timeoutSeconds" => {
                    parsed.timeout = Some(number()?).filter(|&s| s > 0).map(Duration::from_secs);
                }
                "continue" if !value.is_empty() => {
                    parsed.continued = Some(Continued::decode(&value).ok_or_else(refused)?);
                }
                // Ignored, they would look as if they worked.
                "labelSelector" | "fieldSelector" if !value.is_empty() => return Err(refused()),
                "resourceVersionMatch" if value == "Exact" => return Err(refused()),
                _ => {}
            }
        }
        Ok(parsed)
    }
}

impl Filter {
    pub(super) fn matches(&self, key: &Key) -> bool {
        self.0.as_ref().is_none_or(|namespace| *namespace == key.0)
    }

    pub(super) fn select<'a>(&self, objects: &'a Objects) -> Vec<(&'a Key, &'a Value)> {
        objects.iter().filter(|(key, _)| self.matches(key)).map(|(key, object)| (key, &**object)).collect()
    }
}

impl Continued {
    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!([self.revision, self.from.0, self.from.1]).to_string())
    }

    fn decode(text: &str) -> Option<Self> {
        let (revision, namespace, name) = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        Some(Self { revision, from: (namespace, name) })
    }
}
