//! Limits of the whole broker.

use std::num::NonZeroUsize;

use crate::schema::{ConfigKey, Count, Is, MOST, MOST_RUNS, Optional, Section, count};

section! {
    /// Limits of the whole broker.
    limits;

    /// Maximum number of open connections. A further one closes the connection that has been idle for the longest time, or
    /// fails with `OVERLOADED` if all had a call within the last second. The limit of open files can allow fewer, because
    /// the broker reserves descriptors for plugin runs.
    CONNECTIONS: Count, Is<NonZeroUsize> = ("connections", Count(MOST), Is(count(4096)), "1000");
    /// Connections at the same time of all processes of one uid. For one more, an idle one of the uid is closed.
    CONNECTIONS_PER_UID: Count, Optional = ("connectionsPerUid", Count(MOST), Optional("three quarters of `connections`, at least 64"), "500");
    /// Connections at the same time of one process. For one more, an idle one of the process is closed. A process in
    /// another PID namespace has no process ID: `connectionsPerUid` limits its connections, and in the limits below
    /// all such processes of one uid count as one.
    CONNECTIONS_PER_PROCESS: Count, Optional = ("connectionsPerProcess", Count(MOST), Optional("a sixteenth of `connections`, at least 64"), "100");
    /// Streams of a connection at the same time: watches, gRPC health watches and reflection. One more fails with
    /// `RESOURCE_EXHAUSTED`; other calls of the connection do not.
    WATCHES_PER_CONNECTION: Count, Is<NonZeroUsize> = ("watchesPerConnection", Count(MOST), Is(count(1000)), "100");
    /// Bytes that the broker holds for the processes of one uid, in unfinished requests and in answers that are not read.
    /// More fails with `RESOURCE_EXHAUSTED`.
    BYTES_PER_UID: Count, Is<NonZeroUsize> = ("bytesPerUid", Count(u32::MAX), Is(count(64 << 20)), "33554432");
    /// The same for one process.
    BYTES_PER_PROCESS: Count, Is<NonZeroUsize> = ("bytesPerProcess", Count(u32::MAX), Is(count(16 << 20)), "8388608");
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
