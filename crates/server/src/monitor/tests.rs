use tokio::io::AsyncWriteExt as _;

use super::*;

/// Each byte makes the next one possible, but not more time.
#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "tokio's paused clock is the test's clock")]
async fn a_head_has_one_second_however_it_arrives() {
    for head in [&b""[..], b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: "] {
        let (mut client, server) = tokio::io::duplex(1024);
        let begun = tokio::time::Instant::now();
        let serving = serve(server, |_| async { panic!("there is no request") });
        let sent = async {
            client.write_all(head).await.unwrap();
            while client.write_all(if head.is_empty() { b"" } else { b"x" }).await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = serving => {}
            () = sent => {}
        }
        assert_eq!(begun.elapsed().as_millis() / 10, 100);
    }
}

#[test]
fn a_name_that_a_page_chose_is_not_answered() {
    let is_answered = |reach, host: &str| {
        foreign_host(reach, &HeaderMap::from_iter([(HOST, host.parse().unwrap())])).is_none()
    };
    for host in ["127.0.0.1:9464", "127.0.0.1", "localhost", "localhost:1", "[::1]:9464", "[::1]"] {
        assert!(is_answered(Reach::Machine, host) && is_answered(Reach::Network, host), "{host}");
    }
    for host in ["10.0.0.1", "10.0.0.1:9464", "[fd00::1]:9464"] {
        assert!(!is_answered(Reach::Machine, host) && is_answered(Reach::Network, host), "{host}");
    }
    for host in ["", "example.com", "example.com:9464", "127.0.0.1.example.com", "localhost.:1"] {
        assert!(!is_answered(Reach::Machine, host) && !is_answered(Reach::Network, host), "{host}");
        assert!(is_answered(Reach::Admitted, host), "{host}");
    }
    assert_eq!(foreign_host(Reach::Network, &HeaderMap::new()), None);
}

#[test]
fn names_of_providers_are_for_peers_that_the_operator_admits() {
    let shows = |reach: Reach| [false, true].map(|has_rules| reach.names_providers(has_rules));
    assert_eq!(shows(Reach::Admitted), [true, true]);
    assert_eq!(shows(Reach::Machine), [true, false]);
    assert_eq!(shows(Reach::Network), [false, false]);
}

#[test]
fn names_in_urls_may_be_escaped() {
    assert_eq!(decoded("a%2Fb%20%C3%A9"), "a/b é");
    assert_eq!(decoded("100%"), "100%");
    assert_eq!(decoded("%zz%+4%4"), "%zz%+4%4");
    assert_eq!(excluded("verbose&exclude=a%26b&exclude=c"), ["a&b", "c"]);
}
