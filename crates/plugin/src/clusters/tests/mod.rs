mod verifiable;

use bytes::Bytes;

use super::*;

fn known() -> Cluster {
    Cluster {
        server: "https://paris:6443".into(),
        tls_server_name: "paris".into(),
        insecure_skip_tls_verify: false,
        certificate_authority_data: Bytes::from_static(b"CA\n"),
        proxy_url: String::new(),
        disable_compression: false,
        config: Bytes::from_static(br#"{"audience":"a<b"}"#),
    }
}

fn difference_with(change: impl FnOnce(&mut Cluster)) -> Option<&'static str> {
    let mut sent = known();
    change(&mut sent);
    difference(&sent, &known())
}

#[test]
fn what_is_absent_or_only_written_otherwise_is_the_same() {
    assert_eq!(difference_with(|_| {}), None);
    let only_server = Cluster { server: known().server, ..Cluster::default() };
    assert_eq!(difference(&only_server, &known()), None);
    assert_eq!(difference_with(|sent| sent.server.push('/')), None);
    assert_eq!(difference_with(|sent| sent.proxy_url = "http://proxy".into()), None);
    assert_eq!(difference_with(|sent| sent.certificate_authority_data = "CA".into()), None);
    assert_eq!(difference_with(|sent| sent.config = r#"{ "audience": "a\u003cb" }"#.into()), None);
    assert_eq!(difference_with(|sent| sent.config = "null".into()), None);
}

#[test]
fn another_server_authority_name_or_extension_is_another_place() {
    assert!(difference_with(|sent| sent.server = "https://tokyo:6443".into()).is_some());
    assert!(difference_with(|sent| sent.server = String::new()).is_some());
    assert!(difference_with(|sent| sent.certificate_authority_data = "other".into()).is_some());
    assert!(difference_with(|sent| sent.tls_server_name = "tokyo".into()).is_some());
    assert!(difference_with(|sent| sent.config = r#"{"audience":"b"}"#.into()).is_some());
    assert!(difference_with(|sent| sent.config = "no json".into()).is_some());
    let without = Cluster { config: Bytes::new(), ..known() };
    assert!(difference(&known(), &without).is_some(), "an extension that the broker does not know");
}
