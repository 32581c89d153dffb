use std::future::pending;

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
fn a_name_that_a_page_chose_is_not_local() {
    let local = |host: &str| is_local(&HeaderMap::from_iter([(HOST, host.parse().unwrap())]));
    for host in ["127.0.0.1:9464", "127.0.0.1", "localhost", "localhost:1", "[::1]:9464", "[::1]"] {
        assert!(local(host), "{host}");
    }
    for host in ["", "example.com", "example.com:9464", "10.0.0.1", "127.0.0.1.example.com", "localhost.:1"] {
        assert!(!local(host), "{host}");
    }
    assert!(is_local(&HeaderMap::new()));
}

#[test]
fn names_in_urls_may_be_escaped() {
    assert_eq!(decoded("a%2Fb%20%C3%A9"), "a/b é");
    assert_eq!(decoded("100%"), "100%");
    assert_eq!(decoded("%zz%+4%4"), "%zz%+4%4");
    assert_eq!(excluded("verbose&exclude=a%26b&exclude=c"), ["a&b", "c"]);
}

fn open(connections: &Connections) -> usize {
    let open = connections.0.lock().unwrap();
    open.iter().filter(|connection| Arc::strong_count(connection) > 1).count()
}

#[test]
fn the_oldest_connection_that_waits_for_its_peer_gives_way() {
    let connections = Connections::default();
    let all: Vec<_> = (0..CONNECTIONS).map(|_| connections.admit().unwrap()).collect();
    let mut answer = Box::pin(all[0].answer(pending::<()>()));
    assert!(answer.as_mut().now_or_never().is_none());
    all[1].answer(async {}).now_or_never().unwrap();
    let newest = connections.admit().unwrap();
    let displaced: Vec<_> = all.iter().map(|connection| connection.displaced.is_cancelled()).collect();
    assert_eq!(displaced.iter().position(|displaced| *displaced), Some(1));
    assert_eq!(displaced.iter().filter(|displaced| **displaced).count(), 1);
    assert!(!newest.displaced.is_cancelled());
    assert_eq!(open(&connections), CONNECTIONS);
}

#[test]
fn a_connection_that_is_answered_keeps_its_place() {
    let connections = Connections::default();
    let all: Vec<_> = (0..CONNECTIONS).map(|_| connections.admit().unwrap()).collect();
    let mut answers: Vec<_> =
        all.iter().map(|connection| Box::pin(connection.answer(pending::<()>()))).collect();
    assert!(answers.iter_mut().all(|answer| answer.as_mut().now_or_never().is_none()));
    assert!(connections.admit().is_none());
    drop(answers);
    drop(all);
    assert_eq!(open(&connections), 0);
    assert!(connections.admit().is_some());
}
