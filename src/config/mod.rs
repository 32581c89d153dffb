//! Stub until the loader is merged.
#![allow(missing_docs)]
use std::{num::NonZeroUsize, path::{Path, PathBuf}};
use crate::plugin::{Environment, Providers};
#[derive(Debug)] pub struct Config { pub listen: Listen, pub providers: Providers, pub limits: Limits }
#[derive(Debug)] pub struct Listen { pub socket: Option<PathBuf>, pub mode: u32, pub group: Option<String>, pub shared_directory: bool }
#[derive(Debug)] pub struct Limits { pub connections: NonZeroUsize, pub plugin_runs: NonZeroUsize, pub plugin_runs_per_provider: NonZeroUsize, pub entries: NonZeroUsize }
#[derive(Debug)] pub struct Loaded { pub config: Config, pub source: String, pub warnings: Vec<String> }
#[derive(Debug, thiserror::Error)] #[error("x")] pub struct ConfigError;
pub fn load(_: Option<&Path>, _: &Environment) -> Result<Loaded, ConfigError> { Err(ConfigError) }
