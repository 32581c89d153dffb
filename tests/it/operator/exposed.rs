//! Metrics that other hosts can reach.

use std::net::Ipv4Addr;

use serde_json::json;
use tokio::net::TcpSocket;

use super::{http, metrics::on_loopback};

/// Connections from this address that send nothing.
async fn silent(from: Ipv4Addr, to: &str, count: usize) -> Vec<tokio::net::TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        open.push(socket.connect(to.parse().unwrap()).await.unwrap());
    }
    open
}

/// More connections than there are places, from more addresses than fill them, and some of the scraper's own address.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_does_not_stop_a_scrape() {
    let exposed = json!({"listen": "0.0.0.0:0", "exposure": "Pod", "providerNames": true});
    let (_broker, address) = on_loopback(&exposed, &json!([]));
    let address = address.replace("0.0.0.0", "127.0.0.1");
    for round in 0..3 {
        let mut open = Vec::new();
        for stranger in 1..=20 {
            open.extend(silent(Ipv4Addr::new(127, 0, 1, stranger), &address, 8).await);
        }
        open.extend(silent(Ipv4Addr::LOCALHOST, &address, 8).await);
        let scraped = address.clone();
        let scrape = move || http::get_tcp(&scraped, &scraped, "/metrics");
        let (status, text) = tokio::task::spawn_blocking(scrape).await.unwrap();
        assert_eq!(status, 200, "round {round}");
        assert!(text.contains("credbroker_provider_ready{provider=\"secret-name\"}"), "{text}");
    }
}

/// A page could make the browser of a user who forwards the port ask by another name.
#[test]
fn an_exposed_address_answers_addresses_and_no_names() {
    let exposed = json!({"listen": "[::]:0", "exposure": "Pod", "providerNames": true});
    let (_broker, address) = on_loopback(&exposed, &json!([]));
    let port = address.rsplit_once(':').unwrap().1;
    let address = format!("127.0.0.1:{port}");
    assert_eq!(http::get_tcp(&address, "10.1.2.3:9464", "/metrics").0, 200);
    assert_eq!(http::get_tcp(&address, "[fd00::1]:9464", "/livez").0, 200);
    assert_eq!(http::get_tcp(&address, "rebound.example.com", "/metrics").0, 403);
}
