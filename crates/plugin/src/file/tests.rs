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

#[test]
fn a_plugin_that_does_not_exist_is_permitted_only_as_written() {
    let command = Command::Name("absent".into());
    let listed = |entry: &str| PluginPolicy::Allowlist(vec![entry.into()]);
    let refusal = |policy: PluginPolicy| policy.refusal(&command, None);
    assert_eq!(refusal(listed("absent")), None);
    assert_eq!(refusal(listed("/usr/bin/absent")), Some(Refusal::NotListed("absent".into())));
    assert_eq!(refusal(PluginPolicy::DenyAll), Some(Refusal::DenyAll));
    assert_eq!(refusal(PluginPolicy::AllowAll), None);
}

fn command() -> Command {
    Command::Name("plugin".into())
}

#[test]
fn reading_looks_at_nothing() {
    let file = PluginFile::new(command(), None);
    assert!(matches!(file.found(), Err(FileError::Unanswered)), "nothing was looked at yet");
    assert_eq!((file.version(), file.to_string()), (0, "plugin".to_owned()));
    let executable = Executable { path: "/plugin".into(), inode: 1, modified: SystemTime::UNIX_EPOCH };
    file.note(Ok(Some(FoundFile {
        executable: executable.into(),
        version: 0,
        refusal: None,
        is_first_in_path: false,
    })));
    assert_eq!((file.version(), file.to_string()), (1, "/plugin".to_owned()));
    assert!(file.found().is_ok());
}

#[test]
fn a_replaced_file_is_found_as_another_version() {
    let file = PluginFile::new(command(), None);
    for version in 1..3 {
        file.replace();
        assert_eq!((file.version(), file.found().unwrap().version), (version, version));
    }
}
