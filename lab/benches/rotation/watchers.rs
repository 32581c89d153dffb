//! Many watches, by a client that does no more than count messages: the figures are the broker's.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use credbroker_lab::broker::PROVIDER;
use credbroker_proto::v1::{
    CredentialRef, ProviderRef, WatchCredentialRequest, WatchCredentialsRequest, credential_ref::Source,
    watch_credentials_request::Addition,
};
use prost::Message;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{
        Mutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    task::JoinSet,
    time::timeout,
};

use crate::subject::KEYS;

const PATIENCE: Duration = Duration::from_secs(120);
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
const WATCH: &[u8] = b"/credbroker.v1.CredentialBroker/WatchCredential";
const STREAM: &[u8] = b"/credbroker.v1.CredentialBroker/WatchCredentials";
/// References in one request, whose answers are awaited before the next one: the broker's window is for few requests.
const ADDED: usize = 100;

type Writer = Arc<Mutex<OwnedWriteHalf>>;

/// Watches that are open until this is dropped.
#[derive(Debug)]
pub(crate) struct Watchers {
    connections: Vec<Writer>,
    count: usize,
    streams: u32,
    readers: JoinSet<Result<()>>,
    /// The time from the plugin's output to the receipt, of each message.
    received: UnboundedReceiver<Duration>,
    reads: watch::Sender<bool>,
}

impl Watchers {
    /// Opens connections to the broker at `socket`, without a watch.
    pub(crate) async fn connect(socket: &Path, connections: usize) -> Result<Self> {
        let ((note, received), reads) = (unbounded_channel(), watch::Sender::new(true));
        let (connected, readers) = (Vec::new(), JoinSet::new());
        let mut watchers = Self { connections: connected, count: 0, streams: 0, readers, received, reads };
        for _ in 0..connections {
            let (reader, mut writer) = UnixStream::connect(socket).await?.into_split();
            let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            let mut window = vec![0, 4];
            window.extend(WINDOW.to_be_bytes());
            frame(&mut hello, SETTINGS, 0, 0, &window);
            frame(&mut hello, WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes());
            writer.write_all(&hello).await?;
            let writer = Arc::new(Mutex::new(writer));
            let reading = read(reader, Arc::clone(&writer), note.clone(), watchers.reads.subscribe());
            watchers.readers.spawn(reading);
            watchers.connections.push(writer);
        }
        Ok(watchers)
    }

    /// Opens `each` more watches on every connection, and returns when all of them have their credential. With `keys`, each
    /// is of another credential.
    pub(crate) async fn watch(&mut self, each: u32, keys: bool) -> Result<()> {
        let head = head(WATCH)?;
        let mut key = self.count;
        for writer in &self.connections {
            let mut frames = Vec::new();
            for number in self.streams..self.streams + each {
                let request = WatchCredentialRequest { r#ref: Some(reference(keys.then_some(key))) };
                frame(&mut frames, HEADERS, END_HEADERS, 2 * number + 1, &head);
                frame(&mut frames, DATA, END_STREAM, 2 * number + 1, &framed(&request)?);
                key += 1;
            }
            writer.lock().await.write_all(&frames).await?;
        }
        self.streams += each;
        self.opened(key - self.count).await
    }

    /// Watches `count` references on one stream of the first connection, and returns when all of them have their credential.
    pub(crate) async fn follow(&mut self, count: usize, keys: bool) -> Result<()> {
        let writer = self.connections.first().map(Arc::clone).context("a connection")?;
        let stream = 2 * self.streams + 1;
        self.streams += 1;
        let mut frames = Vec::new();
        frame(&mut frames, HEADERS, END_HEADERS, stream, &head(STREAM)?);
        let numbers: Vec<_> = (0..count).collect();
        for numbers in numbers.chunks(ADDED) {
            let addition = |number: &usize| Addition {
                number: *number as u64,
                r#ref: Some(reference(keys.then_some(*number))),
            };
            let add = numbers.iter().map(addition).collect();
            let request = WatchCredentialsRequest { add, remove: Vec::new() };
            frame(&mut frames, DATA, 0, stream, &framed(&request)?);
            writer.lock().await.write_all(&frames).await?;
            frames.clear();
            self.opened(numbers.len()).await?;
        }
        Ok(())
    }

    async fn opened(&mut self, count: usize) -> Result<()> {
        self.count += count;
        self.next(count).await?;
        Ok(())
    }

    /// Reads nothing more.
    pub(crate) fn pause(&self) {
        self.reads.send_replace(false);
    }

    /// How many there are. A watch that ended is counted too: then its message is missing.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How long the next message of each took from the plugin's output.
    pub(crate) async fn all(&mut self) -> Result<Vec<Duration>> {
        self.next(self.count()).await
    }

    async fn next(&mut self, count: usize) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        while times.len() < count {
            let received = timeout(PATIENCE, self.received.recv()).await;
            match received.with_context(|| format!("{} of {count} watches", times.len()))? {
                Some(took) => times.push(took),
                None => self.readers.join_next().await.context("the readers have ended")???,
            }
        }
        Ok(times)
    }
}

/// The credential of the provider; with a key, another one.
fn reference(key: Option<usize>) -> CredentialRef {
    let name = key.map_or(PROVIDER, |_| KEYS).to_owned();
    let env = key.map(|key| ("KEY".to_owned(), (key + 1).to_string())).into_iter().collect();
    let source = Some(Source::Provider(ProviderRef { name, definition: None }));
    CredentialRef { source, env, ..CredentialRef::default() }
}

fn framed(request: &impl Message) -> Result<Vec<u8>> {
    let mut framed = vec![0];
    framed.extend(u32::try_from(request.encoded_len())?.to_be_bytes());
    request.encode(&mut framed)?;
    Ok(framed)
}

/// The time since the plugin printed the token of this message, which begins with the time between two `@`.
fn took(message: &[u8]) -> Option<Duration> {
    let is_time = |part: &&[u8]| part.len() == 19 && part.iter().all(u8::is_ascii_digit);
    let printed = str::from_utf8(message.split(|byte| *byte == b'@').find(is_time)?).ok()?.parse().ok()?;
    let printed = SystemTime::UNIX_EPOCH + Duration::from_nanos(printed);
    Some(SystemTime::now().duration_since(printed).unwrap_or_default())
}

/// Notes when each message is complete, and acknowledges what has to be.
async fn read(
    mut reader: OwnedReadHalf,
    writer: Writer,
    note: UnboundedSender<Duration>,
    mut reads: watch::Receiver<bool>,
) -> Result<()> {
    let mut streams: Vec<Vec<u8>> = Vec::new();
    let mut payload = Vec::new();
    let mut reader = tokio::io::BufReader::with_capacity(64 * 1024, &mut reader);
    loop {
        reads.wait_for(|reads| *reads).await?;
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
        if streams.len() <= stream {
            streams.resize(stream + 1, Vec::new());
        }
        let received = streams.get_mut(stream).context("a stream")?;
        received.extend_from_slice(&payload);
        let mut rest = received.as_slice();
        while let Some(([_, length @ ..], message)) = rest.split_first_chunk::<5>()
            && let Some((message, further)) = message.split_at_checked(u32::from_be_bytes(*length) as usize)
        {
            let took = took(message).with_context(|| String::from_utf8_lossy(message).into_owned())?;
            if note.send(took).is_err() {
                return Ok(());
            }
            rest = further;
        }
        let complete = received.len() - rest.len();
        received.drain(..complete);
    }
}

/// The header block of a watch. Names and the common values are in HPACK's static table.
fn head(path: &[u8]) -> Result<Vec<u8>> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(&[0x04][..], path), (&[0x01], b"localhost"), (&[0x0f, 0x10], b"application/grpc")]
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
