//! Many watches of one credential, by a client that does no more than count messages: the figures are the broker's.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use credbroker_lab::broker::PROVIDER;
use credbroker_proto::v1::{CredentialRef, ProviderRef, WatchCredentialRequest, credential_ref::Source};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{
        Mutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    task::JoinSet,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Of HTTP/2: types of frames, and flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// As large as windows can be: none is ever given back.
const WINDOW: u32 = (1 << 31) - 1;
const PATH: &[u8] = b"/credbroker.v1.CredentialBroker/WatchCredential";

type Writer = Arc<Mutex<OwnedWriteHalf>>;

/// Watches that are open until this is dropped.
#[derive(Debug)]
pub(crate) struct Watchers {
    connections: Vec<Writer>,
    each: u32,
    readers: JoinSet<Result<()>>,
    received: UnboundedReceiver<SystemTime>,
}

impl Watchers {
    /// Opens connections to the broker at `socket`, without a watch.
    pub(crate) async fn connect(socket: &Path, connections: usize) -> Result<Self> {
        let (note, received) = unbounded_channel();
        let mut watchers = Self { connections: Vec::new(), each: 0, readers: JoinSet::new(), received };
        for _ in 0..connections {
            let (reader, mut writer) = UnixStream::connect(socket).await?.into_split();
            let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            let mut window = vec![0, 4];
            window.extend(WINDOW.to_be_bytes());
            frame(&mut hello, SETTINGS, 0, 0, &window);
            frame(&mut hello, WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes());
            writer.write_all(&hello).await?;
            let writer = Arc::new(Mutex::new(writer));
            watchers.readers.spawn(read(reader, Arc::clone(&writer), note.clone()));
            watchers.connections.push(writer);
        }
        Ok(watchers)
    }

    /// Opens `each` more watches on every connection, and returns when all of them have the credential.
    pub(crate) async fn watch(&mut self, each: u32) -> Result<()> {
        let provider = ProviderRef { name: PROVIDER.to_owned(), definition: None };
        let reference =
            CredentialRef { source: Some(Source::Provider(provider)), ..CredentialRef::default() };
        let message = WatchCredentialRequest { r#ref: Some(reference) }.encode_to_vec();
        let mut body = vec![0];
        body.extend(u32::try_from(message.len())?.to_be_bytes());
        body.extend(&message);
        let head = head()?;
        for writer in &self.connections {
            let mut frames = Vec::new();
            for number in self.each..self.each + each {
                frame(&mut frames, HEADERS, END_HEADERS, 2 * number + 1, &head);
                frame(&mut frames, DATA, END_STREAM, 2 * number + 1, &body);
            }
            writer.lock().await.write_all(&frames).await?;
        }
        self.each += each;
        self.next(self.connections.len() * usize::try_from(each)?).await?;
        Ok(())
    }

    /// How many there are. A watch that ended is counted too: then its message is missing.
    pub(crate) fn count(&self) -> usize {
        self.connections.len() * self.each as usize
    }

    /// When the next message of each was received.
    pub(crate) async fn all(&mut self) -> Result<Vec<SystemTime>> {
        self.next(self.count()).await
    }

    async fn next(&mut self, count: usize) -> Result<Vec<SystemTime>> {
        let mut times = Vec::with_capacity(count);
        while times.len() < count {
            let received = timeout(PATIENCE, self.received.recv()).await;
            times.push(
                received.with_context(|| format!("{} of {count} watches", times.len()))?.context("end")?,
            );
        }
        Ok(times)
    }
}

/// Notes when each message is complete, and acknowledges what has to be.
async fn read(mut reader: OwnedReadHalf, writer: Writer, note: UnboundedSender<SystemTime>) -> Result<()> {
    let mut left: Vec<usize> = Vec::new();
    let mut payload = Vec::new();
    let mut reader = tokio::io::BufReader::with_capacity(64 * 1024, &mut reader);
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head).await?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        payload.resize(usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low), 0);
        reader.read_exact(&mut payload).await?;
        if matches!(kind, SETTINGS | PING) && flags & ACK == 0 {
            let mut answer = Vec::new();
            frame(&mut answer, kind, ACK, 0, if kind == PING { &payload } else { &[] });
            writer.lock().await.write_all(&answer).await?;
        }
        if kind != DATA {
            continue;
        }
        let stream = (u32::from_be_bytes(stream) / 2) as usize;
        if left.len() <= stream {
            left.resize(stream + 1, 0);
        }
        let left = left.get_mut(stream).context("a stream")?;
        if *left == 0 {
            let [_, length @ ..] = *payload.first_chunk::<5>().context("the head of a message")?;
            *left = 5 + u32::from_be_bytes(length) as usize;
        }
        ensure!(*left >= payload.len(), "one message at a time");
        *left -= payload.len();
        if *left == 0 && note.send(SystemTime::now()).is_err() {
            return Ok(());
        }
    }
}

/// The header block of a watch. Names and the common values are in HPACK's static table.
fn head() -> Result<Vec<u8>> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(&[0x04][..], PATH), (&[0x01], b"localhost"), (&[0x0f, 0x10], b"application/grpc")]
    {
        block.extend(name);
        block.push(u8::try_from(value.len())?);
        block.extend(value);
    }
    block.extend(b"\x00\x02te\x08trailers");
    Ok(block)
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    out.extend(length);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}
