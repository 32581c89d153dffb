//! The kubeconfig that is written: the same bytes for the same routes.

use credbroker_config::kubeconfig::{Shim, extension, is_shim};
use credbroker_credential::document::{Node, Value};

use super::{place::Place, routes::Route};
use crate::cli::kubeconfig::{
    fleet::map,
    wrap::{entry, string},
};

const MARK: &str = "credbroker.io/proxy";
const PROXY: &str = "--proxy";

pub(super) fn kubeconfig(routes: &[Route], place: &Place, shim: &Shim, version: &str) -> Node {
    let items = |key: &str, body: &dyn Fn(&Route) -> Value| {
        let item = |route: &Route| map([("name", string(&route.name)), (key, body(route))]).into();
        Value::Sequence(routes.iter().map(item).collect())
    };
    let mark = map([("name", string(MARK)), ("extension", map([]))]);
    map([
        ("apiVersion", string("v1")),
        ("kind", string("Config")),
        ("clusters", items("cluster", &|route| cluster(route, place))),
        ("contexts", items("context", &context)),
        ("users", items("user", &|route| map([("exec", exec(route, place, shim, version))]))),
        ("extensions", Value::Sequence(vec![mark.into()])),
    ])
    .into()
}

/// With the file of the authority and not its contents, because the proxy makes another one after each boot.
fn cluster(route: &Route, place: &Place) -> Value {
    map([
        ("server", string(format!("{}{}", place.server, route.path))),
        ("certificate-authority", string(place.authority.to_string_lossy())),
    ])
}

fn context(route: &Route) -> Value {
    let named = [("cluster", &route.name), ("user", &route.name), ("namespace", &route.namespace)];
    let set = named.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Mapping(set.map(|(key, value)| entry(key, string(value))).collect())
}

/// What a client prints if it does not find the shim.
const INSTALL_HINT: &str = "The user of this kubeconfig gets a handle from credbroker's proxy, through credbroker-exec. \
                            Install credbroker, or if it is installed at another place now, write the kubeconfig again.";

/// The shim names the target itself, for clients that set no `KUBERNETES_EXEC_INFO`.
fn exec(route: &Route, place: &Place, shim: &Shim, version: &str) -> Value {
    let handles = place.handles.to_string_lossy();
    let own = [PROXY, &route.path, "--socket", &handles, "--api-version", version];
    let args = shim.is_subcommand.then_some("shim").into_iter().chain(own);
    map([
        ("apiVersion", string(format!("client.authentication.k8s.io/{version}"))),
        ("command", string(shim.command.as_str())),
        ("args", Value::Sequence(args.map(|arg| string(arg).into()).collect())),
        ("provideClusterInfo", Value::Bool(false)),
        ("interactiveMode", string("Never")),
        ("installHint", string(INSTALL_HINT)),
    ])
}

/// Whether the user with this `exec` stanza gets a handle from the proxy.
pub(in crate::cli) fn goes_through(exec: &Node) -> bool {
    let args = exec.get("args").and_then(Node::as_sequence).unwrap_or_default();
    is_shim(exec) && args.iter().any(|arg| arg.as_str() == Some(PROXY))
}

/// Whether this command wrote the kubeconfig. That is, it has the mark, and no user but those that were written with it.
pub(super) fn is_ours(kubeconfig: &Node) -> bool {
    let is_of_proxy =
        |user: &Node| user.get("user").and_then(|user| user.get("exec")).is_some_and(goes_through);
    let users = kubeconfig.get("users").and_then(Node::as_sequence).unwrap_or_default();
    extension(kubeconfig, MARK).is_some() && users.iter().all(is_of_proxy)
}
