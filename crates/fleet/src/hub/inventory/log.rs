//! What is logged about a profile.

use tracing::{debug, warn};

use crate::KnownProfile;
use credbroker_plugin::ProfileError;

/// Logs warnings and errors that `before` did not have. A status may be written often.
pub(super) fn log(known: &KnownProfile, before: Option<&KnownProfile>) {
    let profile = &known.profile.name;
    let is_logged = |warning: &&String| before.is_some_and(|before| before.warnings.contains(warning));
    for warning in known.warnings.iter().filter(|warning| !is_logged(warning)) {
        warn!(%profile, "{warning}");
    }
    let logged = before.and_then(|before| before.outcome.as_ref().err());
    match &known.outcome {
        Ok(_) => {}
        Err(error) if Some(error) == logged => {}
        // Normal for a new object: its status is written later.
        Err(ProfileError::NoMatch { profile: listed, .. }) if listed.is_empty() => {
            debug!(%profile, "ClusterProfile does not list an access provider yet");
        }
        Err(error) => warn!(%profile, "ClusterProfile cannot be used: {error}"),
    }
}
