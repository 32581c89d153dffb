use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;

#[test]
fn paths_are_cleaned_as_go_does() {
    for (path, expected) in [
        ("", "."),
        ("abc/def/", "abc/def"),
        ("/", "/"),
        ("./abc//def", "abc/def"),
        ("../../abc", "../../abc"),
        ("/abc/../../..", "/"),
        ("abc/../../././../def", "../../def"),
        ("/abc/def/../ghi/../jkl", "/abc/jkl"),
    ] {
        assert_eq!(cleaned(Path::new(path)).as_os_str(), expected, "{path}");
    }
}

/// The scenarios of KEP-3104: two directories with a plugin of the same name, of which `search` has both.
#[test]
fn an_entry_permits_the_command_as_written_or_the_file_that_runs() {
    let home = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| home.path().join(name));
    for directory in [&first, &second] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("plugin"), "").unwrap();
        fs::set_permissions(directory.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let search = std::env::join_paths([&first, &second]).unwrap();
    let [first, second] = [first, second].map(|directory| directory.join("plugin"));
    let [first_text, second_text] = [&first, &second].map(|path| path.to_str().unwrap().to_owned());
    let name = || Command::Name("plugin".into());
    let path = |path: &Path| Command::Path(path.to_owned());
    for (entry, command, runs, is_permitted) in [
        ("plugin", name(), &first, true),
        (&*first_text, name(), &first, true),
        (&*second_text, name(), &first, false),
        ("plugin", path(&first), &first, true), // the name leads there
        ("plugin", path(&second), &second, false),
        (&*second_text, path(&second), &second, true),
        (&*first_text, path(&second), &second, false),
        ("other", name(), &first, false),
    ] {
        let policy = PluginPolicy::Allowlist(vec!["unrelated".into(), entry.into()]);
        let refusal = policy.refusal(&command, Some(runs), Some(&search));
        assert_eq!(refusal.is_none(), is_permitted, "{entry} {command}");
    }
}

#[test]
fn a_plugin_that_does_not_exist_is_permitted_only_as_written() {
    let command = Command::Name("absent".into());
    let listed = |entry: &str| PluginPolicy::Allowlist(vec![entry.into()]);
    let refusal = |policy: PluginPolicy| policy.refusal(&command, None, Some("/usr/bin".as_ref()));
    assert_eq!(refusal(listed("absent")), None);
    assert_eq!(refusal(listed("/usr/bin/absent")), Some(Refusal::NotListed { command: "absent".into() }));
    assert_eq!(refusal(PluginPolicy::DenyAll), Some(Refusal::DenyAll));
    assert_eq!(refusal(PluginPolicy::AllowAll), None);
}
