//! The sample plugins, configured as their README says.

use std::{fs, path::Path};

/// The text of a config with the provider `name`, word for word as `examples/plugins/README.md` shows it, but for the
/// directory of the plugin.
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
    format!("apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n{stanza}")
}
