//! Compares the cluster that a caller sent with one that the broker knows.

use serde_json::Value;

use credbroker_credential::Cluster;

/// How `sent` differs from `known`; `None` if it is the same cluster. A value that the caller does not send cannot
/// differ: older clients drop the TLS name, and only clients in Go and Python send any value. Proxy and compression are
/// not compared: client-go takes the proxy from the caller's environment.
pub fn difference(sent: &Cluster, known: &Cluster) -> Option<&'static str> {
    let differs = |sent: &str, known: &str| !sent.is_empty() && sent != known;
    if sent.server.trim_end_matches('/') != known.server.trim_end_matches('/') {
        Some("its server is different")
    } else if !sent.certificate_authority_data.trim_ascii().is_empty()
        && sent.certificate_authority_data.trim_ascii() != known.certificate_authority_data.trim_ascii()
    {
        Some("its certificate authorities are different")
    } else if differs(&sent.tls_server_name, &known.tls_server_name) {
        Some("its TLS server name is different")
    } else if !is_same_json(&sent.config, &known.config) {
        Some("its exec extension is different")
    } else {
        None
    }
}

/// Compares values, because Go decodes and encodes the JSON: blanks and escapes can differ.
fn is_same_json(sent: &[u8], known: &[u8]) -> bool {
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    sent.is_empty()
        || sent == b"null"
        || sent == known
        || read(sent).is_some_and(|sent| Some(sent) == read(known))
}

#[cfg(test)]
mod tests {
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
}
