use super::hub::*;
use super::*;
use std::error::Error;

const WATCH: &str = "/apis/multicluster.x-k8s.io/v1alpha1/clusterprofiles?watch=true";

fn reset(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == ErrorKind::ConnectionReset;
        }
        source = error.source();
    }
    false
}

#[tokio::test]
async fn cut_connections_are_reset_and_new_ones_are_served() {
    let server = hub();
    let mut one = Events::of(&server, WATCH).await;
    let mut two = Events::of(&server, WATCH).await;
    server.until_open(None, 2).await;
    server.cut_connections();
    assert_eq!(server.open_watches(Collection::ClusterProfiles), 0);
    assert_eq!(server.open_connections(None), 0);
    for events in [&mut one, &mut two] {
        let error = events.line().await.unwrap_err();
        assert!(reset(&error), "{error:?}");
    }
    assert_eq!(read(&server, PROFILES).await.0, 200);
}

#[tokio::test]
async fn a_server_that_went_away_refuses_until_it_comes_back() {
    let server = hub();
    server.apply_cluster_profile("fleet", "a", profile("1"));
    for _ in 0..3 {
        let mut events = Events::of(&server, WATCH).await;
        assert_eq!(events.events(1).await, ["ADDED a"]);
        server.go_away();
        assert!(reset(&events.line().await.unwrap_err()));
        let refused = std::net::TcpStream::connect(server.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        server.come_back();
        server.come_back();
        assert_eq!(names(&read(&server, PROFILES).await.1), ["a"], "nothing was forgotten");
    }
}

#[tokio::test]
async fn the_port_of_a_server_that_is_away_stays_reserved() {
    let server = hub();
    server.go_away();
    let another = TcpSocket::new_v4().unwrap();
    let taken = another.bind(server.address()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    server.come_back();
    assert_eq!(read(&server, PROFILES).await.0, 200);
}

#[tokio::test]
async fn garbage_is_sent_until_it_is_mended() {
    let server = hub();
    let mut running = Events::of(&server, WATCH).await;
    server.send_garbage();
    assert!(running.line().await.unwrap().unwrap().starts_with("<html>"));
    assert_eq!(running.line().await.unwrap(), None);
    for path in [PROFILES, WATCH] {
        let mut client = connect(&server, None).await;
        let request = Request::get(path).header("host", "localhost").header("authorization", "Bearer good");
        let response = client.send_request(request.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<Value>(&body).is_err(), "{path}");
    }
    assert_eq!(read(&server, "/version").await.0, 200);
    server.mend();
    assert_eq!(read(&server, PROFILES).await.0, 200);
}

#[tokio::test]
async fn a_server_that_hangs_answers_nothing_until_it_is_mended() {
    let server = hub();
    let mut events = Events::of(&server, WATCH).await;
    server.hang();
    server.apply_cluster_profile("fleet", "a", profile("1"));
    let mut asking = Box::pin(read(&server, PROFILES));
    let mut counts = server.state.counts.subscribe();
    tokio::select! {
        _ = &mut asking => panic!("it was answered"),
        _ = counts.wait_for(|_| server.lists(Collection::ClusterProfiles) == 1) => {}
    }
    let a_while = Duration::from_millis(200);
    assert!(tokio::time::timeout(a_while, &mut asking).await.is_err());
    assert!(tokio::time::timeout(Duration::ZERO, events.line()).await.is_err());
    server.mend();
    assert_eq!(names(&asking.await.1), ["a"]);
    assert_eq!(events.events(1).await, ["ADDED a"]);
}

#[tokio::test]
async fn a_request_that_hangs_is_cut_too() {
    let server = hub();
    server.hang();
    let mut client = connect(&server, None).await;
    let request = Request::get(PROFILES).header("host", "localhost").body(Full::default()).unwrap();
    let asking = tokio::spawn(async move { client.send_request(request).await });
    let mut counts = server.state.counts.subscribe();
    counts.wait_for(|counts| !counts.is_empty()).await.unwrap();
    server.cut_connections();
    assert!(asking.await.unwrap().is_err());
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_token_may_read_one_collection_and_not_another() {
    let server = hub();
    server.put_secret("fleet", "s", &[]);
    server.forbid("good", Collection::Secrets);
    let (status, refused) = read(&server, "/api/v1/namespaces/fleet/secrets/s").await;
    assert_eq!((status, refused["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(read(&server, PROFILES).await.0, 200);
    server.permit("good", Collection::Secrets);
    assert_eq!(read(&server, "/api/v1/namespaces/fleet/secrets/s").await.0, 200);
}
