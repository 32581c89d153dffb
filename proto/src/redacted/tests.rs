use super::*;
use crate::{
    v1::ProviderRef,
    v1alpha1::{AttendCredentialResponse, attend_credential_response::Event},
};

#[test]
fn no_message_shows_a_secret() {
    let canary = "c4n4ry";
    let credential = Credential {
        token: Some(canary.into()),
        client_certificate_data: Some(canary.into()),
        client_key_data: Some(canary.into()),
        ..Credential::default()
    };
    let reference = CredentialRef {
        source: Some(Source::Provider(ProviderRef { name: "gke".into(), definition: None })),
        cluster: Some(Cluster {
            proxy_url: Some(canary.into()),
            config: Some(canary.into()),
            certificate_authority_data: Some(canary.into()),
            ..Cluster::default()
        }),
        env: [("AWS_PROFILE".to_owned(), canary.to_owned())].into(),
        account_env: [("SCW_PROFILE".to_owned(), canary.to_owned())].into(),
    };
    let account = AccountVariable { name: "OS_CLOUD".into(), value: canary.into() };
    let lease = Lease { id: 7, command: vec![canary.into()], environment: vec![canary.into()] };
    let attended = [Event::Output(Output { stderr_lines: vec![canary.into()] }), Event::Lease(lease)]
        .map(|event| AttendCredentialResponse { event: Some(event) });
    let deposit = DepositOutputRequest { lease_id: 7, stdout: canary.into(), exit_code: 0 };
    let session: std::collections::BTreeMap<_, _> = [("DISPLAY".to_owned(), canary.to_owned())].into();
    let get = GetCredentialRequest { session: session.clone(), ..GetCredentialRequest::default() };
    let attend = AttendCredentialRequest { session, ..AttendCredentialRequest::default() };
    let text = format!(
        "{get:?} {attend:?} {deposit:?} {credential:?} {reference:?} {attended:?} {credential:#?} {reference:#?} {account:?}"
    );
    assert!(!text.contains(canary), "{text}");
    assert!(
        text.contains("gke")
            && text.contains("AWS_PROFILE")
            && text.contains("SCW_PROFILE")
            && text.contains("[redacted, 6 bytes]")
    );
}
