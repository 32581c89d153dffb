//! The endpoint of a cluster.

use super::*;
use credbroker_credential::Cluster;

fn endpoint(profile: &ClusterProfile) -> Cluster {
    Cluster::clone(&resolved(profile, &configured(&["p"])).endpoint)
}

fn servers(servers: &[&str], rules: EndpointRules) -> String {
    let outcome =
        |server: &&str| match resolve(&with_cluster(&json!({"server": server})), &configured(&["p"]), rules)
            .outcome
        {
            Ok(target) => {
                assert_eq!(target.endpoint.server, *server, "unchanged");
                "usable".to_owned()
            }
            Err(error) => error.to_string().replace("access provider `p`: cluster.", ""),
        };
    servers.iter().map(outcome).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_field_is_carried() {
    let cluster = endpoint(&with_cluster(&json!({
        "server": "https://paris.example:6443/prefix",
        "tls-server-name": "paris",
        "insecure-skip-tls-verify": true,
        "certificate-authority-data": "Q0E=",
        "proxy-url": "socks5://proxy:1080",
        "disable-compression": true,
        "extensions": [{"name": CONFIG, "extension": {"audience": "paris"}}],
        "unknown": {"is": "others' business"},
    })));
    let expected = Cluster {
        server: "https://paris.example:6443/prefix".into(),
        tls_server_name: "paris".into(),
        insecure_skip_tls_verify: true,
        certificate_authority_data: "CA".into(),
        proxy_url: "socks5://proxy:1080".into(),
        disable_compression: true,
        config: r#"{"audience":"paris"}"#.into(),
    };
    assert_eq!(cluster, expected);
}

#[test]
fn what_is_null_is_absent() {
    let nulls = json!({
        "tls-server-name": null, "insecure-skip-tls-verify": null, "certificate-authority": null,
        "certificate-authority-data": null, "proxy-url": null, "disable-compression": null, "extensions": null,
    });
    let only_server = Cluster { server: "https://paris".into(), ..Cluster::default() };
    assert_eq!(endpoint(&with_fields(&nulls)), only_server);
}

#[test]
fn a_cluster_that_names_no_place_is_refused() {
    let clusters = [
        Value::Null,
        json!({}),
        json!({"server": null}),
        json!({"server": ""}),
        json!("https://x"),
        json!([]),
    ];
    insta::assert_snapshot!(refusals(clusters.iter().map(with_cluster), &configured(&["p"])), @r"
    access provider `p`: cluster.server is empty
    access provider `p`: cluster.server is empty
    access provider `p`: cluster.server is empty
    access provider `p`: cluster.server is empty
    access provider `p`: cluster must be a map
    access provider `p`: cluster must be a map
    ");
}

#[test]
fn a_server_is_a_url_with_tls() {
    let usable = [
        "https://paris",
        "https://paris:6443",
        "https://paris:6443/",
        "https://10.0.0.1:6443/k8s/clusters/c-1",
        "https://[2001:db8::1]",
        "https://[::1]:6443/x",
        "HTTPS://Paris",
        "https://xn--prs-5la.example",
    ];
    let all = servers(&usable, EndpointRules::default());
    assert!(all.lines().all(|line| line == "usable"), "{all}");
    let unusable = [
        "paris",
        "paris:6443",
        "//paris",
        "/paris",
        "https:",
        "https://",
        "https:///path",
        "https://:6443",
        "ftp://paris",
        "unix:///run/x",
        "file:///etc/passwd",
        "https://user@paris",
        "https://user:canary@paris",
        "https://@paris",
        "https://paris?query",
        "https://paris/?a=b",
        "https://paris/#fragment",
        "https://paris#fragment",
        "https://paris ",
        " https://paris",
        "https://pa ris",
        "https://paris\n",
        "https://paris/\u{9b}2J",
        "https://paris/\u{202e}",
        "https://par\u{ed}s",
        "https://paris:port",
        "https://paris:65536",
        "https://paris:",
        "https://paris:-1",
        "https://::1",
        "https://[::1",
        "https://2001:db8::1:6443",
        r"https://paris\@elsewhere",
        "https://paris,https://elsewhere",
    ];
    for server in unusable {
        let refusal = servers(&[server], EndpointRules { allow_http: true });
        let expected =
            "server must be a URL like `https://host:6443`, without a user, a query, a fragment or blanks";
        assert_eq!(refusal, expected, "{server:?}");
    }
}

#[test]
fn a_server_without_tls_is_refused_unless_a_rule_allows_it() {
    let clear = ["http://paris:8080", "http://[::1]:8080/x", "HTTP://paris"];
    insta::assert_snapshot!(servers(&clear[..1], EndpointRules::default()), @"server is http://, which would send the credential without TLS; to allow this, set `clusterProfiles.allowHttp: true`");
    assert_eq!(servers(&clear, EndpointRules::default()).matches("without TLS").count(), 3);
    assert_eq!(servers(&clear, EndpointRules { allow_http: true }), "usable\nusable\nusable");
    assert!(
        !servers(&["http://user@paris", "http://paris?x"], EndpointRules { allow_http: true })
            .contains("usable")
    );
}

#[test]
fn a_path_to_authorities_is_refused_also_beside_data() {
    for data in [Value::Null, json!("Q0E=")] {
        let fields = json!({"certificate-authority": "/etc/passwd", "certificate-authority-data": data});
        insta::allow_duplicates! {
            insta::assert_snapshot!(refused(&with_fields(&fields), &configured(&["p"])), @"access provider `p`: cluster.certificate-authority is a path, but a ClusterProfile cannot refer to files; set `certificate-authority-data` instead");
        }
    }
    assert_eq!(endpoint(&with_fields(&json!({"certificate-authority": ""}))).server, "https://paris");
}

#[test]
fn authorities_are_base64_with_or_without_line_breaks_as_go_reads_it() {
    for data in ["Q0E=", "Q0\nE=\n", "Q0\r\nE=\r\n"] {
        let cluster = endpoint(&with_fields(&json!({"certificate-authority-data": data})));
        assert_eq!(cluster.certificate_authority_data, "CA", "{data:?}");
    }
    for data in ["canary", "-----BEGIN CERTIFICATE-----", "Q0E", "Q0E==", "Q0_="] {
        let error = refused(&with_fields(&json!({"certificate-authority-data": data})), &configured(&["p"]));
        assert_eq!(error, "access provider `p`: cluster.certificate-authority-data is not base64", "{data}");
    }
}

#[test]
fn a_proxy_is_a_url_that_a_client_can_use() {
    let usable = ["http://proxy:3128", "https://proxy", "socks5://proxy:1080", "http://[::1]:3128"];
    for proxy in usable {
        assert_eq!(endpoint(&with_fields(&json!({"proxy-url": proxy}))).proxy_url, proxy);
    }
    for proxy in [
        "proxy:3128",
        "ftp://canary",
        "socks4://canary",
        "http://",
        "http://canary proxy",
        "canary",
        "http://canary:port",
    ] {
        let error = refused(&with_fields(&json!({"proxy-url": proxy})), &configured(&["p"]));
        let expected =
            "access provider `p`: cluster.proxy-url must be a URL with the scheme http, https or socks5";
        assert_eq!(error, expected, "{proxy}");
    }
    let error =
        refused(&with_fields(&json!({"proxy-url": "http://user:canary@proxy:3128"})), &configured(&["p"]));
    assert!(
        error.contains("a ClusterProfile must not contain secrets") && !error.contains("canary"),
        "{error}"
    );
}

#[test]
fn a_field_of_another_type_is_refused_with_its_place() {
    let table = [
        json!({"server": 6443}),
        json!({"tls-server-name": true}),
        json!({"insecure-skip-tls-verify": "true"}),
        json!({"insecure-skip-tls-verify": 1}),
        json!({"certificate-authority": {}}),
        json!({"certificate-authority-data": [67, 65]}),
        json!({"proxy-url": ["http://proxy"]}),
        json!({"disable-compression": "yes"}),
    ];
    insta::assert_snapshot!(refusals(table.iter().map(with_fields), &configured(&["p"])), @r"
    access provider `p`: cluster.server must be a string
    access provider `p`: cluster.tls-server-name must be a string
    access provider `p`: cluster.insecure-skip-tls-verify must be true or false
    access provider `p`: cluster.insecure-skip-tls-verify must be true or false
    access provider `p`: cluster.certificate-authority must be a string
    access provider `p`: cluster.certificate-authority-data must be a string
    access provider `p`: cluster.proxy-url must be a string
    access provider `p`: cluster.disable-compression must be true or false
    ");
}

#[test]
fn a_mistake_in_an_entry_that_is_not_chosen_has_no_effect() {
    let broken = json!({"name": "other", "cluster": {"server": 5, "extensions": "x"}});
    let status = json!({"accessProviders": [broken, entry("p")]});
    assert_eq!(&*resolved(&profile(&status), &configured(&["p", "other"])).endpoint.server, "https://p:6443");
}
