use std::cell::RefCell;

use super::*;
use crate::{Globs, file::Command, testing::provider};

/// Contents by path.
#[derive(Default)]
struct Disk(RefCell<BTreeMap<PathBuf, String>>);

impl Disk {
    fn put(&self, file: &str, content: &str) {
        self.0.borrow_mut().insert(file.into(), content.into());
    }

    fn judge(&self, files: &IdentityFiles, millis: u64) -> Option<u64> {
        let read = |path: &Path| self.0.borrow().get(path).cloned().unwrap_or_default();
        files.judge(read, || Duration::from_millis(millis))
    }
}

fn plugin(command: &str, args: &[&str]) -> Provider {
    let mut plugin = provider("p", Command::Name(command.into()));
    plugin.args = args.iter().map(ToString::to_string).collect();
    plugin.caller_env = Globs::new(["*"]);
    plugin.inherited = Arc::new([("HOME", "/home")].into_iter().collect());
    plugin
}

fn of(command: &str, args: &[&str], variables: &[(&str, &str)]) -> Vec<Rule> {
    let caller_env =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    rules(&plugin(command, args), &caller_env)
}

fn files_of(rules: Vec<Rule>) -> IdentityFiles {
    IdentityFiles { rules, turn: Arc::default(), stamp: AtomicU64::new(1), seen: Mutex::default() }
}

fn aws(args: &[&str]) -> IdentityFiles {
    files_of(of("aws", args, &[]))
}

/// A command, its arguments and variables, and the files that select its account.
type Case = (&'static str, List, &'static [(&'static str, &'static str)], List);
type List = &'static [&'static str];

#[test]
fn the_name_of_the_plugin_its_arguments_and_its_variables_say_which_files_select_the_account() {
    let cases: [Case; 15] = [
        (
            "gcloud",
            &[],
            &[],
            &["/home/.config/gcloud/active_config", "/home/.config/gcloud/configurations/config_default"],
        ),
        (
            "gke-gcloud-auth-plugin",
            &[],
            &[("CLOUDSDK_CONFIG", "/g")],
            &["/g/active_config", "/g/configurations/config_default"],
        ),
        (
            "gcloud",
            &[],
            &[("CLOUDSDK_CONFIG", "~/g")],
            &["/home/g/active_config", "/home/g/configurations/config_default"],
        ),
        ("gcloud", &[], &[("CLOUDSDK_CONFIG", "relative")], &[]),
        (
            "gcloud",
            &["--configuration=a", "--configuration", "b"],
            &[("CLOUDSDK_CONFIG", "/g"), ("CLOUDSDK_ACTIVE_CONFIG_NAME", "c")],
            &[
                "/g/active_config",
                "/g/configurations/config_a",
                "/g/configurations/config_b",
                "/g/configurations/config_c",
                "/g/configurations/config_default",
            ],
        ),
        (
            "gcloud",
            &["--configuration=../a"],
            &[("CLOUDSDK_CONFIG", "/g")],
            &["/g/active_config", "/g/configurations/config_default"],
        ),
        ("aws", &[], &[], &["/home/.aws/config", "/home/.aws/credentials"]),
        (
            "aws-iam-authenticator",
            &[],
            &[("AWS_CONFIG_FILE", "")],
            &["/home/.aws/config", "/home/.aws/credentials"],
        ),
        ("aws", &[], &[("AWS_CONFIG_FILE", "/c")], &["/c", "/home/.aws/credentials"]),
        ("aws", &[], &[("AWS_SHARED_CREDENTIALS_FILE", "/c")], &["/c", "/home/.aws/config"]),
        ("az", &[], &[], &["/home/.azure/azureProfile.json"]),
        ("kubelogin", &[], &[("AZURE_CONFIG_DIR", "/a")], &["/a/azureProfile.json"]),
        ("tsh", &[], &[], &["/home/.tsh/current-profile"]),
        ("tsh", &[], &[("TELEPORT_HOME", "/t")], &["/t/current-profile"]),
        ("other", &[], &[], &[]),
    ];
    for (command, args, variables, expected) in cases {
        let files = files_of(of(command, args, variables));
        files.judge(|_| "", Duration::default);
        let expected: Vec<_> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(files.files(), expected, "{command} {args:?} {variables:?}");
    }
    let stanza = Provider {
        command: Command::Path("/opt/az".into()),
        identity_files: vec!["/own".into()],
        env: vec![("AZURE_CONFIG_DIR".into(), "/a".into())],
        ..plugin("", &[])
    };
    let caller = BTreeMap::from([("AZURE_CONFIG_DIR".into(), "/not/the/stanza's".into())]);
    let expected = ["/own", "/a/azureProfile.json"].map(|file| Rule::File(file.into()));
    assert_eq!(rules(&stanza, &caller), expected);
}

#[test]
fn the_profiles_of_aws_are_those_of_its_arguments_and_variables() {
    let profiles = |args: &[&str], variables: &[(&str, &str)]| match &of("aws", args, variables)[..] {
        [Rule::Aws(_, profiles)] => profiles.clone().map(|profiles| profiles.join(" ")),
        other => panic!("{other:?}"),
    };
    assert_eq!(profiles(&["eks"], &[]).as_deref(), Some("default"));
    assert_eq!(profiles(&["--profile", "a"], &[]).as_deref(), Some("a"));
    assert_eq!(profiles(&["--profile=a"], &[("AWS_PROFILE", "b")]).as_deref(), Some("a b"));
    assert_eq!(profiles(&[], &[("AWS_DEFAULT_PROFILE", "c"), ("AWS_PROFILE", "b")]).as_deref(), Some("b c"));
    assert_eq!(profiles(&["--prof", "a"], &[]), None, "the program accepts it too");
}

#[test]
fn only_what_selects_the_account_counts() {
    let disk = Disk::default();
    let files = files_of(of("gcloud", &[], &[]));
    let [active, default, other] =
        ["active_config", "configurations/config_default", "configurations/config_b"]
            .map(|file| format!("/home/.config/gcloud/{file}"));
    disk.put(&default, "one");
    assert_eq!(disk.judge(&files, 0), Some(1));
    disk.put(&active, "default\n");
    assert_eq!(disk.judge(&files, 0), Some(1), "it is active without a file");
    disk.put(&other, "two");
    assert_eq!(disk.judge(&files, 0), Some(1));
    disk.put(&active, "b");
    assert_eq!(disk.judge(&files, 0), Some(2));
    assert_eq!(files.files(), [active.clone().into(), PathBuf::from(other)]);
    disk.put(&active, "../../etc/passwd");
    assert_eq!(disk.judge(&files, 0), Some(3));
    assert_eq!(files.files(), [PathBuf::from(active)]);
}

#[test]
fn of_the_files_of_aws_only_the_sections_count_that_the_profile_uses() {
    let (config, credentials) = ("/home/.aws/config", "/home/.aws/credentials");
    let text = "# comment\n[default]\nregion = x\n[profile a]\nrole_arn = r\nsource_profile = b\n[profile b]\n  sso_session: s\n\
                [sso-session s]\nsso_start_url = u\n[profile c]\nservices = v\n[services v]\neks =\n  endpoint_url = w\n";
    let keys = "[default]\nkey = d\n[b]\nkey = e\n";
    // The profile, a text that changes in one of the files, and whether that counts.
    let cases = [
        ("default", "region = x", true),
        ("default", "role_arn = r", false),
        ("default", "key = d", true),
        ("default", "key = e", false),
        ("default", "comment", false),
        ("a", "role_arn = r", true),
        ("a", "sso_session: s", true),
        ("a", "sso_start_url = u", true),
        ("a", "key = e", true),
        ("a", "region = x", false),
        ("a", "endpoint_url = w", false),
        ("c", "endpoint_url = w", true),
        ("none", "key = d", false),
    ];
    for (profile, changes, counts) in cases {
        let (disk, files) = (Disk::default(), aws(&["--profile", profile]));
        disk.put(config, text);
        disk.put(credentials, keys);
        assert_eq!(disk.judge(&files, 0), Some(1));
        disk.put(config, &text.replace(changes, &format!("{changes}2")));
        disk.put(credentials, &keys.replace(changes, &format!("{changes}2")));
        assert_eq!(disk.judge(&files, 0), Some(1 + u64::from(counts)), "{profile}: {changes}");
    }
}

#[test]
fn files_of_aws_that_cannot_be_decided_count_as_a_whole() {
    let unrelated = "\n[profile other]\nkey = 1\n";
    let undecided = [
        "key = before a section",
        "[default",
        "[profile \"with quotes\"]",
        "[profile a b]",
        "  [profile indented]",
        "[default]\nsource_profile = a # or not",
        "\u{feff}[default]",
    ];
    for (text, counts) in undecided.map(|text| (text, true)).into_iter().chain([("[default]\nkey=x", false)])
    {
        let (disk, files) = (Disk::default(), aws(&[]));
        disk.put("/home/.aws/config", &format!("{text}{unrelated}"));
        assert_eq!(disk.judge(&files, 0), Some(1));
        disk.put("/home/.aws/config", &format!("{text}{unrelated}more = 2\n"));
        assert_eq!(disk.judge(&files, 0), Some(1 + u64::from(counts)), "{text}");
    }
}

#[test]
fn a_file_that_loses_its_content_counts_after_half_a_second() {
    let disk = Disk::default();
    let files = files_of(vec![Rule::File("/f".into())]);
    disk.put("/f", "one");
    assert_eq!(disk.judge(&files, 0), Some(1));
    disk.put("/f", "");
    assert_eq!(disk.judge(&files, 1000), None, "a plugin that runs now may see another account");
    assert!(files.is_losing());
    assert_eq!(disk.judge(&files, 1499), None);
    assert_eq!(files.version(), 1);
    disk.put("/f", "one");
    assert_eq!(disk.judge(&files, 1499), Some(1));
    disk.put("/f", "");
    assert_eq!(disk.judge(&files, 2000), None, "each loss has its own time");
    assert_eq!(disk.judge(&files, 2500), Some(2));
    assert_eq!((disk.judge(&files, 2600), files.is_losing()), (Some(2), false));
}

#[test]
fn a_touch_while_the_files_are_read_stays_unsettled() {
    let files = files_of(vec![Rule::File("/f".into())]);
    assert!(files.is_unsettled(), "never read");
    files.judge(|_| "one", Duration::default);
    assert!(!files.is_unsettled());
    files.touch();
    assert!(files.is_unsettled());
    let read = |_: &Path| {
        files.touch();
        "two"
    };
    assert_eq!(files.judge(read, Duration::default), Some(2));
    assert!(files.is_unsettled());
    files.judge(|_| "two", Duration::default);
    assert!(!files.is_unsettled());
    assert_eq!(files.judge(|_| "one", Duration::default), Some(3), "a switch back is another account too");
}

#[test]
fn a_process_that_connects_while_reports_are_read_does_not_get_the_account_before() {
    let (identities, waits) = (Identities::default(), Arc::new(AtomicBool::new(true)));
    let mut provider = provider("p", Command::Name("other".into()));
    provider.identity_files = vec!["/f".into()];
    let files = identities.of(&provider, &BTreeMap::new()).unwrap();
    let settle = || files.judge(|_| "one", Duration::default);
    let news = Arc::clone(&waits);
    identities.follow(move || news.load(Ordering::SeqCst));

    settle();
    identities.meet();
    assert!(files.is_unsettled(), "a report waits");

    waits.store(false, Ordering::SeqCst);
    let read = || {
        settle();
        identities.meet();
        assert!(files.is_unsettled(), "the report was read, and not noted yet");
        settle();
        true
    };
    assert!(identities.read(read) && files.is_unsettled());

    settle();
    identities.meet();
    assert!(!files.is_unsettled(), "there is nothing new");
    assert!(!identities.read(|| false) && !files.is_unsettled());
}
