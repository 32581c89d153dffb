//! Handles of the proxy: one HTTP request on a Unix socket, and the answer as an `ExecCredential`.

use std::{
    ffi::OsStr,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::Arc,
    thread::sleep,
    time::{Duration, UNIX_EPOCH},
};

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    arguments::HandleArguments,
    document::written,
    edges::{Edges, Environment},
    exec_info::ExecInfoError,
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
const MOST: u64 = 1 << 20;

/// Why the proxy gave nothing.
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
    let info = exec_info(edges).map_err(|error: ExecInfoError| Failure::from(error))?;
    let version = info.map(|info| info.version).or(arguments.api_version).unwrap_or_default();
    let socket = socket(arguments.socket.as_deref(), "handles.sock", &edges.environment, edges.is_root);
    let issued: Issued = request(&socket, "POST", &arguments.target, arguments.timeout.unwrap_or(ANSWER))?;
    let expires = UNIX_EPOCH.checked_add(Duration::from_secs(issued.expires));
    let lifetime = Some(Duration::from_secs(issued.lifetime));
    let expiry = expiration_for_client(expires, lifetime, (edges.clock)()).map(|at| at.to_string());
    let fields = [("expirationTimestamp", expiry.as_deref()), ("token", Some(&*issued.token))];
    Ok(written(version, &fields)?)
}

/// What the proxy gives out.
#[derive(Deserialize)]
struct Issued {
    token: String,
    expires: u64,
    lifetime: u64,
}

/// A socket of the proxy: the one that is named, else `name` in the usual directory of the proxy.
pub(crate) fn socket(
    named: Option<&OsStr>,
    name: &str,
    environment: &Environment,
    is_root: fn() -> bool,
) -> PathBuf {
    if let Some(named) = named {
        return named
            .to_str()
            .and_then(|path| path.strip_prefix("unix://"))
            .map_or(named.into(), PathBuf::from);
    }
    let own = environment.get("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty() && !is_root());
    let own = own.map(|directory| PathBuf::from(directory).join("credbroker-proxy").join(name));
    own.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("/run/credbroker-proxy").join(name))
}

/// Sends a request without a body, and reads the answer.
pub(crate) fn request<T: DeserializeOwned>(
    socket: &PathBuf,
    method: &str,
    path: &str,
    limit: Duration,
) -> Result<T, ProxyError> {
    let unreachable = |error| ProxyError::Unreachable(socket.clone(), error);
    let mut stream = connect(socket).map_err(unreachable)?;
    let exchanged = || -> io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        (&mut stream).take(MOST).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let mut exchanged = exchanged;
    let answer = exchanged().map_err(unreachable)?;
    let foreign = || ProxyError::Foreign(socket.clone());
    let code = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3)).ok_or_else(foreign)?;
    let code: u16 = str::from_utf8(code).ok().and_then(|code| code.parse().ok()).ok_or_else(foreign)?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(foreign)?;
    let body = answer.get(end + 4..).unwrap_or_default();
    if code == 200 {
        return serde_json::from_slice(body).map_err(|_other| foreign());
    }
    let Refusal { message } = serde_json::from_slice(body).map_err(|_other| foreign())?;
    Err(ProxyError::Refused { code, message })
}

/// A `Status`.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

fn connect(socket: &PathBuf) -> io::Result<UnixStream> {
    let mut waited = Duration::ZERO;
    loop {
        match UnixStream::connect(socket) {
            Err(error)
                if waited < START
                    && matches!(
                        error.kind(),
                        io::ErrorKind::NotFound
                            | io::ErrorKind::ConnectionRefused
                            | io::ErrorKind::WouldBlock
                    ) =>
            {
                sleep(PAUSE);
                waited += PAUSE;
            }
            connected => return connected,
        }
    }
}

impl From<ProxyError> for Failure {
    fn from(error: ProxyError) -> Self {
        Self::Proxy(Arc::new(error))
    }
}
