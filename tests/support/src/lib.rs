//! Real parts for credbroker's tests: a Kubernetes-like API server that checks identities, fake exec plugins that
//! count their runs, kubeconfigs, and the real broker as a child process.
//!
//! Everything here blocks at most for a file or a process start, and works from plain and async tests alike.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    clippy::print_stdout,
    reason = "set-up that fails ends its test where it failed; tests start processes, read PATH and have no Clock"
)]

mod api_server;
mod broker;
mod evil_plugin;
mod fake_plugin;
mod files;
mod home;
mod kubeconfig;
mod terminal;
mod trust;
mod yaml;

pub use api_server::{Accepts, ApiServer, Collection, Flood, SeenRequest};
pub use broker::{Broker, BrokerBuilder};
pub use evil_plugin::EvilPlugin;
pub use fake_plugin::{FakePlugin, FakePluginBuilder};
pub use files::{private_directory, private_file, program_file, sample_config};
pub use home::Home;
pub use kubeconfig::Kubeconfig;
pub use terminal::Terminal;
pub use trust::{TrustCase, Verdict, as_user, directory_without_others};
