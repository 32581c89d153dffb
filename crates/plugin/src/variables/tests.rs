use credbroker_proto::IDENTITY_VARIABLES;

use super::*;

#[track_caller]
fn assert_effects(expected: Effect, names: &str) {
    for name in names.split_whitespace() {
        assert_eq!(effect(name), expected, "{name}");
    }
}

#[test]
fn what_chooses_code_is_a_program() {
    assert_effects(
        Effect::Program,
        "CLOUDSDK_PYTHON CLOUDSDK_PYTHON_SITEPACKAGES GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES
         AZURE_EXTENSION_DIR AZURE_EXTENSION_INDEX_URL AWS_PAGER AWS_DATA_PATH KUBELOGIN_BROWSER
         TSH_EDITOR TELEPORT_TOOLS_VERSION VAULT_TOKEN_HELPER OIDC_TOKEN_COMMAND PATH LD_PRELOAD
         PYTHONPATH NODE_OPTIONS BROWSER GIT_SSH_COMMAND MY_LOGIN_CMD aws_pager",
    );
}

#[test]
fn files_and_services_are_places() {
    assert_effects(
        Effect::Place,
        "AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_CA_BUNDLE AWS_ENDPOINT_URL
         AWS_ENDPOINT_URL_STS AWS_WEB_IDENTITY_TOKEN_FILE AWS_CONTAINER_CREDENTIALS_FULL_URI
         AWS_CONTAINER_AUTHORIZATION_TOKEN AWS_EC2_METADATA_SERVICE_ENDPOINT AZURE_CONFIG_DIR
         AZURE_AUTHORITY_HOST AZURE_FEDERATED_TOKEN_FILE AZURE_CLIENT_CERTIFICATE_PATH
         AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE ARM_METADATA_HOST CLOUDSDK_CONFIG
         CLOUDSDK_PROXY_ADDRESS CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE
         CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE
         GOOGLE_APPLICATION_CREDENTIALS GOOGLE_GHA_CREDS_PATH VAULT_ADDR VAULT_AGENT_ADDR
         VAULT_CACERT VAULT_CAPATH VAULT_CONFIG_PATH VAULT_SKIP_VERIFY OIDC_ISSUER_URL
         TELEPORT_HOME TELEPORT_PROXY TELEPORT_CONFIG_FILE OCI_CLI_CONFIG_FILE OS_AUTH_URL
         OS_CACERT OS_CLIENT_CONFIG_FILE IBMCLOUD_HOME ALIBABA_CLOUD_CREDENTIALS_URI KRB5CCNAME
         KUBECONFIG HOME https_proxy",
    );
}

#[test]
fn names_and_values_are_neither() {
    assert_effects(Effect::Identity, IDENTITIES);
    assert_effects(Effect::Value, "AWS_REGION AWS_ACCESS_KEY_ID AZURE_CLIENT_SECRET SCW_REGION");
    for name in VALUES.split_whitespace() {
        assert_eq!(effect(&name.replace('*', "X")), Effect::Value, "{name}");
    }
    assert_effects(Effect::Identity, "SCW_PROFILE ACME_TENANT ACME_TENANT_ID DEFAULT_ROLE PINNIPED_USERNAME");
    assert_effects(Effect::Unknown, "AWS_SOMETHING_NEW TENANT WHO");
    assert_eq!(effect(""), Effect::Unknown);
}

/// Users of a kubeconfig take these from the caller, so that the broker's own identity never replaces the caller's.
#[test]
fn what_selects_an_identity_is_sent_by_the_shim() {
    let sent = Globs::new(IDENTITY_VARIABLES);
    for name in IDENTITIES.split_whitespace() {
        assert!(sent.matches(name), "{name}");
    }
}

#[test]
fn the_first_row_that_matches_decides() {
    let rows = TABLE.map(|(effect, row)| (effect, Globs::new(row.split_whitespace())));
    for name in TABLE.iter().flat_map(|(_, row)| row.split_whitespace()) {
        let name = name.replace('*', "X");
        let expected = rows.iter().find(|(_, row)| row.matches(&name)).map(|(effect, _)| *effect);
        assert_eq!(Some(effect(&name)), expected, "{name}");
    }
}
