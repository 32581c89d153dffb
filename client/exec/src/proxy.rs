//! Handles of the proxy: one HTTP request on a Unix socket, and the answer as an `ExecCredential`.

use std::{
    ffi::OsStr,
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    thread::sleep,
    time::{Duration, UNIX_EPOCH},
};

use rustix::{
    buffer::spare_capacity,
    io::{Errno, read, write},
};

use crate::{
    arguments::HandleArguments,
    document::written,
    edges::{Edges, Environment},
    expiry::expiration_for_client,
    failure::Failure,
    run::exec_info,
};

/// How long a proxy that starts, or is restarted, is waited for.
const START: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);
/// How long an answer is waited for by default.
const ANSWER: Duration = Duration::from_secs(15);
/// More than any answer has.
const MOST: usize = 1 << 20;
const READ: usize = 4 * 1024;
/// The end of the head of an answer.
const END: &[u8] = b"\r\n\r\n";

/// Why there is no answer of the proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// It has answered with an error.
    #[error("{message}")]
    Refused {
        /// The status of the answer.
        code: u16,
        /// What it says.
        message: String,
    },
    /// No proxy answers on the socket.
    #[error("no proxy answers on {}", .0.display())]
    Unreachable(PathBuf, #[source] io::Error),
    /// The answer is not one of the proxy.
    #[error("what answers on {} is not the proxy", .0.display())]
    Foreign(PathBuf),
}

impl ProxyError {
    /// The exit code of this failure.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { code: 401 | 403, .. } => 77,
            Self::Refused { .. } | Self::Foreign(_) => 1,
            Self::Unreachable(..) => 69,
        }
    }
}

/// One line with a handle.
pub(crate) fn handle_line(arguments: &HandleArguments, edges: &Edges) -> Result<String, Failure> {
    let info = exec_info(edges)?;
    let version = info.map(|info| info.version).or(arguments.api_version).unwrap_or_default();
    let socket = proxy_socket(arguments.socket.as_deref(), "handles.sock", &edges.environment, edges.is_root);
    let answer = ask_proxy(&socket, "POST", &arguments.target, arguments.timeout.unwrap_or(ANSWER))?;
    // The handle, its end, and its lifetime.
    let mut words = answer.split_ascii_whitespace();
    let token = words.next();
    let mut seconds = || words.next().and_then(|word| word.parse().ok()).map(Duration::from_secs);
    let (Some(token), Some(expires), lifetime @ Some(_)) = (token, seconds(), seconds()) else {
        return Err(ProxyError::Foreign(socket).into());
    };
    let expires = UNIX_EPOCH.checked_add(expires);
    let expiry = expiration_for_client(expires, lifetime, (edges.clock)()).map(|at| at.to_string());
    Ok(written(version, &[("expirationTimestamp", expiry.as_deref()), ("token", Some(token))])?)
}

/// A socket of the proxy: the one that is named, else `name` in the usual directory of the proxy.
pub fn proxy_socket(
    named: Option<&OsStr>,
    name: &str,
    environment: &Environment,
    is_root: fn() -> bool,
) -> PathBuf {
    if let Some(named) = named {
        return named.into();
    }
    let own = environment.get("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty() && !is_root());
    let own = own.map(|directory| Path::new(directory).join("credbroker-proxy").join(name));
    own.filter(|path| path.exists()).unwrap_or_else(|| Path::new("/run/credbroker-proxy").join(name))
}

/// Sends a request without a body to the proxy, and returns the body of the answer. Blocks.
///
/// # Errors
///
/// The proxy does not answer, or with an error.
pub fn ask_proxy(socket: &Path, method: &str, path: &str, limit: Duration) -> Result<String, ProxyError> {
    let answer = exchange(socket, method, path, limit)
        .map_err(|error| ProxyError::Unreachable(socket.to_owned(), error))?;
    let parts = || -> Option<(u16, String)> {
        let digits = answer.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
        let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit.wrapping_sub(b'0')));
        let head = answer.windows(END.len()).position(|bytes| bytes == END)?;
        Some((code, String::from_utf8(answer.get(head + END.len()..)?.to_vec()).ok()?))
    };
    match parts().ok_or_else(|| ProxyError::Foreign(socket.to_owned()))? {
        (200, body) => Ok(body),
        (code, message) => Err(ProxyError::Refused { code, message }),
    }
}

/// The answer, whole. A read and a write of the system alone, because the shim is small.
fn exchange(socket: &Path, method: &str, path: &str, limit: Duration) -> io::Result<Vec<u8>> {
    let stream = connect(socket)?;
    stream.set_read_timeout(Some(limit))?;
    let request = [method, " ", path, " HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"].concat();
    // A new socket takes a request whole.
    write(&stream, request.as_bytes())?;
    let mut answer = Vec::new();
    while answer.len() < MOST {
        answer.reserve(READ);
        match read(&stream, spare_capacity(&mut answer)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(answer)
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let mut left = START.as_millis() / PAUSE.as_millis();
    loop {
        match UnixStream::connect(socket) {
            Err(error) if left > 0 && may_be_starting(error.kind()) => {
                left -= 1;
                sleep(PAUSE);
            }
            connected => return connected,
        }
    }
}

fn may_be_starting(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock)
}

impl From<ProxyError> for Failure {
    fn from(error: ProxyError) -> Self {
        Self::Proxy(Arc::new(error))
    }
}
