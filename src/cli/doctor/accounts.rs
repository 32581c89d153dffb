//! Variables of this shell that may select an account, and that a plugin does not get through the broker.

use std::ffi::OsStr;

use credbroker_config::Loaded;
use credbroker_credential::text::{quoted, shown};
use credbroker_plugin::{Environment, Globs, Provider, may_select_identity, selects_account};
use credbroker_proto::{is_account_variable, is_identity_variable, is_of_all_programs};

use super::{
    Checks,
    findings::{NOTE, WARNING},
};

impl Checks<'_> {
    /// Which variables of this shell may select an account, and do not reach the plugins.
    pub(super) fn accounts(&mut self) {
        const CHECK: &str = "accounts";
        let Ok(Loaded { config, .. }) = &self.loaded else { return };
        for provider in config.providers.iter() {
            let (names, provider) = (not_taken(self.environment, provider).join(", "), shown(&provider.name));
            if !names.is_empty() {
                let text = format!(
                    "provider `{provider}` gets the broker's values of variables of this shell that may select an account: {names}"
                );
                let remedy = format!(
                    "add `callerEnv: [{names}]` to the provider to use the caller's values, or `callerEnv: []` to use the broker's values for every caller"
                );
                self.findings.add(CHECK, WARNING, text, remedy);
            }
        }
        let names = not_sent(self.environment);
        if !names.is_empty() && config.providers.iter().next().is_some() {
            let text = format!(
                "plugins get the broker's values of variables of this shell that may select an account: {}",
                names.join(", ")
            );
            let set = self.environment.set("CREDBROKER_CALLER_ENV").map(OsStr::to_string_lossy);
            let all: Vec<_> = set.as_deref().into_iter().chain(names).collect();
            let remedy = format!(
                "if your plugin uses them, run `export CREDBROKER_CALLER_ENV={}`, and name them in `callerEnv` of the configuration",
                quoted(&all.join(","))
            );
            self.findings.add(CHECK, NOTE, text, remedy);
        }
    }
}

/// Variables of common plugins that select an account although their names do not look so.
const OTHERS: [&str; 2] = ["GRANTED_SSO", "XDG_CONFIG_HOME"];

/// Those that the shim sends because of their names, and `provider` does not take.
pub(super) fn not_taken<'a>(environment: &'a Environment, provider: &Provider) -> Vec<&'a str> {
    let is_set = |name: &str| provider.env.iter().any(|(set, _)| set == name);
    let is_not_taken = |name: &&str| {
        is_account_variable(name.as_bytes())
            && !is_identity_variable(name.as_bytes())
            && selects_account(name)
            && !provider.takes(name, true)
            && !is_set(name)
    };
    let names = names(environment).filter(|_| provider.refuses_other_identities);
    names.filter(is_not_taken).collect()
}

/// Those that the shim does not send.
pub(super) fn not_sent(environment: &Environment) -> Vec<&str> {
    let more = environment.get("CREDBROKER_CALLER_ENV").and_then(|globs| globs.to_str());
    let more = Globs::new(more.unwrap_or_default().split(',').map(str::trim));
    let is_sent = |name: &str| is_identity_variable(name.as_bytes()) || is_account_variable(name.as_bytes());
    let is_other = |name: &str| is_of_all_programs(name.as_bytes()) || more.matches(name);
    let may_select = |name: &&str| may_select_identity(name) || OTHERS.contains(name);
    names(environment).filter(|name| !is_sent(name) && !is_other(name)).filter(may_select).collect()
}

fn names(environment: &Environment) -> impl Iterator<Item = &str> {
    environment.0.iter().filter(|(_, value)| !value.is_empty()).filter_map(|(name, _)| name.to_str())
}
