//! `metrics`: where metrics and health are served.

use std::{net::SocketAddr, path::PathBuf};

use super::{problem::Report, reader::Cursor, table::metrics};

/// Where metrics and health are served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MetricsAddress {
    /// A loopback address: every user of the machine can connect.
    Loopback(SocketAddr),
    /// Absolute path of a Unix socket: its owner and group can connect.
    Unix(PathBuf),
}

/// The section `metrics`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetricsListen {
    /// Where to listen.
    pub address: MetricsAddress,
    /// Whether answers have the names of providers; `None`: unless there are access rules and no peer has an identity.
    pub provider_names: Option<bool>,
}

/// Reads the section. `has_rules`: the configuration has access rules.
pub(super) fn metrics_section(
    at: &Cursor<'_>,
    has_rules: bool,
    report: &mut Report,
) -> Option<MetricsListen> {
    let fields = at.section(&metrics::SECTION, report)?;
    let provider_names = metrics::PROVIDER_NAMES.read(&fields, report);
    let value = fields.required(&metrics::LISTEN, report)?;
    let text = value.text(report)?;
    let address = address(text);
    if address.is_none() {
        value.problem(
            report,
            "must be a loopback address with a port, like `127.0.0.1:9464`, or `unix:///absolute/path`: the answers are not encrypted",
        );
    }
    if has_rules && provider_names.is_none() && matches!(address, Some(MetricsAddress::Loopback(_))) {
        value.warning(
            report,
            "every user of the machine can connect, so with `access` rules the answers have no names of providers; set `providerNames: true`, or listen on a Unix socket",
        );
    }
    Some(MetricsListen { address: address?, provider_names })
}

fn address(text: &str) -> Option<MetricsAddress> {
    if let Some(path) = text.strip_prefix("unix://") {
        let path = PathBuf::from(path);
        return (path.is_absolute() && path.file_name().is_some()).then_some(MetricsAddress::Unix(path));
    }
    let address: SocketAddr = text.parse().ok()?;
    address.ip().is_loopback().then_some(MetricsAddress::Loopback(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_and_absolute_paths_are_valid() {
        for text in ["127.0.0.1:9464", "127.1.2.3:0", "[::1]:9464"] {
            assert_eq!(address(text), Some(MetricsAddress::Loopback(text.parse().unwrap())), "{text}");
        }
        assert_eq!(address("unix:///run/m/s"), Some(MetricsAddress::Unix("/run/m/s".into())));
        for text in
            ["", "9464", ":9464", "0.0.0.0:9464", "[::]:9464", "10.0.0.1:9464", "localhost:9464", "127.0.0.1"]
        {
            assert_eq!(address(text), None, "{text}");
        }
        for text in ["unix://", "unix://relative", "unix:/run/s", "unix:///", "/run/s"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
