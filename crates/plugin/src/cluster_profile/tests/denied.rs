//! Variables that a profile can never set.

use super::{
    policies::{env_under, refused_under},
    *,
};

const DENIED: [&str; 134] = [
    "PATH",
    "Path",
    "path",
    "HOME",
    "home",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_CACHE_HOME",
    "KUBECONFIG",
    "kubeconfig",
    "KUBERNETES_EXEC_INFO",
    "KUBERNETES_SERVICE_HOST",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "Https_Proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
    "FTP_PROXY",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "ld_preload",
    "DYLD_INSERT_LIBRARIES",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "OPENSSL_CONF",
    "SSLKEYLOGFILE",
    "CURL_CA_BUNDLE",
    "CURL_HOME",
    "REQUESTS_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GODEBUG",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "BASH_ENV",
    "BASH_FUNC_x%%",
    "BASHOPTS",
    "SHELLOPTS",
    "ENV",
    "IFS",
    "PS4",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NPM_CONFIG_PREFIX",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYOPT",
    "RUBYLIB",
    "GEM_PATH",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "DOTNET_STARTUP_HOOKS",
    "CORECLR_PROFILER_PATH",
    "RUST_LOG",
    "LISTEN_FDS",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "CREDENTIALS_DIRECTORY",
    "CREDBROKER_SOCKET",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "CLOUDSDK_PYTHON",
    "CLOUDSDK_PYTHON_ARGS",
    "BROWSER",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_STS",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AZURE_AUTHORITY_HOST",
    "AZURE_CONFIG_DIR",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AAD_AUTHORITY_HOST",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
    "GCE_METADATA_HOST",
    "CLOUDSDK_CONFIG",
    "CLOUDSDK_PROXY_ADDRESS",
    "CLOUDSDK_AUTH_TOKEN_HOST",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "VAULT_ADDR",
    "VAULT_AGENT_ADDR",
    "VAULT_CACERT",
    "VAULT_SKIP_VERIFY",
    "VAULT_TLS_SERVER_NAME",
    "SPIFFE_ENDPOINT_SOCKET",
    "KRB5_CONFIG",
    "KUBERC",
    "KUBECTL_KUBERC",
    "KUBECACHEDIR",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
    "GOOGLE_CREDENTIALS",
    "AZURE_EXTENSION_DIR",
    "AZURE_FEDERATED_TOKEN_FILE",
    "VAULT_CONFIG_PATH",
    "GIT_SSH_COMMAND",
    "git_ssh_command",
    "GIT_CONFIG_COUNT",
    "AWS_DATA_PATH",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "GNUPGHOME",
    "PAGER",
    "AWS_PAGER",
    "EDITOR",
    "KUBE_EDITOR",
    "VISUAL",
    "SSH_ASKPASS",
    "KUBELOGIN_BROWSER",
    "LESSOPEN",
    "PROMPT_COMMAND",
    "KRB5CCNAME",
    "TELEPORT_TOOLS_VERSION",
    "COMPLUS_Version",
];

#[test]
fn no_policy_lets_a_profile_choose_code_settings_or_trust() {
    for name in DENIED {
        for policy in [EnvPolicy::Replace, EnvPolicy::AppendIfNotExists] {
            let error = refused_under(policy, &json!({"A": "1", name: "canary"}));
            let expected = format!(
                "access provider `p`: cluster.extensions[0].extension sets `{name}`, which a ClusterProfile may not set under any policy; set it in the provider's `env`"
            );
            assert_eq!(error, expected);
        }
    }
    for name in [
        "TENANT",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_ROLE_ARN",
        "AZURE_CLIENT_ID",
        "AZURE_TENANT_ID",
        "VAULT_NAMESPACE",
        "CLOUDSDK_CORE_PROJECT",
        "MY_PATH",
        "LDAP_URL",
        "ENVIRONMENT",
        "PROXY",
        "USERS",
    ] {
        assert!(
            env_under(EnvPolicy::Replace, &json!({name: "1"})).contains(&(name.to_owned(), "1".to_owned())),
            "{name}"
        );
    }
}

#[test]
fn a_profile_sets_only_what_the_provider_names() {
    let naming = |names: &[&str]| {
        let sourced = ProfileSourced { args: false, env: EnvPolicy::Replace };
        let command = Command::Name("plugin".into());
        let profile_env = Globs::new(names);
        [Arc::new(Provider { profile_sourced: Some(sourced), profile_env, ..provider("p", command) })]
    };
    let profile = extended(&[(ENVS, &json!({"CLUSTER_NAME": "paris", "AWS_REGION": "eu"}))]);
    let set = pairs(&[("AWS_REGION", "eu"), ("CLUSTER_NAME", "paris")]);
    for names in [&["CLUSTER_NAME", "AWS_REGION"][..], &["CLUSTER_*", "AWS_REGION"], &["*"]] {
        assert_eq!(resolved(&profile, &naming(names)).provider.env, set, "{names:?}");
    }
    for names in [&[][..], &["CLUSTER_NAME"], &["cluster_name", "AWS_REGION"], &["AWS_*"]] {
        let error = refused(&profile, &naming(names));
        assert!(error.contains("which provider `p` does not allow"), "{names:?}: {error}");
    }
    let evil = extended(&[(ENVS, &json!({"LD_PRELOAD": "x"}))]);
    assert!(refused(&evil, &naming(&["LD_PRELOAD"])).contains("under any policy"), "also if it is named");
}

#[test]
fn a_denied_name_is_refused_also_where_the_provider_sets_it() {
    let own = Provider {
        env: pairs(&[("HTTPS_PROXY", "http://own")]),
        profile_sourced: Some(ProfileSourced { args: false, env: EnvPolicy::AppendIfNotExists }),
        ..provider("p", Command::Name("plugin".into()))
    };
    let own = [Arc::new(own)];
    assert!(
        refused(&extended(&[(ENVS, &json!({"HTTPS_PROXY": "http://other"}))]), &own).contains("may not set")
    );
    assert_eq!(
        resolved(&extended(&[(ENVS, &json!({}))]), &own).provider.env,
        pairs(&[("HTTPS_PROXY", "http://own")])
    );
}

/// As cluster-inventory-api's own example has it.
#[test]
fn a_profile_may_select_one_of_microsofts_clouds_and_no_other_authority() {
    for name in ["AZURE_AUTHORITY_HOST", "AAD_AUTHORITY_HOST"] {
        for host in ["https://login.microsoftonline.com/", "https://login.microsoftonline.us"] {
            let env = env_under(EnvPolicy::Replace, &json!({name: host}));
            assert!(env.iter().any(|(set, value)| set == name && value == host), "{env:?}");
        }
        for host in ["https://evil.example", "https://login.microsoftonline.com.evil.example", ""] {
            refused_under(EnvPolicy::Replace, &json!({name: host}));
        }
    }
}
