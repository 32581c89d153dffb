//! What holds for any input, shared by the fuzz targets and the tests.

use std::{
    fmt::{Debug, Display},
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use credbroker_config as config;
use credbroker_config::kubeconfig::Mode;
use credbroker_credential::{ApiVersion, Cluster, decode, exec_info};
use credbroker_fleet::Fleet;
use credbroker_plugin::{
    Environment, ProfileName, Providers,
    cluster_profile::{ClusterProfile, EndpointRules},
};
use credbroker_proto::{v1 as pb, v1alpha1};
use prost::Message;
use serde_json::Value;

/// Longest error of a reader, in bytes: it names what is wrong and does not quote its input.
const LONGEST: usize = 2000;

/// A plugin's stdout.
///
/// # Panics
///
/// A property does not hold.
pub fn output(bytes: &[u8]) {
    for version in [ApiVersion::V1, ApiVersion::V1Beta1, ApiVersion::V1Alpha1] {
        match decode(bytes, version) {
            Ok(decoded) => {
                let (token, pem) = (decoded.material.token(), decoded.material.pem());
                assert!(token.is_some() || pem.is_some(), "accepted without a credential");
                let shown = format!("{decoded:?}");
                let key = pem.and_then(|[_, key]| std::str::from_utf8(key).ok());
                for secret in token.into_iter().chain(key).filter(|secret| secret.len() > 40) {
                    assert!(!shown.contains(secret), "a secret is shown");
                }
            }
            Err(error) => assert_short(&error),
        }
    }
}

/// A certificate chain and a key, separated by a NUL byte.
pub fn pem(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
    let (chain, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let document = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": chain, "clientKeyData": key},
    });
    output(document.to_string().as_bytes());
}

/// A configuration file.
pub fn config(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Err(error) = config::load(Some(&path), &Environment::default()) {
            assert!(!error.to_string().is_empty());
        }
    });
}

/// A kubeconfig, which defines providers.
pub fn kubeconfig(bytes: &[u8]) {
    with_file(bytes, |path| {
        for mode in [Mode::Named, Mode::Ambient] {
            if let Ok(kubeconfig) = config::read_kubeconfig(std::slice::from_ref(&path), mode) {
                let definitions = config::definitions(&kubeconfig, &Environment::default()).served;
                assert!(definitions.iter().all(|(name, _)| !name.is_empty()));
            }
        }
    });
}

/// A cluster, as bytes of its fields, that a plugin gets in `KUBERNETES_EXEC_INFO`.
pub fn exec_info_of_cluster(bytes: &[u8]) {
    let mut parts = bytes.splitn(5, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (server, tls_server_name, proxy_url) = (text(), text(), text());
    let (authorities, config) = (text(), text());
    let cluster = Cluster {
        server,
        tls_server_name,
        proxy_url,
        certificate_authority_data: authorities.into_bytes().into(),
        config: config.into_bytes().into(),
        ..Cluster::default()
    };
    match exec_info(ApiVersion::V1, Some(&cluster), false) {
        Ok(value) => {
            let read: Value = serde_json::from_str(&value).expect("it is JSON");
            assert_eq!(read["spec"]["cluster"]["server"], cluster.server.as_str());
            assert!(!value.contains('\0') && value.len() < 128 * 1024);
        }
        Err(error) => assert_short(&error),
    }
}

/// `spec` and `status` of a ClusterProfile, as a JSON object of both.
pub fn profile(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
    let profile = ClusterProfile::read(ProfileName::new("fleet", "any"), &object["spec"], &object["status"]);
    let text = serde_json::json!({"providers": [{"name": "cloud", "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"},
        "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "Replace"}]});
    with_file(text.to_string().as_bytes(), |path| {
        let Ok(loaded) = config::load(Some(&path), &Environment::default()) else { return };
        let providers: Providers = loaded.config.providers;
        let fleet = Fleet::new(providers.into(), EndpointRules::default());
        fleet.apply(profile.clone());
        let known = fleet.get(&ProfileName::new("fleet", "any")).expect("it is known");
        if let Err(error) = &known.outcome {
            assert_short(error);
        }
    });
}

/// A request or an answer of any RPC: the first byte chooses the message.
pub fn rpc(bytes: &[u8]) {
    let Some((kind, message)) = bytes.split_first() else { return };
    macro_rules! checks {
        ($($package:ident::{$($message:ident),+})+) => {
            &[$($(survives::<$package::$message>),+),+]
        };
    }
    let checks: &[fn(&[u8])] = checks![
        pb::{
            GetCredentialRequest,
            GetCredentialResponse,
            WatchCredentialRequest,
            WatchCredentialResponse,
            WatchCredentialsRequest,
            WatchCredentialsResponse,
            ReportRejectedRequest,
            ReportRejectedResponse,
            ListClustersRequest,
            ListClustersResponse,
            WatchClustersRequest,
            WatchClustersResponse
        }
        v1alpha1::{
            AttendCredentialRequest,
            AttendCredentialResponse,
            DepositOutputRequest,
            DepositOutputResponse,
            ListCredentialsRequest,
            ListCredentialsResponse,
            RefreshCredentialsRequest,
            RefreshCredentialsResponse,
            EvictCredentialsRequest,
            EvictCredentialsResponse,
            ListProvidersRequest,
            ListProvidersResponse,
            GetBrokerInfoRequest,
            GetBrokerInfoResponse
        }
    ];
    checks[usize::from(*kind) % checks.len()](message);
}

/// A message that is read can be shown, and is the same after it was written.
fn survives<M: Message + Default + Debug>(bytes: &[u8]) {
    let Ok(message) = M::decode(bytes) else { return };
    assert!(!format!("{message:?}").is_empty());
    let again = M::decode(message.encode_to_vec().as_slice()).expect("what was written can be read");
    assert_eq!(message.encode_to_vec(), again.encode_to_vec());
}

fn assert_short(error: &impl Display) {
    let text = error.to_string();
    assert!(text.len() <= LONGEST, "an error of {} bytes", text.len());
    assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
}

fn with_file(bytes: &[u8], check: impl FnOnce(PathBuf)) {
    let directory = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    check(path);
}
