//! The part of a caller's environment that reaches a plugin.

use std::{collections::BTreeMap, ffi::OsStr};

use super::{
    environment::is_denied,
    error::ResolveError,
    provider::Provider,
    variables::{Effect, effect},
};

/// Where a caller runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Origin {
    /// As the broker's own user, in its mount namespace and its PID namespace. Such a process could run the plugin with
    /// its own files anyway.
    Beside,
    /// Anywhere else, for example in another container.
    #[default]
    Elsewhere,
}

/// Whether the caller's variable `name` reaches the plugin. A variable that the stanza sets does not: the stanza's
/// value wins, and the caller's would only give equal runs different keys.
pub(super) fn reaches(name: &str, provider: &Provider) -> bool {
    provider.caller_env.matches(name) && !is_denied(name) && !is_set(name, provider)
}

/// Checks the variables of a caller. One that the provider does not take is refused only if it selects another
/// identity.
pub(super) fn check(
    env: &BTreeMap<String, String>,
    origin: Origin,
    provider: &Provider,
) -> Result<(), ResolveError> {
    for (name, value) in env {
        let is_taken = provider.caller_env.matches(name);
        if is_taken && is_set(name, provider) {
            continue; // the stanza's value reaches the plugin
        }
        let refused = if is_taken {
            if !is_possible(name, value) {
                return Err(ResolveError::InvalidVariable { name: name.clone() });
            }
            // An empty value names no file or program.
            !value.is_empty() && !is_allowed(name, origin, provider)
        } else {
            provider.refuses_other_identities && conflicts(name, value, provider)
        };
        if refused {
            return Err(refusal(name, provider));
        }
    }
    Ok(())
}

/// Whether a caller at `origin` may send the variable, which `callerEnv` names.
fn is_allowed(name: &str, origin: Origin, provider: &Provider) -> bool {
    match effect(name) {
        Effect::Program => false,
        // The variable reaches no plugin.
        _ if is_denied(name) => true,
        Effect::Place => origin == Origin::Beside,
        Effect::Unknown => origin == Origin::Beside || provider.caller_env.lists(name),
        Effect::Identity | Effect::Value => true,
    }
}

/// Whether the kernel can give a process this variable.
fn is_possible(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Whether the caller selects an identity with a value that the plugin would not receive.
fn conflicts(name: &str, value: &str, provider: &Provider) -> bool {
    effect(name) == Effect::Identity && run_value(name, provider).unwrap_or_default() != OsStr::new(value)
}

/// The value that the plugin would receive; `None`: unset.
fn run_value<'a>(name: &str, provider: &'a Provider) -> Option<&'a OsStr> {
    let set = provider.env.iter().rev().find(|(set, _)| set == name);
    set.map(|(_, value)| OsStr::new(value)).or_else(|| provider.inherited.get(name))
}

fn is_set(name: &str, provider: &Provider) -> bool {
    provider.env.iter().any(|(set, _)| set == name)
}

/// The error for a refused variable.
fn refusal(name: &str, provider: &Provider) -> ResolveError {
    let (variable, by) = (name.to_owned(), std::sync::Arc::clone(&provider.name));
    match effect(name) {
        Effect::Identity => {
            let runs_with = run_value(name, provider).is_some_and(|value| !value.is_empty());
            ResolveError::IdentityConflict { provider: by, variable, runs_with }
        }
        Effect::Program => {
            let danger = "it can make the plugin run another program";
            ResolveError::VariableNotAllowed { provider: by, variable, danger, remedy: "" }
        }
        Effect::Place => {
            let danger = "it names a file or a service, which only a process of the broker's own user, mount namespace and PID namespace may choose";
            ResolveError::VariableNotAllowed { provider: by, variable, danger, remedy: "" }
        }
        Effect::Unknown | Effect::Value => {
            let danger = "the broker does not know what it can change, and the caller is not in the broker's own mount namespace and PID namespace";
            let remedy = ", or name it in `callerEnv` without a `*`";
            ResolveError::VariableNotAllowed { provider: by, variable, danger, remedy }
        }
    }
}

#[cfg(test)]
mod tests;
