//! The input of a plugin: `KUBERNETES_EXEC_INFO`.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{ApiVersion, Cluster};

/// Linux allows 32 pages for one environment variable, including the terminating NUL.
const LIMIT: usize = 128 << 10;

/// Why the cluster cannot be passed to a plugin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecInfoError {
    /// The extension is not JSON.
    #[error("the cluster's exec extension is not valid JSON (line {line}, column {column})")]
    Config {
        /// Where the error is.
        line: usize,
        /// Where the error is.
        column: usize,
    },
    /// Linux limits one environment variable to 128 KiB.
    #[error(
        "KUBERNETES_EXEC_INFO would have {size} bytes, of which the certificate authorities are {authorities}; the kernel allows {limit}"
    )]
    TooLarge {
        /// Bytes of the variable, name included.
        size: usize,
        /// Bytes of `certificate-authority-data` in it.
        authorities: usize,
        /// Bytes the kernel allows.
        limit: usize,
    },
}

/// The value of `KUBERNETES_EXEC_INFO`, in the shape client-go writes. `interactive`: the plugin has a terminal.
pub fn exec_info(
    version: ApiVersion,
    cluster: Option<&Cluster>,
    interactive: bool,
) -> Result<String, ExecInfoError> {
    // v1alpha1 has no cluster.
    let cluster = cluster.filter(|_| version != ApiVersion::V1Alpha1).map(WireCluster::of).transpose()?;
    let authorities = cluster.as_ref().map_or(0, |cluster| cluster.certificate_authority_data.len());
    let info =
        Info { kind: "ExecCredential", api_version: version.as_str(), spec: Spec { cluster, interactive } };
    let json = serde_json::to_string(&info).map_err(invalid)?;
    let value = format!("{}\n", escaped(&compact(&json)));
    let size = "KUBERNETES_EXEC_INFO=".len() + value.len() + 1;
    if size > LIMIT {
        return Err(ExecInfoError::TooLarge { size, authorities, limit: LIMIT });
    }
    Ok(value)
}

// The order of the fields, and the omission of empty ones, are those of client-go.

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info<'a> {
    kind: &'static str,
    api_version: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<WireCluster<'a>>,
    interactive: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct WireCluster<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tls_server_name: &'a str,
    #[serde(skip_serializing_if = "is_false")]
    insecure_skip_tls_verify: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    certificate_authority_data: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    proxy_url: &'a str,
    #[serde(skip_serializing_if = "is_false")]
    disable_compression: bool,
    config: Option<&'a RawValue>,
}

impl<'a> WireCluster<'a> {
    fn of(cluster: &'a Cluster) -> Result<Self, ExecInfoError> {
        let config = Some(&*cluster.config).filter(|config| !config.is_empty());
        Ok(Self {
            server: &cluster.server,
            tls_server_name: &cluster.tls_server_name,
            insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
            certificate_authority_data: BASE64_STANDARD.encode(&cluster.certificate_authority_data),
            proxy_url: &cluster.proxy_url,
            disable_compression: cluster.disable_compression,
            config: config.map(serde_json::from_slice).transpose().map_err(invalid)?,
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Keeps only the position: the message may quote the extension.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn invalid(error: serde_json::Error) -> ExecInfoError {
    ExecInfoError::Config { line: error.line(), column: error.column() }
}

/// Removes the white space between JSON tokens: the extension may have it, and a variable should be one line.
fn compact(json: &str) -> String {
    let (mut quoted, mut escape) = (false, false);
    json.chars()
        .filter(|&character| {
            let keep = quoted || !character.is_ascii_whitespace();
            match character {
                _ if escape => escape = false,
                '\\' => escape = true,
                '"' => quoted = !quoted,
                _ => {}
            }
            keep
        })
        .collect()
}

/// Escapes the characters that Go escapes in JSON. They only occur in strings.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn info(cluster: &Cluster) -> String {
        exec_info(ApiVersion::V1, Some(cluster), false).unwrap()
    }

    #[test]
    fn without_a_cluster_there_is_only_interactive() {
        assert_eq!(
            exec_info(ApiVersion::V1, None, false).unwrap(),
            "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"spec\":{\"interactive\":false}}\n"
        );
        let interactive = exec_info(ApiVersion::V1, None, true).unwrap();
        assert!(interactive.contains(r#""spec":{"interactive":true}"#), "{interactive}");
        let beta = exec_info(ApiVersion::V1Beta1, None, false).unwrap();
        assert!(beta.contains("\"client.authentication.k8s.io/v1beta1\""));
    }

    #[test]
    fn all_fields_are_written_in_the_order_of_client_go() {
        let cluster = Cluster {
            server: "https://a<b>&c\u{2028}".into(),
            tls_server_name: "name".into(),
            insecure_skip_tls_verify: true,
            certificate_authority_data: Bytes::from_static(b"\xff\x00PEM"),
            proxy_url: "http://proxy".into(),
            disable_compression: true,
            config: Bytes::from_static(
                b" {\"aud\" : \"a b\\\" <\",\n\t\"n\": [1.0, 12345678901234567890123]}\n",
            ),
        };
        let expected = concat!(
            r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"#,
            r#""server":"https://a\u003cb\u003e\u0026c\u2028","tls-server-name":"name","#,
            r#""insecure-skip-tls-verify":true,"certificate-authority-data":"/wBQRU0=","proxy-url":"http://proxy","#,
            r#""disable-compression":true,"config":{"aud":"a b\" \u003c","n":[1.0,12345678901234567890123]}},"#,
            "\"interactive\":false}}\n",
        );
        assert_eq!(info(&cluster), expected);
        let alpha = exec_info(ApiVersion::V1Alpha1, Some(&cluster), false).unwrap();
        assert!(alpha.ends_with("v1alpha1\",\"spec\":{\"interactive\":false}}\n"), "{alpha}");
    }

    #[test]
    fn an_empty_cluster_still_has_a_server_and_a_config() {
        assert!(info(&Cluster::default()).contains(r#""cluster":{"server":"","config":null},"interactive""#));
    }

    #[test]
    fn an_extension_that_is_not_json_is_refused_with_its_place() {
        for config in ["x", "{\"a\":1", "{} {}", "{\n  \"a\": ,}", "{\"a\":'CaNaRy'}", "\u{feff}{}"] {
            let cluster = Cluster { config: config.as_bytes().into(), ..Cluster::default() };
            let error = exec_info(ApiVersion::V1, Some(&cluster), false).unwrap_err();
            assert!(matches!(error, ExecInfoError::Config { line: 1..=2, .. }), "{config}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("CaNaRy"));
        }
        let cluster = Cluster { config: Bytes::from_static(b"\"\xff\""), ..Cluster::default() };
        assert!(exec_info(ApiVersion::V1, Some(&cluster), false).is_err());
    }

    #[test]
    fn the_kernel_s_limit_is_kept_to_the_byte() {
        let cluster = |bytes| Cluster { server: "x".repeat(bytes), ..Cluster::default() };
        let rest = "KUBERNETES_EXEC_INFO=".len() + info(&cluster(0)).len() + 1;
        assert_eq!(info(&cluster(131_072 - rest)).len(), 131_072 - 1 - 21);
        let error = exec_info(ApiVersion::V1, Some(&cluster(131_073 - rest)), false).unwrap_err();
        assert!(matches!(error, ExecInfoError::TooLarge { size: 131_073, authorities: 0, limit: 131_072 }));
        let authorities =
            Cluster { certificate_authority_data: vec![0; 99_000].into(), ..Cluster::default() };
        let error = exec_info(ApiVersion::V1, Some(&authorities), false).unwrap_err();
        assert!(matches!(error, ExecInfoError::TooLarge { authorities: 132_000, .. }), "{error:?}");
    }

    proptest! {
        #[test]
        fn with_any_strings_it_is_one_line_of_the_same_json(server: String, text: String, key: String) {
            let config = serde_json::json!({ key: text });
            let pretty = serde_json::to_vec_pretty(&config).unwrap();
            let info = info(&Cluster { server: server.clone(), config: pretty.into(), ..Cluster::default() });
            let forbidden = ['<', '>', '&', '\u{2028}', '\u{2029}'];
            prop_assert!(!info.trim_end().contains('\n') && !info.contains(forbidden));
            let read: serde_json::Value = serde_json::from_str(&info).unwrap();
            let cluster = &read["spec"]["cluster"];
            prop_assert_eq!(cluster["server"].as_str(), Some(&*server));
            prop_assert_eq!(&cluster["config"], &config);
        }
    }
}
