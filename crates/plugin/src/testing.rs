//! Providers for tests.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use credbroker_credential::{ApiVersion, LifetimeLimits};

use crate::{
    ClusterInfo, Command, Globs, Interactive, Issuer, ProfileSourced, Provider, ProviderState, Sandbox,
    Verify,
};

/// More runs than any test has.
const MANY: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// A minimal provider.
pub fn provider(name: &str, command: Command) -> Provider {
    Provider {
        name: name.into(),
        definition: None,
        command,
        args: Vec::new(),
        env: Vec::new(),
        inherited: Arc::default(),
        caller_env: Globs::default(),
        refuses_other_identities: true,
        api_version: ApiVersion::V1,
        provide_cluster_info: false,
        interactive: Interactive::Never,
        install_hint: None,
        issuer: Arc::new(Issuer { name: name.into(), runs_per_second: MANY, concurrency: MANY }),
        sandbox: Sandbox::Strict,
        sha256: None,
        policy: Arc::default(),
        timeout: Duration::from_secs(30),
        interactive_timeout: Duration::from_secs(5 * 60),
        lifetime: LifetimeLimits { max_age: None, unknown_expiry_max_age: Duration::from_secs(10 * 60) },
        clusters: Vec::new(),
        cluster_info: ClusterInfo::FromCaller,
        verify: Verify::Auto,
        profile_sourced: Some(ProfileSourced::default()),
        profile_env: Globs::new(["*"]),
        state: ProviderState::default(),
    }
}
