//! What a profile may add to its provider's invocation.

use std::sync::Arc;

use super::{denied::is_denied_to_profiles, extensions::Extensions};
use crate::{ArgsPolicy, EnvPolicy, ProfileError, ProfileSourced, Provider};

/// Maximum number of arguments or of variables that a profile adds, and of their bytes in total.
const ITEMS: usize = 64;
const BYTES: usize = 32 << 10;

/// The checked additions of a profile.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Additions {
    /// The provider's arguments and then the profile's; `None`: the provider's alone.
    pub(super) args: Option<Vec<String>>,
    /// The provider's variables and the profile's; `None`: the provider's alone.
    pub(super) env: Option<Vec<(String, String)>>,
}

/// What comes of `extensions` for a run of `provider`: new lists, never those of the provider. What its policies ignore
/// is not even looked at.
pub(super) fn additions(extensions: &Extensions<'_>, provider: &Provider) -> Result<Additions, ProfileError> {
    let sourced = provider.profile_sourced.unwrap_or_default();
    Ok(Additions { args: sourced.args(extensions, &provider.args)?, env: sourced.env(extensions, provider)? })
}

impl ProfileSourced {
    fn args(self, extensions: &Extensions<'_>, args: &[String]) -> Result<Option<Vec<String>>, ProfileError> {
        if self.args == ArgsPolicy::Ignore {
            return Ok(None);
        }
        let (added, at) = extensions.args()?;
        bounded(added.iter().map(|arg| arg.len()), at)?;
        if added.iter().any(|arg| !is_one_line(arg)) {
            return Err(invalid(at, "holds an argument with a line break or a NUL"));
        }
        let all = args.iter().cloned().chain(added.iter().map(|arg| (*arg).to_owned()));
        Ok((!added.is_empty()).then(|| all.collect()))
    }

    fn env(
        self,
        extensions: &Extensions<'_>,
        provider: &Provider,
    ) -> Result<Option<Vec<(String, String)>>, ProfileError> {
        let env = &provider.env;
        if self.env == EnvPolicy::Ignore {
            return Ok(None);
        }
        let (added, at) = extensions.envs()?;
        bounded(added.iter().map(|(name, value)| name.len() + value.len()), at)?;
        for (name, value) in &added {
            if name.is_empty() || name.contains('=') || !is_one_line(name) || !is_one_line(value) {
                let problem = "holds a variable with an empty name, a `=` in its name, a line break or a NUL";
                return Err(invalid(at, problem));
            }
            if is_denied_to_profiles(name, value) {
                let (field, variable) = (at.to_owned(), (*name).to_owned());
                return Err(ProfileError::VariableDenied { field, variable });
            }
            if !provider.profile_env.matches(name) {
                let (field, variable) = (at.to_owned(), (*name).to_owned());
                let provider = Arc::clone(&provider.name);
                return Err(ProfileError::VariableNotAllowed { field, provider, variable });
            }
        }
        let set = |name: &str| env.iter().any(|(set, _)| set == name);
        let wins = |name: &str| self.env == EnvPolicy::Replace || !set(name);
        let added: Vec<_> = added.into_iter().filter(|(name, _)| wins(name)).collect();
        if added.is_empty() {
            return Ok(None);
        }
        // Each name once: which of two values a process uses depends on how it reads them.
        let kept =
            env.iter().filter(|(name, _)| !added.iter().any(|(replaced, _)| replaced == name)).cloned();
        let added = added.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Ok(Some(kept.chain(added).collect()))
    }
}

fn bounded(sizes: impl ExactSizeIterator<Item = usize>, at: &str) -> Result<(), ProfileError> {
    if sizes.len() > ITEMS {
        return Err(invalid(at, "has more than 64 items"));
    }
    if sizes.sum::<usize>() > BYTES {
        return Err(invalid(at, "has more than 32 KiB"));
    }
    Ok(())
}

fn is_one_line(text: &str) -> bool {
    !text.contains(['\0', '\n', '\r'])
}

fn invalid(at: &str, problem: &'static str) -> ProfileError {
    ProfileError::Invalid { field: at.to_owned(), problem }
}
