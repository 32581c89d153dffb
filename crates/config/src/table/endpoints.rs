//! Where the broker listens, and where it writes records.

use crate::{
    keys::{ConfigKey, Is, Optional, Required, Section},
    kinds::{Boolean, Checked, Name, SocketMode, Text},
};

section! {
    /// A socket that the broker listens on.
    listen;

    /// Name of the listener, for access rules. Each listener needs a different one.
    NAME: Name, Optional = ("name", Name, Optional("`default`"), "apps");
    /// Absolute path of the socket.
    SOCKET: Checked, Optional = ("socket", Checked("absolute path", "^$|^/|^~(/|$)"), Optional("`$XDG_RUNTIME_DIR/credbroker/credbroker.sock`, or `/run/credbroker/credbroker.sock` without that variable"), "/run/credbroker/credbroker.sock");
    /// Permission bits of the socket, as an octal number in quotes. If the socket's directory does not exist, the broker
    /// creates it with mode 0700, with 0750 if the group may connect, or with 0755 if every user may.
    MODE: SocketMode, Is<u32> = ("mode", SocketMode, Is(0o600), "\"0660\"");
    /// Group of the socket and of a directory that the broker creates for it, as a name or a number. The broker must be a
    /// member of the group or run as root.
    GROUP: Text, Optional = ("group", Text, Optional("the group of the broker's process"), "staff");
    /// The socket is in a directory that other users can write to, or one level below it, such as a Kubernetes `emptyDir`.
    /// The broker puts the socket into a folder in which only the broker can replace it. It creates that folder with mode
    /// 0711, or with 0710 if `group` is set and other users may not connect. If `socket` is directly in the shared
    /// directory, as in `/shared/credbroker.sock`, the folder is `/shared/credbroker.sock.d`, which clients find.
    SHARED_DIRECTORY: Boolean, Is<bool> = ("sharedDirectory", Boolean, Is(false), "true");
}

section! {
    /// Metrics and health over HTTP: `/metrics`, `/livez`, `/readyz` and `/readyz/PROVIDER`. The answers never have a secret.
    metrics;

    /// Where to listen: a loopback address with a port, which every user of the machine can connect to, or a
    /// separate Unix socket, which only the broker's user and group can.
    LISTEN: Checked, Required = ("listen", Checked("`127.0.0.1:PORT`, `[::1]:PORT` or `unix:///PATH`", r"^(127\.[0-9.]+|\[::1\]):[0-9]+$|^unix:///.*[^/]"), Required("`127.0.0.1:9464`, or `unix:///run/credbroker-metrics/http.sock`"), "\"127.0.0.1:9464\"");
    /// Whether the answers have the names of providers. Without them, `/metrics` leaves out what has the label `provider`,
    /// `/readyz` reports all providers as `*`, and `/readyz/PROVIDER` is not found.
    PROVIDER_NAMES: Boolean, Optional = ("providerNames", Boolean, Optional("`true`; `false` on a loopback address while there are `access` rules, because the broker cannot know who connects to it"), "true");
}

section! {
    /// Records of decisions and of plugin runs.
    audit;

    /// Absolute path of the file for the records: one JSON object in each line. The broker creates it with mode 0600, and
    /// begins a new one if another program moves it. No user but the broker's own and root may be able to change it, or a
    /// directory on the way to it.
    FILE: Checked, Optional = ("file", Checked("absolute path", "^/|^~(/|$)"), Optional("the broker's log, which has decisions only"), "/var/lib/credbroker/audit.jsonl");
}
