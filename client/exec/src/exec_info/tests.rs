use super::*;

fn parsed(text: &str) -> Result<ExecInfo, ExecInfoError> {
    parse(text)
}

#[test]
fn every_field_that_client_go_writes_is_read() {
    let text = concat!(
        r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{"cluster":{"#,
        r#""server":"https://a\u003cb","tls-server-name":"n","insecure-skip-tls-verify":true,"#,
        r#""certificate-authority-data":"Q0E=","proxy-url":"http://p","disable-compression":true,"#,
        r#""config":{ "x": 1.0, "y":"\u003c" },"extensions":[1]},"interactive":false}}"#,
        "\n"
    );
    let mut expected = Cluster::at("https://a<b");
    expected.tls_server_name = Some("n".into());
    expected.insecure_skip_tls_verify = true;
    expected.certificate_authority_data = Some("CA".into());
    expected.proxy_url = Some("http://p".into());
    expected.disable_compression = true;
    expected.config = Some(r#"{ "x": 1.0, "y":"\u003c" }"#.into());
    assert_eq!(
        parsed(text),
        Ok(ExecInfo { version: ApiVersion::V1Beta1, cluster: Some(expected), interactive: false })
    );
}

#[test]
fn a_missing_or_null_cluster_or_config_is_none() {
    let version = r#""apiVersion":"client.authentication.k8s.io/v1""#;
    for spec in ["", r#","spec":null"#, r#","spec":{}"#, r#","spec":{"cluster":null}"#] {
        let info = parsed(&format!("{{{version}{spec}}}"));
        assert_eq!(
            info,
            Ok(ExecInfo { version: ApiVersion::V1, cluster: None, interactive: false }),
            "{spec}"
        );
    }
    let empty = parsed(&format!(r#"{{{version},"spec":{{"cluster":{{"config":null,"server":null}}}}}}"#));
    assert_eq!(empty.unwrap().cluster, Some(Cluster::default()));
}

#[test]
fn other_values_are_refused_and_not_shown() {
    let version = r#""apiVersion":"client.authentication.k8s.io/v1""#;
    for (text, needle) in [
        ("c4n4ry".to_owned(), "is not a JSON ExecCredential (line 1, column 1)"),
        (r#"["c4n4ry"]"#.to_owned(), "is not a JSON ExecCredential"),
        ("{\"c4n4ry\":\n".to_owned(), "(line 1, column 10)"),
        (format!(r#"{{{version},"spec":{{"cluster":"c4n4ry"}}}}"#), "is not a JSON ExecCredential"),
        (format!("{{{version}}} c4n4ry"), "is not a JSON ExecCredential"),
        (format!(r#"{{{version},"kind":"c4n4ry"}}"#), "kind ExecCredential"),
        (r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1"}"#.to_owned(), "v1alpha1"),
        ("{}".to_owned(), r#"apiVersion """#),
        (
            format!(r#"{{{version},"spec":{{"cluster":{{"certificate-authority-data":"c4n4ry!"}}}}}}"#),
            "not base64",
        ),
    ] {
        let message = parsed(&text).unwrap_err().to_string();
        assert!(message.contains("KUBERNETES_EXEC_INFO") && message.contains(needle), "{text}: {message}");
        assert!(!message.contains("c4n4ry"), "{message}");
    }
}
