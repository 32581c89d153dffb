//! What kubectl gives to an exec plugin.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

/// Number of variables in a user's shell, on a desktop.
const VARIABLES: usize = 60;
/// Bytes of a certificate authority of EKS or GKE, as PEM.
const AUTHORITY: usize = 1_100;
/// Variables of such a shell whose values are long.
const LONG: [(&str, usize); 3] = [("LS_COLORS", 1_500), ("PATH", 250), ("DBUS_SESSION_BUS_ADDRESS", 60)];

/// The variables: two of them are sent, and one is `KUBERNETES_EXEC_INFO` with a cluster.
pub(crate) fn environment() -> Vec<(String, String)> {
    let cluster = json!({
        "server": "https://0123456789ABCDEF0123456789ABCDEF.gr7.eu-north-1.eks.example.com",
        "certificate-authority-data": STANDARD.encode(vec![b'x'; AUTHORITY]),
    });
    let info = json!({
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1",
        "spec": {"cluster": cluster, "interactive": false},
    });
    let sent = [("AWS_PROFILE", "production"), ("AWS_REGION", "eu-north-1")];
    let mut variables: Vec<_> = sent.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    variables.push(("KUBERNETES_EXEC_INFO".to_owned(), info.to_string()));
    variables.extend(LONG.map(|(name, length)| (name.to_owned(), "v".repeat(length))));
    let others = (variables.len()..VARIABLES)
        .map(|number| (format!("DESKTOP_VARIABLE_{number}"), format!("/usr/share/value-of-{number}")));
    variables.extend(others);
    variables
}
