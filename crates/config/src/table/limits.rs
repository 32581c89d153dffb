//! Limits of the whole broker.

use std::num::NonZeroUsize;

use crate::reader::Cursor;

/// Declares the section, and [`Limits`] with a field for each key.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $key:ident, $field:ident = ($name:literal, $most:expr, $default:expr, $example:literal);)+) => {
        section! {
            /// Limits of the whole broker.
            limits;

            $(
                $(#[doc = $doc])+
                $key: Count, Is<NonZeroUsize> = ($name, Count($most), Is(count($default)), $example);
            )+
        }

        /// Limits of the whole broker.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $field: NonZeroUsize,)+
        }

        impl Limits {
            /// Those of the section, if there is one.
            pub(crate) fn read(section: Option<&Cursor<'_>>) -> Self {
                Self { $($field: section.map_or(limits::$key.absent.0, |fields| limits::$key.read(fields))),+ }
            }
        }
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::read(None)
    }
}

limits! {
    /// Maximum number of open connections. A further one closes the connection that has been idle for the longest time, or
    /// fails with `OVERLOADED` if all had a call within the last second. The limit of open files can allow fewer, because
    /// the broker reserves descriptors for plugin runs.
    CONNECTIONS, connections = ("connections", MOST, 4096, "1000");
    /// Bytes of connections, of calls in progress, of requests, and of answers that are not read. A connection takes
    /// 48 KiB, and a watch or another call that is open 2 KiB. More fails with `RESOURCE_EXHAUSTED`. One uid has at most three
    /// quarters of it and of `connections`, and one process at most three quarters of that.
    BYTES, bytes = ("bytes", u32::MAX, 40 << 20, "67108864");
    /// Maximum number of concurrent plugin runs, of all providers. Further ones are queued. While a caller of another uid
    /// waits, a uid has at most three quarters of them; and while another process of the uid waits, a process has at most
    /// three quarters of those of its uid, rounded up.
    PLUGIN_RUNS, plugin_runs = ("pluginRuns", MOST_RUNS, 8, "16");
    /// Plugin runs that wait for a person at the same time: a person attends them, and they have written something to stderr
    /// or have used half of their `timeout`. They do not count among `pluginRuns`. While there are as many as this, a
    /// further one keeps its `timeout` and its place among `pluginRuns`.
    INTERACTIVE_RUNS, interactive_runs = ("interactiveRuns", MOST_RUNS, 8, "4");
    /// Maximum number of credentials in memory. A further one replaces a credential that the variables or the cluster of a
    /// caller selected and that is idle: no caller waits for it or watches it. It is the least recently used one of the uid
    /// that selected the most; a uid with less than its fair part loses nothing to others. Otherwise, a further one replaces
    /// the least recently used of the other credentials, if it is idle and had no request in the last minute, or fails with
    /// `OVERLOADED`.
    ENTRIES, entries = ("entries", MOST, 10_000, "1000");
    /// Maximum number of bytes of the credentials in memory, and of the variables and clusters of callers that select them.
    /// Where there is no room for more, credentials are replaced in the same order.
    ENTRY_BYTES, entry_bytes = ("entryBytes", u32::MAX, 64 << 20, "33554432");
}
