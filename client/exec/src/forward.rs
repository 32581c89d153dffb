//! Which of the caller's variables are sent to the broker.

use std::ffi::OsStr;

use credbroker_client::CredentialRef;
use credbroker_proto::{Globs, SESSION_VARIABLES, is_account_variable, is_identity_variable};

use crate::edges::Environment;

const MORE: &str = "CREDBROKER_CALLER_ENV";

/// A variable that must be sent cannot be. It is an error, because without the variable the plugin could use another
/// identity than the caller selected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the value of {name} is not valid UTF-8, so it cannot be sent to the broker; unset the variable, or change its value"
)]
pub struct ForwardError {
    /// Its name. Its value is not shown.
    pub name: String,
}

/// `reference` with the variables that match the identity list or a glob of `CREDBROKER_CALLER_ENV`, and those whose names look
/// like that of an account.
///
/// # Errors
///
/// A value is not UTF-8.
pub fn with_variables(
    mut reference: CredentialRef,
    environment: &Environment,
) -> Result<CredentialRef, ForwardError> {
    let refused = |name: &str| ForwardError { name: name.to_owned() };
    let more = match environment.get(MORE) {
        Some(globs) => {
            let globs = globs.to_str().ok_or_else(|| refused(MORE))?;
            Some(Globs::new(globs.split(',').map(str::trim)))
        }
        None => None,
    };
    let more = |name: &OsStr| Some(more.as_ref()?.matches(name.to_str()?));
    for (name, value) in environment.iter() {
        let bytes = name.as_encoded_bytes();
        let is_chosen = is_identity_variable(bytes) || more(name) == Some(true);
        if is_chosen || is_account_variable(bytes) {
            let Some(name) = name.to_str() else { continue };
            let value = value.to_str().ok_or_else(|| refused(name))?;
            reference =
                if is_chosen { reference.env(name, value) } else { reference.account_env(name, value) };
        }
    }
    Ok(reference)
}

/// The variables of the session of the user at the terminal. Without one that cannot be sent, a login may need another
/// way, but the identity is the same.
pub(crate) fn session(environment: &Environment) -> impl Iterator<Item = (String, String)> {
    SESSION_VARIABLES.into_iter().filter_map(|name| {
        let value = environment.get(name)?.to_str().filter(|value| !value.is_empty())?;
        Some((name.to_owned(), value.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt};

    use super::*;

    fn environment(pairs: &[(&str, &[u8])]) -> Environment {
        pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from_vec(value.to_vec()))).collect()
    }

    fn sent(pairs: &[(&str, &[u8])]) -> Result<CredentialRef, ForwardError> {
        with_variables(CredentialRef::provider("p"), &environment(pairs))
    }

    #[test]
    fn the_identity_list_the_callers_globs_and_accounts_are_sent_and_nothing_else() {
        let all = [
            ("AWS_PROFILE", &b"dev"[..]),
            ("KUBECONFIG", b"/k"),
            ("HOME", b"/home/me"),
            ("MY_TENANT", b"t"),
            ("YOUR_TENANT", b"u"),
            ("YOURS", b""),
            ("CREDBROKER_CALLER_ENV", b" MY_* ,,YOURS"),
            ("SECRET", b"\xff"),
        ];
        let expected = CredentialRef::provider("p").env("AWS_PROFILE", "dev").env("MY_TENANT", "t");
        assert_eq!(sent(&all), Ok(expected.env("YOURS", "").account_env("YOUR_TENANT", "u")));
    }

    /// With which a login or a plugin chooses its account, by hand or in the documentation of a tool.
    #[test]
    fn no_name_of_an_account_is_dropped() {
        let names = "AWS_PROFILE AWS_DEFAULT_PROFILE AWS_ROLE_ARN AWS_REGION AWS_ACCESS_KEY_ID AWS_CONFIG_FILE
            AWS_SHARED_CREDENTIALS_FILE AWS_VAULT CLOUDSDK_ACTIVE_CONFIG_NAME CLOUDSDK_CONFIG CLOUDSDK_CORE_ACCOUNT
            GOOGLE_APPLICATION_CREDENTIALS AZURE_CONFIG_DIR AZURE_TENANT_ID AZURE_CLIENT_ID ARM_SUBSCRIPTION_ID
            AAD_LOGIN_METHOD OS_CLOUD OCI_CLI_PROFILE DIGITALOCEAN_CONTEXT IBMCLOUD_ACCOUNT_ID ALIBABA_CLOUD_PROFILE
            TELEPORT_HOME TSH_USER VAULT_ADDR KUBELOGIN_CACHE OIDC_ISSUER_URL TANZU_CONTEXT PINNIPED_USERNAME
            DEFAULT_ROLE KRB5CCNAME SCW_PROFILE YC_PROFILE SAML2AWS_PROFILE AWSU_PROFILE ALICLOUD_PROFILE
            LEAPP_PROFILE NEBIUS_PROFILE EXOSCALE_ACCOUNT HCLOUD_CONTEXT";
        for name in names.split_whitespace() {
            assert_ne!(sent(&[(name, b"x")]), sent(&[]), "{name}");
        }
    }

    #[test]
    fn a_session_has_the_known_variables_that_can_be_sent() {
        let all = environment(&[
            ("DISPLAY", b":1"),
            ("BROWSER", b""),
            ("XAUTHORITY", b"\xff"),
            ("TERM", b"xterm"),
            ("HOME", b"/home/me"),
        ]);
        let sent: Vec<_> = session(&all).collect();
        assert_eq!(
            sent,
            [("DISPLAY", ":1"), ("TERM", "xterm")].map(|(name, value)| (name.into(), value.into()))
        );
    }

    #[test]
    fn an_identity_that_cannot_be_sent_is_an_error_that_names_it() {
        let error = sent(&[("AWS_PROFILE", b"c4n4ry\xff")]).unwrap_err();
        assert!(error.to_string().contains("AWS_PROFILE") && !error.to_string().contains("c4n4ry"));
        assert!(sent(&[(MORE, b"\xff")]).is_err() && sent(&[("SCW_PROFILE", b"\xff")]).is_err());
    }
}
