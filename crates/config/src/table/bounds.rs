//! Limits of the whole broker.

use std::num::NonZeroUsize;

use crate::schema::{ConfigKey, Count, Is, MOST, MOST_RUNS, Section, count};

section! {
    /// Limits of the whole broker.
    limits;

    /// Maximum number of open connections. A further one closes the connection that has been idle for the longest time, or
    /// fails with `OVERLOADED` if all had a call within the last second. The limit of open files can allow fewer, because
    /// the broker reserves descriptors for plugin runs.
    CONNECTIONS: Count, Is<NonZeroUsize> = ("connections", Count(MOST), Is(count(4096)), "1000");
    /// Bytes of connections, of calls in progress, of requests, and of answers that are not read. A connection takes
    /// 48 KiB, and a watch or another call that is open 2 KiB. More fails with `RESOURCE_EXHAUSTED`. One uid has at most three
    /// quarters of it and of `connections`, and one process at most three quarters of that.
    BYTES: Count, Is<NonZeroUsize> = ("bytes", Count(u32::MAX), Is(count(40 << 20)), "67108864");
    /// Maximum number of concurrent plugin runs, of all providers. Further ones are queued. While a caller of another uid
    /// waits, a uid has at most three quarters of them; and while another process of the uid waits, a process has at most
    /// three quarters of those of its uid, rounded up.
    PLUGIN_RUNS: Count, Is<NonZeroUsize> = ("pluginRuns", Count(MOST_RUNS), Is(count(8)), "16");
    /// Plugin runs that wait for a person at the same time: a person attends them, and they have written something to stderr
    /// or have used half of their `timeout`. They do not count among `pluginRuns`. While there are as many as this, a
    /// further one keeps its `timeout` and its place among `pluginRuns`.
    INTERACTIVE_RUNS: Count, Is<NonZeroUsize> = ("interactiveRuns", Count(MOST_RUNS), Is(count(8)), "4");
    /// Maximum number of credentials in memory. A further one replaces a credential that the variables or the cluster of a
    /// caller selected and that is idle: no caller waits for it or watches it. It is the least recently used one of the uid
    /// that selected the most; a uid with less than its fair part loses nothing to others. Otherwise, a further one replaces
    /// the least recently used of the other credentials, if it is idle and had no request in the last minute, or fails with
    /// `OVERLOADED`.
    ENTRIES: Count, Is<NonZeroUsize> = ("entries", Count(MOST), Is(count(10_000)), "1000");
    /// Maximum number of bytes of the credentials in memory, and of the variables and clusters of callers that select them.
    /// Where there is no room for more, credentials are replaced in the same order.
    ENTRY_BYTES: Count, Is<NonZeroUsize> = ("entryBytes", Count(u32::MAX), Is(count(64 << 20)), "33554432");
}
