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
        config: Bytes::from_static(b" {\"aud\" : \"a b\\\" <\",\n\t\"n\": [1.0, 12345678901234567890123]}\n"),
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
        assert!(matches!(error, ExecInfoError::Config(1..=2, _)), "{config}: {error:?}");
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
    assert!(matches!(error, ExecInfoError::TooLarge(131_073, 0)));
    let authorities = Cluster { certificate_authority_data: vec![0; 99_000].into(), ..Cluster::default() };
    let error = exec_info(ApiVersion::V1, Some(&authorities), false).unwrap_err();
    assert!(matches!(error, ExecInfoError::TooLarge(_, 132_000)), "{error:?}");
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
