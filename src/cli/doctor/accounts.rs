//! Variables of this shell that may select an account, and that a plugin does not get through the broker.

use credbroker_plugin::{Environment, Globs, Provider, may_select_identity, selects_account};
use credbroker_proto::{is_account_variable, is_identity_variable, is_of_all_programs};

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
