//! A hub and its clients, for the tests beside this file.

use super::*;
use hyper::body::Incoming;
use serde_json::json;

pub(super) const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/clusterprofiles";
pub(super) const OF_FLEET: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/clusterprofiles";

const HALF_A_MINUTE: Duration = Duration::from_secs(30);

pub(super) fn hub() -> ApiServer {
    let server = ApiServer::start(Accepts::Tokens);
    server.accept_token("good");
    server
}

pub(super) fn profile(display_name: &str) -> Value {
    json!({"spec": {"clusterManager": {"name": "m"}, "displayName": display_name}})
}

/// One request on a new connection.
pub(super) async fn read(server: &ApiServer, path: &str) -> (u16, Value) {
    let mut client = connect(server, None).await;
    // A watch that begins where it should be refused has no end.
    let answer = tokio::time::timeout(HALF_A_MINUTE, get(&mut client, path, Some("good")));
    answer.await.expect("an answer within half a minute")
}

pub(super) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

pub(super) fn revision(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The events of one watch.
pub(super) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    _client: Client,
}

impl Events {
    /// Panics unless the watch begins.
    pub(super) async fn of(server: &ApiServer, path_and_query: &str) -> Self {
        let mut client = connect(server, None).await;
        let request = Request::get(path_and_query).header("host", "localhost");
        let request = request.header("authorization", "Bearer good").body(Full::default()).unwrap();
        let response = client.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), buffer: Vec::new(), _client: client }
    }

    /// The next line: `Ok(None)` at an orderly end, an error when the connection broke.
    pub(super) async fn line(&mut self) -> Result<Option<String>, hyper::Error> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line).unwrap()));
            }
            let frame = tokio::time::timeout(HALF_A_MINUTE, self.body.frame());
            match frame.await.expect("an event within half a minute").transpose()? {
                Some(frame) => self.buffer.extend_from_slice(&frame.into_data().unwrap()),
                None => return Ok(None),
            }
        }
    }

    /// The next event; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        self.line().await.unwrap().map(|line| serde_json::from_str(&line).unwrap())
    }

    /// The next so many events, each as its type and the object's name.
    pub(super) async fn events(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            let event = self.next().await.expect("an event");
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
            events.push(format!("{} {name}", event["type"].as_str().unwrap()));
        }
        events
    }
}
