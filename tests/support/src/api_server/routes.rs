//! Which answer belongs to a path: a fixed document for discovery and pods, or a stored collection.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::faults::Flood;
use super::query::Query;
use super::resource::{Collection, Target, groups, resources};
use super::watch::Watching;
use super::{State, list, lock};

/// A document and its status.
pub(super) type Answer = (StatusCode, Value);

/// What goes back to the client.
#[derive(Debug)]
pub(super) enum Reply {
    Document(Answer),
    Flood(Flood),
    Garbage,
    /// The events of a watch in which nothing happens.
    Silence,
    Watch(Box<Watching>),
}

impl Reply {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Document((status, _)) => *status,
            Self::Flood(_) | Self::Garbage | Self::Silence | Self::Watch(_) => StatusCode::OK,
        }
    }
}

pub(super) fn respond(state: &Arc<State>, head: &Parts, token: Option<&str>) -> Reply {
    let path = head.uri.path();
    let namespace = path.strip_prefix("/api/v1/namespaces/").filter(|name| !name.contains('/'));
    if let Some(target) = Target::parse(path) {
        return collection(state, head, &target, token).unwrap_or_else(Reply::Document);
    }
    if (path, &head.method) == (SELF_REVIEWS, &Method::POST) {
        return Reply::Document((StatusCode::CREATED, self_review()));
    }
    let fixed = match (path, namespace) {
        ("/version", _) => {
            json!({"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"})
        }
        ("/api", _) => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ("/apis", _) => groups(),
        ("/api/v1", _) => resources("v1"),
        ("/apis/multicluster.x-k8s.io/v1alpha1", _) => resources("multicluster.x-k8s.io/v1alpha1"),
        ("/api/v1/namespaces/default/pods", _) if watches(head) => return Reply::Silence,
        ("/api/v1/namespaces/default/pods", _) => pods(),
        // Every namespace exists. kubectl asks when an object is not found.
        (_, Some(name)) => json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}),
        (_, None) => {
            let message = "the server could not find the requested resource";
            return Reply::Document(failure(StatusCode::NOT_FOUND, "NotFound", message));
        }
    };
    Reply::Document(if head.method == Method::GET { (StatusCode::OK, fixed) } else { not_allowed() })
}

fn not_allowed() -> Answer {
    failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "only GET is served here")
}

/// Where every authenticated user may ask who they are.
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What `kubectl auth whoami` prints.
fn self_review() -> Value {
    json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "status": {"userInfo": {"username": "user", "groups": ["system:authenticated"]}},
    })
}

/// A LIST or WATCH of a collection.
pub(super) fn reads_many(head: &Parts) -> Option<(Collection, bool)> {
    let target = Target::parse(head.uri.path())?;
    (head.method == Method::GET && target.name.is_none()).then(|| (target.collection, watches(head)))
}

/// A `Status`, the API's own form of an error.
pub(super) fn failure(code: StatusCode, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}

fn collection(
    state: &Arc<State>,
    head: &Parts,
    target: &Target<'_>,
    token: Option<&str>,
) -> Result<Reply, Answer> {
    let forbidden = |token: &str| lock(&state.forbidden).contains(&(token.to_owned(), target.collection));
    if token.is_some_and(forbidden) {
        let resource = target.collection.qualified(target.collection.plural());
        let message = format!("{resource} is forbidden: this user may not {} them", head.method);
        return Err(failure(StatusCode::FORBIDDEN, "Forbidden", &message));
    }
    if head.method != Method::GET {
        return Err(not_allowed());
    }
    let store = lock(&state.store);
    if let (Some(namespace), Some(name)) = (target.namespace, target.name) {
        let key = (namespace.to_owned(), name.to_owned());
        return Ok(Reply::Document(list::get(&store, target, &key)));
    }
    if state.signals.borrow().garbage {
        return Ok(Reply::Garbage);
    }
    if let Some(flood) = state.signals.borrow().flood
        && watches(head) == (flood == Flood::Line)
    {
        return Ok(Reply::Flood(flood));
    }
    let query = Query::parse(head.uri.query(), target)?;
    if query.watch {
        return Ok(Reply::Watch(Box::new(Watching::start(state, &store, target.collection, &query)?)));
    }
    Ok(Reply::Document(list::list(&store, target.collection, &query)))
}

fn watches(head: &Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    query.split('&').any(|part| part == "watch=true" || part == "watch=1")
}

fn pods() -> Value {
    let pod = json!({
        "metadata": {"name": "web-0", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "web", "ready": true, "restartCount": 0, "image": "web:1", "imageID": "", "state": {}},
        ]},
    });
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]})
}
