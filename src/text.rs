//! Text that people read.

use std::{error::Error, fmt::Write as _};

/// An error and its causes in one line: `what failed: why: why`. No layer repeats another one.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _infallible = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
