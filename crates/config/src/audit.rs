//! The section `audit`: where decisions and runs are recorded.

use std::path::PathBuf;

use super::{file::expand, problem::Report, reader::Cursor, table::audit as table};
use credbroker_plugin::Environment;

/// Where decisions and runs are recorded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum AuditTo {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In the broker's log.
    Log,
    /// In a file.
    File(PathBuf),
}

/// Reads the section `audit`.
pub(super) fn audit(
    section: Option<&Cursor<'_>>,
    has_rules: bool,
    env: &Environment,
    report: &mut Report,
) -> AuditTo {
    let default = if has_rules { AuditTo::Log } else { AuditTo::Nowhere };
    let Some(section) = section else { return default };
    let Some(fields) = section.section(&table::SECTION, report) else { return default };
    let Some(value) = fields.at(&table::FILE) else { return AuditTo::Log };
    let Some(path) = value.text(report).map(|text| expand(text, env)) else { return default };
    if !path.is_absolute() {
        value.problem(report, "must be an absolute path");
    }
    AuditTo::File(path)
}
