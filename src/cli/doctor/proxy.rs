//! Whether clients send what is for credbroker's proxy to an HTTP proxy. kubectl and all other clients in Go do not, because the
//! proxy is on the loopback interface; fabric8 does, and Python's client since version 34.1, unless `NO_PROXY` names the address.
//! Versions 34.1 and 35.0 of Python's ignore `NO_PROXY`.

use std::{ffi::OsStr, net::IpAddr};

use credbroker_credential::text::quoted;
use credbroker_plugin::Environment;

use super::{
    Checks,
    findings::{NOTE, WARNING},
};

/// Variables that name an HTTP proxy for `https://`, for at least one version of Python's client.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// Where the proxy listens, unless it is `[::1]`.
const ADDRESS: &str = "127.0.0.1";
const VERSIONS: &str = "versions 34.1 and 35.0 of Python's client `kubernetes` ignore NO_PROXY";

impl Checks<'_> {
    /// For a kubeconfig with users who go through the proxy.
    pub(super) fn http_proxy(&mut self) {
        const CHECK: &str = "HTTP proxy";
        let set: Vec<_> = PROXIES.into_iter().filter(|name| self.environment.set(name).is_some()).collect();
        let Some(name) = set.first() else { return };
        let text = |what: &str| format!("{name} is set, and the kubeconfig uses {ADDRESS}: {what}");
        let list = exceptions(self.environment).unwrap_or_default();
        if has_loopback(list) {
            let all = set.join(" -u ");
            let remedy =
                format!("if you have one of these, install another version, or run it with `env -u {all}`");
            return self.findings.add(CHECK, NOTE, text(VERSIONS), remedy);
        }
        let separator = if list.is_empty() { "" } else { "," };
        let list = quoted(&format!("{list}{separator}{ADDRESS}"));
        let remedy =
            format!("run `export NO_PROXY={list}`, and install another version instead of 34.1 and 35.0");
        let what = format!(
            "Python's client, kube-rs and fabric8 send their requests to that HTTP proxy; {VERSIONS}"
        );
        self.findings.add(CHECK, WARNING, text(&what), remedy);
    }
}

/// The hosts that need no HTTP proxy. Programs prefer the name in lower case.
fn exceptions(environment: &Environment) -> Option<&str> {
    let list = environment.set("no_proxy").or_else(|| environment.set("NO_PROXY"));
    list.and_then(OsStr::to_str)
}

/// Whether an item of `list` is our address: the address, a network with it, or `*`.
fn has_loopback(list: &str) -> bool {
    list.split(',').map(str::trim).any(|item| {
        let (address, bits) = item.split_once('/').unwrap_or((item, "32"));
        let network = address.parse::<IpAddr>().ok().zip(bits.parse::<u32>().ok());
        let is_in = |(network, bits): (IpAddr, u32)| match network {
            IpAddr::V4(network) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or_default();
                (network.to_bits() ^ std::net::Ipv4Addr::LOCALHOST.to_bits()) & mask == 0
            }
            IpAddr::V6(_) => false,
        };
        item == "*" || network.is_some_and(is_in)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_in_the_list_by_itself_or_in_a_network() {
        for list in ["127.0.0.1", "corp, 127.0.0.1", "127.0.0.0/8", "*", "0.0.0.0/0", "127.0.0.1/32"] {
            assert!(has_loopback(list), "{list}");
        }
        for list in [
            "",
            "localhost",
            "10.0.0.0/8",
            "127.0.0.2",
            "127.0.0.0/32",
            ".corp",
            "::1",
            "127.0.0.1/x",
            "127.0",
        ] {
            assert!(!has_loopback(list), "{list}");
        }
    }
}
