//! Files of tests: private ones, and the configuration of the sample plugins.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use tempfile::TempDir;

/// A directory that only its owner can use. It is removed when this is dropped.
pub fn private_directory() -> TempDir {
    let private = Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().expect("a temporary directory")
}

/// Writes a file that only its owner can read and write.
pub fn private_file(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("a private file");
}

/// The text of a config with the provider `name`, exactly as `examples/plugins/README.md` shows it, except for the
/// directory of the plugin, and for its sandbox: a group may write to a working copy.
pub fn sample_config(name: &str) -> String {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins");
    let plugins = plugins.canonicalize().expect("examples/plugins");
    let readme = fs::read_to_string(plugins.join("README.md")).expect("a README");
    let stanza = readme
        .split("```")
        .filter_map(|block| block.strip_prefix("yaml\n"))
        .find(|block| block.starts_with(&format!("providers:\n- name: {name}\n")))
        .unwrap_or_else(|| panic!("no provider `{name}` in the README"));
    let stanza = stanza.replace("command: /plugins/", &format!("command: {}/", plugins.display()));
    let named = format!("- name: {name}\n");
    let stanza = stanza.replace(&named, &format!("{named}  sandbox: compatible\n"));
    format!("apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n{stanza}")
}
