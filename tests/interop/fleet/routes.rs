//! Clusters that are reached by another way than their address says.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use credbroker_test_support::{Accepts, ApiServer, FakePlugin};
use serde_json::json;

use super::{Hub, Walker, cloud, cluster_of, cluster_variable, until};
use crate::kubectl::failure;

/// A place that no resolver knows: only the proxy does.
const PLACE: &str = "paris.invalid:6443";

#[test]
fn a_profiles_proxy_and_tls_server_name_bring_kubectl_to_the_cluster() {
    let paris = ApiServer::start(Accepts::Tokens);
    paris.accept_token("paris");
    let (proxy, asked) = proxy_to(paris.address());
    let mut place = cluster_of(&paris, &cluster_variable("paris"));
    place["server"] = json!(format!("https://{PLACE}"));
    place["proxy-url"] = json!(format!("http://{proxy}"));
    let (hub, walker) = (Hub::start(), Walker::new());
    let plugin = FakePlugin::builder().token_from_shell("$CLUSTER").expires_in(3600).build();
    // The server's certificate is for this name.
    hub.profile("unnamed", "cloud", &place);
    place["tls-server-name"] = json!("localhost");
    hub.profile("paris", "cloud", &place);
    let broker = hub.broker(&cloud(&plugin));
    until(&broker, |fleet| fleet.len() == 2);
    walker.write(&broker);

    for _ in 0..2 {
        walker.reach("paris");
    }
    assert_eq!((paris.seen_tokens(), plugin.runs()), (vec!["paris".to_owned()], 1));
    assert!(asked.try_iter().all(|place| place == PLACE));
    paris.forget_requests();
    let said = failure(&walker.pods("unnamed"));
    assert!(said.contains("certificate"), "{said}");
    assert_eq!(paris.requests(), []);
}

#[test]
fn a_profile_that_checks_no_certificate_has_a_context_that_checks_none() {
    let paris = ApiServer::start(Accepts::Tokens);
    paris.accept_token("paris");
    let place = json!({"server": paris.url(), "insecure-skip-tls-verify": true});
    let (hub, walker) = (Hub::start(), Walker::new());
    let plugin = FakePlugin::builder().token("paris").expires_in(3600).build();
    hub.profile("paris", "cloud", &place);
    let broker = hub.broker(&cloud(&plugin));
    until(&broker, |fleet| fleet.len() == 1);
    walker.write(&broker);
    walker.reach("paris");
}

/// An HTTP proxy that takes every CONNECT to `target`, and reports the requested target. It ends with the process.
fn proxy_to(target: SocketAddr) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, places) = channel();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let asked = asked.clone();
            // A client that disconnects is not a failure of the proxy.
            thread::spawn(move || connect(client, target, &asked).ok());
        }
    });
    (address, places)
}

fn connect(mut client: TcpStream, target: SocketAddr, asked: &Sender<String>) -> io::Result<()> {
    // A client says nothing more before it is answered, so the buffer holds nothing of what follows.
    let mut lines = BufReader::new(client.try_clone()?).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let place = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    drop(asked.send(place.to_owned()));
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let mut server = TcpStream::connect(target)?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        drop(io::copy(&mut from_client, &mut to_server));
        to_server.shutdown(Shutdown::Write)
    });
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Write)
}
