//! The part of a caller's environment that reaches a plugin.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    sync::{Arc, LazyLock},
};

use credbroker_proto::Globs;

use super::{
    error::ResolveError,
    provider::Provider,
    reaching::{identity_variables, is_denied},
    variables::{Effect, effect, may_select_identity},
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

/// Checks the variables of a caller. One that the provider does not take is refused only if it may select another
/// identity.
pub(super) fn check(
    env: &BTreeMap<String, String>,
    origin: Origin,
    provider: &Provider,
) -> Result<(), ResolveError> {
    for (name, value) in env {
        if !provider.caller_env.matches(name) {
            if provider.refuses_other_identities && conflicts(name, value, provider) {
                return Err(conflict(name, provider));
            }
        } else if is_set(name, provider) {
            // The stanza's value reaches the plugin.
        } else if !is_possible(name, value) {
            let (provider, variable) = (Arc::clone(&provider.name), name.clone());
            return Err(ResolveError::InvalidVariable { provider, variable });
        } else if !value.is_empty() && !is_allowed(name, origin, provider) {
            // An empty value would name no file or program.
            return Err(not_allowed(name, provider));
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
    selects_identity(name) && run_value(name, provider).unwrap_or_default() != OsStr::new(value)
}

/// Whether a caller may select an identity with the variable. One that is in no table counts if it looks so, and if callers
/// do not send it by default: this caller chose to.
fn selects_identity(name: &str) -> bool {
    static SENT: LazyLock<Globs> = LazyLock::new(identity_variables);
    match effect(name) {
        Effect::Identity => true,
        Effect::Unknown => !SENT.matches(name) && may_select_identity(name),
        Effect::Program | Effect::Place | Effect::Value => false,
    }
}

/// The value that the plugin would receive; `None`: unset.
fn run_value<'a>(name: &str, provider: &'a Provider) -> Option<&'a OsStr> {
    let set = provider.env.iter().rev().find(|(set, _)| set == name);
    set.map(|(_, value)| OsStr::new(value)).or_else(|| provider.inherited.get(name))
}

fn is_set(name: &str, provider: &Provider) -> bool {
    provider.env.iter().any(|(set, _)| set == name)
}

fn conflict(name: &str, provider: &Provider) -> ResolveError {
    let runs_with = run_value(name, provider).is_some_and(|value| !value.is_empty());
    let (provider, variable) = (Arc::clone(&provider.name), name.to_owned());
    ResolveError::IdentityConflict { provider, variable, runs_with }
}

/// The error for a variable that `callerEnv` names and that the caller may not send.
fn not_allowed(name: &str, provider: &Provider) -> ResolveError {
    let (danger, remedy) = match effect(name) {
        Effect::Program => ("it can make the plugin run another program", ""),
        Effect::Place => (
            "it names a file or a service, which only a process of the broker's own user, mount namespace and PID namespace may choose",
            "",
        ),
        Effect::Unknown | Effect::Identity | Effect::Value => (
            "the broker does not know what it can change, and the caller is not a process of the broker's own user, mount namespace and PID namespace",
            ", or name it in `callerEnv` without a `*`",
        ),
    };
    let (provider, variable) = (Arc::clone(&provider.name), name.to_owned());
    ResolveError::VariableNotAllowed { provider, variable, danger, remedy }
}

#[cfg(test)]
mod tests;
