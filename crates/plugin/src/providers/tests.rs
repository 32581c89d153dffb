use std::{path::PathBuf, time::Duration};

use credbroker_test_support::private_directory;
use tokio::{
    task::spawn_blocking,
    time::{advance, sleep},
};

use super::*;
use crate::{
    Environment,
    file::tests::{Disk, Looks},
    testing::provider,
};

/// Two providers, each with its own file on its own disk.
fn two() -> (Providers, [(Disk, Looks); 2]) {
    let disks = [Disk::new(), Disk::new()];
    let providers = ["one", "two"].map(|name| provider(name, Command::Name(name.into())));
    let providers = Providers::with(providers, |command, _| {
        let disk = if command == Command::Name("one".into()) { &disks[0].0 } else { &disks[1].0 };
        disk.file(command)
    });
    (providers, disks)
}

/// Time passes until `event`, a hundred times as fast as it does. By itself it does not pass while a thread hangs.
async fn while_time_passes<T>(event: impl Future<Output = T>) -> T {
    let passing = async {
        loop {
            advance(Duration::from_millis(100)).await;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    tokio::select! {
        biased;
        met = event => met,
        () = passing => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_on_a_hung_mount_holds_up_its_own_provider_only() {
    let (providers, [(one, mut at_one), (_two, mut at_two)]) = two();
    one.set_hanging(true);
    let providers = Arc::new(providers);
    let looking = async {
        loop {
            let providers = Arc::clone(&providers);
            drop(spawn_blocking(move || providers.look_up_files()));
            sleep(Duration::from_secs(2)).await;
        }
    };
    let test = async {
        while_time_passes(async {
            at_one.next().await;
            for _ in 0..4 {
                at_two.next().await;
            }
        })
        .await;
        let version = |name| providers.entry(&ProviderRef::named(name)).unwrap().file.version();
        assert_eq!((at_one.more(), version("one"), version("two")), (0, 0, 1), "one look at a time");
        one.set_hanging(false);
        while_time_passes(at_one.next()).await;
        assert_eq!(version("one"), 1, "the look that hung has ended, and another one follows");
    };
    tokio::select! {
        () = looking => unreachable!(),
        () = test => {}
    }
}

#[test]
fn no_request_looks_at_a_file() {
    let (providers, [(one, at_one), _]) = two();
    one.set_hanging(true); // a look would never return
    assert!(providers.runnable("one").is_ok(), "nothing is known against it");
    assert_eq!(providers.entry(&ProviderRef::named("one")).unwrap().file.version(), 0);
    assert_eq!(at_one.more(), 0);
}

#[test]
fn users_of_one_plugin_share_its_file_and_those_of_another_path_do_not() {
    let in_path = |name: &str, path: &str| Provider {
        inherited: Environment::from_iter([("PATH", path)]).into(),
        ..provider(name, Command::Name("plugin".into()))
    };
    let at = provider("d", Command::Path("/bin/plugin".into()));
    let all = [in_path("a", "/bin"), in_path("b", "/bin"), in_path("c", "/usr/bin"), at];
    let providers = Providers::new(all);
    let [a, b, c, d] =
        ["a", "b", "c", "d"].map(|name| &providers.entry(&ProviderRef::named(name)).unwrap().file);
    assert!(Arc::ptr_eq(a, b) && !Arc::ptr_eq(a, c) && !Arc::ptr_eq(a, d));
    assert_eq!(providers.files.len(), 3);
}

#[test]
fn what_is_missing_is_named_with_its_remedy_and_is_runnable_once_it_is_there() {
    let dir = private_directory();
    let of = |command| {
        let providers = Providers::new([Provider {
            install_hint: Some("Install it with `apt install plugin`.".into()),
            inherited: Environment::from_iter([("PATH", dir.path())]).into(),
            ..provider("p", command)
        }]);
        assert!(providers.runnable("p").is_ok(), "it was not looked at yet");
        providers.look();
        providers
    };
    let missing = |command| of(command).runnable("p").unwrap_err().to_string();
    insta::assert_snapshot!(missing(Command::Name("plugin".into())), @"provider `p`: plugin `plugin` is not installed in the broker's PATH. Install it with `apt install plugin`.");
    insta::assert_snapshot!(missing(Command::Path("/nowhere/plugin".into())), @"provider `p`: plugin `/nowhere/plugin` is not installed. Install it with `apt install plugin`.");
    let named = of(Command::Name("plugin".into()));
    credbroker_test_support::private_file(&dir.path().join("plugin"), "");
    assert!(named.runnable("p").is_err());
    named.look();
    assert!(named.runnable("p").is_ok());
    let below_a_file: PathBuf = dir.path().join("plugin/x".repeat(4096));
    let error = of(Command::Path(below_a_file)).runnable("p").unwrap_err();
    assert!(matches!(error, ResolveError::PluginUnreadable { .. }), "too long a name: {error:?}");
}
