use super::*;

#[test]
fn a_star_matches_any_text() {
    let table = [
        ("AWS_*", "AWS_PROFILE", true),
        ("AWS_*", "AWS_", true),
        ("AWS_*", "AWS", false),
        ("AWS_*", "XAWS_PROFILE", false),
        ("*", "", true),
        ("*", "ANYTHING", true),
        ("**", "ANYTHING", true),
        ("", "", true),
        ("", "A", false),
        ("AWS_PROFILE", "AWS_PROFILE", true),
        ("AWS_PROFILE", "AWS_PROFILE2", false),
        ("AWS_PROFILE", "aws_profile", false),
        ("*_TOKEN", "GITHUB_TOKEN", true),
        ("*_TOKEN", "GITHUB_TOKEN_", false),
        ("A*B*C", "A-B-C", true),
        ("A*B*C", "ABC", true),
        ("A*B*C", "ACB", false),
        ("A*A", "A", false), // no character counts twice
        ("A?", "AB", false),
        ("A?", "A?", true),
    ];
    for (pattern, name, expected) in table {
        assert_eq!(Globs::new([pattern]).matches(name), expected, "{pattern} on {name}");
    }
}

#[test]
fn no_pattern_matches_nothing() {
    assert!(!Globs::default().matches("HOME"));
    assert!(!Globs::default().matches(""));
}

#[test]
fn identity_variables_are_found_as_their_patterns_say() {
    let patterns = Globs::new(IDENTITY_VARIABLES);
    let stems = IDENTITY_VARIABLES.map(|pattern| pattern.trim_end_matches('*').to_owned());
    assert!(IDENTITY_VARIABLES.iter().zip(&stems).all(|(pattern, stem)| pattern.len() - stem.len() <= 1));
    for stem in stems.iter().map(String::as_str).chain(["", "HOME", "A", "O"]) {
        for name in
            [stem.to_owned(), format!("{stem}X"), format!("X{stem}"), stem.to_lowercase(), format!("{stem}*")]
        {
            assert_eq!(is_identity_variable(name.as_bytes()), patterns.matches(&name), "{name}");
        }
        assert!(stem.len() < 2 || !is_identity_variable(&stem.as_bytes()[..stem.len() - 1]), "{stem}");
    }
}

#[test]
fn a_word_between_underscores_says_that_a_variable_selects_an_account() {
    let table = [
        // What plugins read.
        (
            true,
            "SCW_PROFILE YC_PROFILE SAML2AWS_PROFILE AWSU_PROFILE ALICLOUD_PROFILE LEAPP_PROFILE NEBIUS_PROFILE
             EXOSCALE_ACCOUNT HCLOUD_CONTEXT X_ACCOUNT_ID CIVO_REGION ACME_TENANT_ID MY_PROJECT_NAME
             FLY_SUBSCRIPTION PROFILE PROJECT ACCOUNT_ PROFILE_PASSED KEYRING_PROFILE PORTAL_ACCOUNT",
        ),
        // No such word, or a value that may be secret.
        (
            false,
            "GRANTED_SSO CIVO_TOKEN LINODE_CLI_TOKEN RANCHER_TOKEN KUBECACHEDIR XDG_CONFIG_HOME SSL_CERT_FILE
             HTTPS_PROXY HOME MY_VAR MYPROFILE PROFILES scw_profile SERVICE_ACCOUNT_KEY PROFILE_TOKEN
             ACCOUNT_SECRET PROJECT_PASS TENANT_PASSWORD ACCOUNT_CREDENTIAL ACCOUNT_CREDENTIALS PROJECT_JSON
             ACCOUNT_KEYS TENANT_APIKEY PROJECT_TOKENS TENANT_SECRETS ACCOUNT_PASSWD PROJECT_PASSPHRASE ACCOUNT_JWT",
        ),
        // A job of GitLab or GitHub, Docker, Nix.
        (false, "CI_PROJECT_PATH CI_PROJECT_ID CI_REGISTRY GITHUB_ACCOUNT DOCKER_CONTEXT NIX_PROFILES NIX_PROFILE"),
        // A container beside the Services `account` and `project-api`.
        (
            false,
            "ACCOUNT_SERVICE_HOST ACCOUNT_SERVICE_PORT ACCOUNT_SERVICE_PORT_HTTP ACCOUNT_PORT ACCOUNT_PORT_80_TCP
             ACCOUNT_PORT_80_TCP_ADDR ACCOUNT_PORT_80_TCP_PORT ACCOUNT_PORT_80_TCP_PROTO
             PROJECT_API_SERVICE_HOST PROJECT_API_SERVICE_PORT PROJECT_API_PORT PROJECT_API_PORT_80_TCP",
        ),
        // Terminals.
        (
            false,
            "ITERM_PROFILE KONSOLE_PROFILE_NAME GNOME_TERMINAL_SCREEN TILIX_PROFILE TERMINATOR_PROFILE
             PTYXIS_PROFILE WT_PROFILE_ID VSCODE_PROFILE",
        ),
        (false, "\x1b[31m_PROFILE A=B_PROFILE"),
    ];
    for (expected, names) in table {
        for name in names.split_whitespace() {
            assert_eq!(is_account_variable(name.as_bytes()), expected, "{name}");
        }
    }
    assert!(!is_account_variable(b"") && !is_account_variable("caf\u{e9}_PROFILE".as_bytes()));
}
