//! Providers for tests.

use std::{
    ffi::OsStr,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, SystemTime},
};

use credbroker_credential::{ApiVersion, LifetimeLimits};

use crate::{
    ClusterInfo, Command, Executable, FileQuery, FoundFile, Globs, Interactive, Issuer, PluginFile,
    ProfileSourced, Provider, ProviderState, Sandbox,
};

/// More runs than any test has.
const MANY: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// A minimal provider.
pub fn provider(name: &str, command: Command) -> Provider {
    Provider {
        name: name.into(),
        definition: None,
        stored: None,
        command,
        args: Vec::new(),
        env: Vec::new(),
        inherited: Arc::default(),
        caller_env: Globs::default(),
        refuses_other_identities: true,
        identity_files: Vec::new(),
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
        verify: true,
        profile_sourced: Some(ProfileSourced::default()),
        profile_env: Globs::new(["*"]),
        state: ProviderState::default(),
    }
}

impl PluginFile {
    /// The file of `command`; `path` is the `PATH` in which a bare name is looked up. It was not looked up yet.
    pub fn new(command: Command, path: Option<&OsStr>) -> Self {
        let path = path.map(OsStr::to_owned).unwrap_or_default();
        Self::of(FileQuery { command, path, sha256: None, is_listed: false })
    }

    /// Acts as if a look-up had found another file.
    pub fn replace(&self) {
        let executable =
            Executable { path: "/fake".into(), inode: self.version() + 1, modified: SystemTime::UNIX_EPOCH };
        self.note(Ok(Some(FoundFile {
            executable: executable.into(),
            version: 0,
            refusal: None,
            is_first_in_path: false,
        })));
    }
}

impl Issuer {
    /// An issuer with the default rate, 10 runs in a second.
    pub fn new(name: impl Into<Arc<str>>, concurrency: NonZeroUsize) -> Self {
        let runs_per_second = NonZeroUsize::new(10).unwrap_or(NonZeroUsize::MIN);
        Self { name: name.into(), runs_per_second, concurrency }
    }
}
