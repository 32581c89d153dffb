//! The peer exceeds a limit.

use std::time::Duration;

use credbroker_proto::{LIMIT, Reason};
use tonic::Status;

use super::{SUCCESSOR, defect, draining, status};
use credbroker_uds_server::{Full, Refusal, TooManyBytes};

/// The status of a call that the server on the socket refuses or ends.
pub(crate) fn refusal(why: Refusal) -> Status {
    match why {
        Refusal::Connections(full) => too_many_connections(full),
        Refusal::Bytes(bytes) => too_many_bytes(bytes),
        Refusal::Watches(limit) => too_many_watches(limit),
        Refusal::Incomplete(limit) => unfinished(limit),
        Refusal::Draining => draining(),
        Refusal::Defect => defect(),
    }
}

/// One connection too many.
fn too_many_connections(full: Full) -> Status {
    let (limit, who, count) = match full {
        Full::Connections(count) => ("limits.connections", "the broker serves", count),
        Full::OpenFiles(count) => {
            let message = format!(
                "the broker serves {count} connections, as many as its limit of open files allows beside plugin runs; try again when one is closed, or raise the limit (`LimitNOFILE=` of systemd, `ulimit -n`)"
            );
            return overloaded("open files", &message, Some(SUCCESSOR));
        }
        Full::Silent(count) => {
            let message = format!(
                "this process has {count} connections without a call, which is the limit; send calls on those, or try again"
            );
            return overloaded("silent connections", &message, Some(SUCCESSOR));
        }
        Full::Process(count) => ("limits.connectionsPerProcess", "this process has", count),
        Full::Uid(count) => ("limits.connectionsPerUid", "the processes of this uid have", count),
    };
    let message = format!(
        "{who} {count} connections, which is the limit (`{limit}`), and all are in use; try again when one is closed"
    );
    overloaded(limit, &message, Some(SUCCESSOR))
}

/// One watch too many on one connection.
fn too_many_watches(limit: usize) -> Status {
    let message = format!(
        "this connection has {limit} watches, which is the limit (`limits.watchesPerConnection`); open another connection"
    );
    overloaded("limits.watchesPerConnection", &message, None)
}

/// The unfinished requests of one connection are too large, or the bytes of all connections of a process or a uid.
fn too_many_bytes(TooManyBytes { name, limit }: TooManyBytes) -> Status {
    if name.starts_with("limits.") {
        let message = format!(
            "the unfinished requests and unread answers of this process or uid exceed {limit} bytes, which is the limit (`{name}`); finish and read some"
        );
        return overloaded(name, &message, Some(SUCCESSOR));
    }
    let limit = limit >> 20;
    let message = format!(
        "the unfinished requests of this connection exceed {limit} MiB, which is the limit; finish some, or open another connection"
    );
    overloaded(name, &message, None)
}

/// A request was not received in time.
fn unfinished(limit: Duration) -> Status {
    let message = format!("the request was not received completely within {limit:?}; send it again");
    status(Reason::RequestIncomplete, &message, None, [])
}

fn overloaded(limit: &str, message: &str, retry: Option<Duration>) -> Status {
    status(Reason::Overloaded, message, retry, [(LIMIT, limit.to_owned())])
}
