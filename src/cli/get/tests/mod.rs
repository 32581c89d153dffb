mod cluster;

use std::time::UNIX_EPOCH;

use clap::Parser;
use credbroker_proto::v1;
use prost_types::Timestamp;

use super::*;
use crate::cli::console::tests::console;

const NOW: u64 = 1_800_000_000;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: GetArgs,
}

fn args(line: &[&str]) -> GetArgs {
    Line::try_parse_from([&["get"], line].concat()).unwrap().args
}

fn credential() -> v1::Credential {
    let seconds = i64::try_from(NOW).unwrap() + 3000;
    v1::Credential {
        generation: "3f2a-7".into(),
        token: Some("s3cret".into()),
        expiration_time: Some(Timestamp { seconds, nanos: 7 }),
        ..v1::Credential::default()
    }
}

fn printed(output: CredentialFormat, credential: v1::Credential) -> Result<String, (String, u8)> {
    let gke = Source::Provider { name: "gke".into(), definition: None };
    rendered(output, &gke, &credential.try_into().unwrap(), UNIX_EPOCH + Duration::from_secs(NOW))
}

#[test]
fn the_table_describes_the_credential_without_the_secret() {
    let expected = "\
PROVIDER  KIND   EXPIRES                        GENERATION
gke       token  2027-01-15T08:50:00Z (in 50m)  3f2a-7
";
    assert_eq!(printed(CredentialFormat::Table, credential()).unwrap(), expected);

    let pem = |text: &str| Some(text.as_bytes().to_vec());
    let both =
        v1::Credential { client_certificate_data: pem("c"), client_key_data: pem("s3cret"), ..credential() };
    let text = printed(CredentialFormat::Table, both.clone()).unwrap();
    assert!(text.contains("token and certificate") && !text.contains("s3cret"), "{text}");
    let pair = v1::Credential { token: None, expiration_time: None, ..both };
    let text = printed(CredentialFormat::Table, pair).unwrap();
    assert!(text.contains("certificate  unknown  3f2a-7"), "{text}");
}

#[test]
fn json_is_the_document_of_the_shim_and_token_is_the_bare_token() {
    let json = printed(CredentialFormat::Json, credential()).unwrap();
    assert!(json.starts_with(r#"{"kind":"ExecCredential""#) && json.contains("s3cret"), "{json}");
    assert_eq!(printed(CredentialFormat::Token, credential()).unwrap(), "s3cret\n");
}

#[test]
fn json_has_no_character_that_a_terminal_obeys_or_hides() {
    let pem = |text: &str| Some(text.as_bytes().to_vec());
    let pair = v1::Credential {
        client_certificate_data: pem("subject=\u{202e}\u{9b}"),
        client_key_data: pem("k"),
        ..v1::Credential::default()
    };
    let json = printed(CredentialFormat::Json, pair).unwrap();
    assert!(json.contains(r"subject=\u202e\u009b"), "{json}");
}

#[test]
fn a_certificate_is_not_a_token() {
    let pem = |text: &str| Some(text.as_bytes().to_vec());
    let pair = v1::Credential {
        client_certificate_data: pem("c"),
        client_key_data: pem("k"),
        ..v1::Credential::default()
    };
    let (line, code) = printed(CredentialFormat::Token, pair).unwrap_err();
    assert!(line.contains("provider gke") && line.contains("-o json"), "{line}");
    assert_eq!(code, 1);
}

fn run_with(args: &GetArgs, environment: &[(&str, &str)]) -> (u8, String, String) {
    let pairs = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let environment = Environment(pairs.collect());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args, &mut console(&environment, &mut out, &mut err)).unwrap();
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn a_command_without_a_provider_is_a_usage_error() {
    let (environment, mut out, mut err) = (Environment::default(), Vec::new(), Vec::new());
    let error = run(&args(&[]), &mut console(&environment, &mut out, &mut err)).unwrap_err();
    assert!(error.to_string().contains("no credential is named"), "{error}");
    assert_eq!((crate::cli::console::fail(&error, &mut err), out.as_slice()), (2, &b""[..]));
}

#[test]
fn a_cluster_profile_takes_precedence_over_the_variable_for_the_provider() {
    let args = args(&["--cluster-profile", "fleet/paris", "--socket", "/nonexistent", "--timeout", "1s"]);
    let (_, _, err) = run_with(&args, &[("CREDBROKER_PROVIDER", "gke")]);
    assert!(err.starts_with("credbroker get: ClusterProfile fleet/paris: no broker answers"), "{err}");
    for odd in ["paris", "/paris", "fleet/", "a/b/c"] {
        assert!(Line::try_parse_from(["get", "--cluster-profile", odd]).is_err(), "{odd}");
    }
    assert!(Line::try_parse_from(["get", "--cluster-profile", "a/b", "p"]).is_err());
    let source = Source::ClusterProfile("fleet/paris".parse().unwrap());
    let text = summary(&source, &credential().try_into().unwrap(), UNIX_EPOCH + Duration::from_secs(NOW));
    assert!(text.starts_with("CLUSTER      KIND ") && text.contains("\nfleet/paris  token"), "{text}");
}

#[test]
fn without_a_broker_the_exit_code_is_that_of_the_shim() {
    let directory = credbroker_test_support::private_directory();
    let socket = directory.path().join("none.sock");
    let environment = [("CREDBROKER_PROVIDER", "gke"), ("CREDBROKER_SOCKET", socket.to_str().unwrap())];
    let (code, out, err) = run_with(&args(&["-o", "token"]), &environment);
    assert_eq!((code, out.as_str()), (69, ""));
    assert!(err.starts_with("credbroker get: provider gke: no broker answers on"), "{err}");
    assert_eq!(err.matches('\n').count(), 1, "{err}");
}
