//! Why there is no answer on a connection.

#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The connection ended, as it does when a broker shuts down.
    Lost(String),
    /// The other end does not speak gRPC as a broker does.
    NotGrpc(String),
    /// The other end sent nothing.
    Silent,
    /// The deadline passed.
    TimedOut,
}
