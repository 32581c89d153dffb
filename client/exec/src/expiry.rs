//! The expiration time that clients get.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;

/// Nanoseconds since 1970. Neither the year 9999 nor a margin before 1970 overflows.
type Nanos = i128;

const SECOND: Nanos = 1_000_000_000;
const LONGEST_MARGIN: Nanos = 30 * SECOND;
const SHORTEST_USE: Nanos = 10 * SECOND;
/// 9999-12-31T23:59:59Z: the last time of RFC 3339.
const LAST: Nanos = 253_402_300_799;

/// The `expirationTimestamp` for a credential that the broker serves until `expiration` and that had `lifetime` when the
/// broker got it (`None`: the remaining time).
///
/// It is earlier than `expiration` by a margin, so that the credential does not expire while a request is on its way, but
/// leaves ten seconds of use if the credential has them. It is a whole second and never in the past, or client-go would
/// run the plugin for every request. The broker can serve an expired credential for a moment where clocks differ: it gets
/// ten seconds.
pub(crate) fn expiration_for_client(
    expiration: Option<SystemTime>,
    lifetime: Option<Duration>,
    now: SystemTime,
) -> Option<Timestamp> {
    let (expiration, now) = (since_1970(expiration?), since_1970(now));
    let lifetime = lifetime.map_or(expiration - now, |lifetime| lifetime.as_nanos().cast_signed());

    let margin = (lifetime / 10).clamp(0, LONGEST_MARGIN);
    let soonest = now + SHORTEST_USE;
    let expiration_for_client =
        if expiration <= now { soonest } else { (expiration - margin).max(expiration.min(soonest)) };
    let after_now = now.div_euclid(SECOND) + 1;
    let seconds = expiration_for_client.div_euclid(SECOND).max(after_now).min(LAST);
    Some(Timestamp { seconds: i64::try_from(seconds).ok()?, nanos: 0 })
}

fn since_1970(time: SystemTime) -> Nanos {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos().cast_signed(),
        Err(before) => -before.duration().as_nanos().cast_signed(),
    }
}

#[cfg(test)]
mod tests;
