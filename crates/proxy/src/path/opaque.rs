//! The rest of a path below `…/proxy/`, which a program in the cluster reads.

use std::borrow::Cow;

use super::segment;
use crate::status::Refused;

/// Programs decode once, and some twice. Each time costs time, so the number is bounded.
const DECODED: usize = 4;

/// Checks a path that passes as it is.
///
/// The API server decodes it once, joins it to the path of the service, and resolves `.`, `..` and `//` meanwhile. So no
/// reading of it may have a `.`, `..` or control character: decoded several times, with `\` as a slash, and without
/// parameters behind `;`. Empty segments and encoded slashes are harmless then: they cannot lead out of `…/proxy/`.
pub(super) fn check(raw: &str) -> Result<(), Refused> {
    segment::check_bytes(raw)?;
    let mut plain = segment::unescape(raw)?;
    for _ in 0..DECODED {
        let names = plain.split(['/', '\\']).map(|part| part.split(';').next().unwrap_or_default());
        if names.into_iter().any(|name| matches!(name, "." | "..")) {
            return Err(Refused::bad_request("the path has a segment `.` or `..`"));
        }
        match percent_encoding::percent_decode_str(&plain).decode_utf8_lossy() {
            Cow::Borrowed(_) => return Ok(()),
            Cow::Owned(decoded) => plain = segment::without_controls(decoded)?,
        }
    }
    Err(Refused::bad_request("the path is percent-encoded too many times"))
}
