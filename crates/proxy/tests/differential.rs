//! What the proxy forwards, read by Go. `CREDBROKER_REQUEST_INFO` names the program of `crates/request-info/oracle`, and
//! `CREDBROKER_REQUESTS` how many requests there are that the proxy accepts (100,000). Without the program, nothing is compared.
//!
//! Requests of real clients come first. For each request, net/http reads the same path, query and parameters as we do; Go's own
//! proxies would forward the same bytes; the API server's function finds the attributes that a guard decides on; and a program
//! that cleans the path first finds them as well.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests end by panics")]
#![allow(clippy::disallowed_methods, reason = "the program is started here")]

use std::collections::BTreeMap;

use credbroker_proxy::path::Address;
use credbroker_request_info::{Query, RequestInfo};
use fastrand::Rng;
use http::{Method, Uri, Version};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

#[path = "../../request-info/tests/oracle/mod.rs"]
mod oracle;
mod requests;

use oracle::{Oracle, attributes, count, request};

const SEED: u64 = 0x0070_726f_7879;
const PREFIXES: [&str; 3] =
    ["/clusters/team-a/prod", "/contexts/kind-0123456789ab", "/%63lusters/team%2Da/prod"];
/// What RFC 3986 allows beyond the letters and digits, and what it does not.
const BYTES: &[u8] = b"-._~!$&'()*+,;=:@%/?[]{}|^\\\"`<>#aF0";

/// A request that the proxy accepts.
struct Request {
    method: Method,
    address: Address,
    received: String,
}

/// Any request, often with a byte changed, added or taken away.
fn any(rng: &mut Rng) -> (String, String) {
    let (method, target) = request(rng);
    let mut bytes = target.into_bytes();
    for _ in 0..rng.usize(..3) {
        let at = rng.usize(..=bytes.len());
        let byte = BYTES[rng.usize(..BYTES.len())];
        match rng.u8(..3) {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => bytes[at] = byte,
            // Encoded needlessly.
            _ if at < bytes.len() && bytes[at] != b'/' => {
                let encoded = format!("%{:02x}", bytes[at]);
                bytes.splice(at..=at, encoded.into_bytes());
            }
            _ => {}
        }
    }
    let target = String::from_utf8_lossy(&bytes);
    (method, format!("{}{target}", PREFIXES[rng.usize(..PREFIXES.len())]))
}

fn read(method: &str, received: &str) -> Option<Request> {
    let (method, uri) = (method.parse::<Method>().ok()?, received.parse::<Uri>().ok()?);
    let address = Address::read(&method, &uri, Version::HTTP_11).ok()?;
    Some(Request { method, address, received: received.to_owned() })
}

/// As `url.Values.Encode` of Go.
fn encoded(query: &str) -> String {
    const SET: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');
    let encode = |bytes: &[u8]| percent_encode(bytes, SET).to_string().replace(' ', "+");
    let query = Query::of(query);
    let sorted: BTreeMap<_, _> = query.parameters().collect();
    let pairs = sorted.into_iter().flat_map(|(name, values)| {
        values.iter().map(move |value| format!("{}={}", encode(name), encode(value)))
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// The attributes that do not name the path itself.
fn without_path(mut attributes: BTreeMap<String, String>) -> BTreeMap<String, String> {
    attributes.retain(|name, _| name != "path" && name != "parts");
    attributes
}

#[test]
fn go_reads_what_is_forwarded_as_we_do() {
    let mut rng = Rng::with_seed(SEED);
    let mut recorded = requests::recorded();
    let started = Oracle::start(move || {
        let next = || {
            let recorded = recorded.next().map(|it| (it.method.to_owned(), it.target.to_owned()));
            recorded.unwrap_or_else(|| any(&mut rng))
        };
        let accepted = std::iter::repeat_with(next).enumerate();
        let mut accepted =
            accepted.filter_map(|(tries, (method, received))| Some((tries + 1, read(&method, &received)?)));
        let (tries, request) = accepted.next().unwrap();
        let forwarded = request.address.path_and_query("").unwrap();
        (format!("{} {forwarded}", request.method), (tries, request))
    });
    let Some((mut oracle, requests, writer)) = started else { return };
    let (mut generated, mut resources, mut proxied) = (0, 0, 0);
    for (tries, request) in requests {
        let Request { method, address, received } = request;
        generated += tries;
        let ours = address.attributes();
        let (path, query) = (&address.path, address.query.as_deref().unwrap_or_default());
        let forwarded = address.path_and_query("").unwrap();
        let is_proxied = ours.subresource == "proxy";
        resources += usize::from(ours.is_resource);
        proxied += usize::from(is_proxied);

        let theirs = oracle.next();
        let attributes = attributes(ours.clone());
        assert_eq!(Some(&attributes), theirs.part("attributes").as_ref(), "{method} {received}");

        let http = theirs.part("http").unwrap();
        let plain = percent_decode_str(path).decode_utf8().unwrap();
        assert_eq!((&*http["method"], &*http["host"]), (method.as_str(), "a"), "{received}");
        assert_eq!((&*http["path"], &*http["query"]), (&*plain, query), "{received}");
        assert_eq!(http["sent_on"], forwarded.as_str(), "{received}");
        assert_eq!(http["parameters"], encoded(query), "{received}");
        assert!(is_proxied || http["has_bad_parameters"] == "false", "{received}");

        let clean = &*http["clean"];
        if !is_proxied {
            let ours = plain.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(&plain);
            assert_eq!(ours, clean, "{received}");
        }
        let clean = clean.replace('%', "%25").replace('?', "%3F");
        let clean = RequestInfo::of(method.as_str(), &clean, query).unwrap();
        assert_eq!(without_path(oracle::attributes(clean)), without_path(attributes), "{received}");
    }
    writer.join().unwrap();
    oracle.end();
    println!("{} accepted of {generated}, {resources} for resources, {proxied} below proxy", count());
    assert!(
        resources > count() / 4 && proxied > count() / 50,
        "{resources} for resources, {proxied} below proxy"
    );
}
