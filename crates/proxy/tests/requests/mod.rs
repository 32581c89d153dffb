//! Requests of real clients.

#![allow(dead_code, reason = "each test uses some of the fields")]

/// One request, as a client sent it.
pub(crate) struct Recorded {
    pub(crate) client: &'static str,
    pub(crate) method: &'static str,
    pub(crate) target: &'static str,
    /// Names and values.
    pub(crate) headers: Vec<(&'static str, &'static str)>,
}

/// All of them.
pub(crate) fn recorded() -> impl Iterator<Item = Recorded> {
    let lines = include_str!("recorded.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [client, method, target, upgrade, connection, protocols, origin] = fields[..] else {
            panic!("{line} does not have seven fields");
        };
        let headers = [
            ("host", "127.0.0.1:18999"),
            ("upgrade", upgrade),
            ("connection", connection),
            ("sec-websocket-protocol", protocols),
            ("origin", origin),
        ];
        let headers = headers.into_iter().filter(|(_, value)| *value != "-").collect();
        Recorded { client, method, target, headers }
    })
}
