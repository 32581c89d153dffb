//! Files of tests: private ones, and the configuration of the sample plugins.

use std::{
    fs::{self, Permissions},
    io::Write as _,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
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

/// Writes a program that every user can run. A child writes it: were it open for writing here, a process that another
/// thread forks in that moment would hold it open too, and its start would fail with ETXTBSY.
pub fn program_file(path: &Path, contents: impl AsRef<[u8]>) {
    let mut child = Command::new("/bin/sh")
        .args(["-c", r#"cat > "$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    child.stdin.take().expect("a pipe").write_all(contents.as_ref()).expect("the contents");
    assert!(child.wait().expect("the shell").success(), "cannot write {}", path.display());
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
    let stanza = stanza.replace(&named, &format!("{named}  sandbox: Compatible\n"));
    format!("apiVersion: credbroker.io/v1alpha1\nkind: BrokerConfig\n{stanza}")
}
