//! Answers that have no end, or too late a one.

use std::convert::Infallible;
use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde_json::json;

use super::faults::Flood;

const CHUNK: usize = 64 * 1024;
/// Of a bomb, unpacked.
const CHUNKS: usize = 4096;

/// The body, and how it is encoded.
pub(super) fn body(flood: Flood) -> (UnsyncBoxBody<Bytes, Infallible>, Option<&'static str>) {
    match flood {
        Flood::Blanks => (endless("", vec![b' '; CHUNK]), None),
        Flood::Items => {
            let head = r#"{"kind":"ClusterProfileList","metadata":{"resourceVersion":"1"},"items":[{}"#;
            (endless(head, ",{}".repeat(CHUNK / 3).into_bytes()), None)
        }
        Flood::Line => (endless(r#"{"type":"ADDED","object":{"a":""#, vec![b'x'; CHUNK]), None),
        Flood::Bomb => (Full::from(bomb()).boxed_unsync(), Some("gzip")),
        Flood::Pages => (Full::from(page(500, next_page())).boxed_unsync(), None),
        Flood::EmptyPages => (Full::from(page(0, next_page())).boxed_unsync(), None),
        Flood::SamePage => (Full::from(page(0, 0)).boxed_unsync(), None),
    }
}

fn endless(head: &'static str, chunk: Vec<u8>) -> UnsyncBoxBody<Bytes, Infallible> {
    let chunk = Bytes::from(chunk);
    let chunks = stream::unfold(Some(Bytes::from_static(head.as_bytes())), move |first| {
        let chunk = first.unwrap_or_else(|| chunk.clone());
        async move { Some((Ok(Frame::data(chunk)), None)) }
    });
    StreamBody::new(chunks).boxed_unsync()
}

fn bomb() -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let chunk = vec![b' '; CHUNK];
    for _ in 0..CHUNKS {
        packed.write_all(&chunk).expect("a vector takes all");
    }
    packed.finish().expect("a vector takes all")
}

fn next_page() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static PAGES: AtomicUsize = AtomicUsize::new(0);
    PAGES.fetch_add(1, Ordering::Relaxed)
}

fn page(items: usize, page: usize) -> Vec<u8> {
    let items: Vec<_> = (0..items)
        .map(|item| {
            json!({
                "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
                "metadata": {"namespace": "flood", "name": format!("p{page}-{item}"), "resourceVersion": "1"},
                "spec": {"clusterManager": {"name": "m"}},
            })
        })
        .collect();
    let metadata = json!({"resourceVersion": "1", "continue": format!("{page}")});
    json!({"kind": "ClusterProfileList", "apiVersion": "v1", "metadata": metadata, "items": items})
        .to_string()
        .into_bytes()
}
