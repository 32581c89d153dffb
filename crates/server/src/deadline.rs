//! How long a caller waits: its `grpc-timeout`.

use std::{future::Future, time::Duration};

use tokio::time::Instant;
use tonic::Request;

/// Waits for `event` until the deadline, and returns the rest of the deadline.
pub(super) async fn wait_within(
    deadline: Option<Duration>,
    event: impl Future<Output = ()>,
) -> Option<Duration> {
    let Some(limit) = deadline else {
        event.await;
        return None;
    };
    #[expect(clippy::disallowed_methods, reason = "stops in suspend, as the timer of the deadline does")]
    let started = Instant::now();
    drop(tokio::time::timeout(limit, event).await);
    Some(limit.saturating_sub(started.elapsed()))
}

/// The caller's `grpc-timeout` less a margin, so that the broker can still report what it waits for.
pub(super) fn deadline<T>(request: &Request<T>) -> Option<Duration> {
    let text = request.metadata().get("grpc-timeout")?.to_str().ok()?;
    let timeout = timeout(text)?;
    Some(timeout.saturating_sub((timeout / 10).min(MARGIN)))
}

/// Maximum part of a caller's deadline that is reserved for the answer to reach the caller.
const MARGIN: Duration = Duration::from_millis(500);

/// Parses at most eight digits and a unit, as gRPC defines them. `None`: not a valid timeout, which means no deadline.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let valid = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| valid)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
