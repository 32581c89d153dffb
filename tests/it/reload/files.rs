//! The ways in which files change.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, symlink},
};

use credbroker_test_support::Broker;

use super::*;

#[tokio::test]
async fn a_changed_stanza_starts_cold_and_the_old_credential_is_never_served_again() {
    let (old, new) = (prints("old"), prints("new"));
    let followed = Followed::start(&users(&[("rel", &old)])).await;
    let first = followed.broker.get("rel").await.unwrap();
    assert_eq!(token(&first), "old");
    followed.write(&users(&[("rel", &new)]));
    followed.reloads(1).await;
    for _ in 0..3 {
        assert_eq!(followed.ask("rel").await, Ok("new".into()));
    }
    // The old stanza is another definition now, also if it comes back.
    followed.write(&users(&[("rel", &old)]));
    followed.reloads(2).await;
    let last = followed.broker.get("rel").await.unwrap();
    assert_eq!(token(&last), "old");
    assert_ne!(last.generation(), first.generation());
    assert_eq!((old.runs(), new.runs()), (2, 1));
}

#[tokio::test]
async fn a_file_that_is_written_slowly_is_read_when_it_is_closed() {
    let (old, new) = (prints("old"), prints("new"));
    let followed = Followed::start(&users(&[("rel", &old)])).await;
    let text = users(&[("rel", &new)]);
    let (one, rest) = text.split_at(text.len() / 2);
    let mut file = fs::File::create(followed.file()).unwrap();
    file.write_all(one.as_bytes()).unwrap();
    // Another file changes meanwhile, and all are read together.
    followed.broker.configure(json!({"kubeconfigs": [followed.file()], "limits": {"credentials": 77}}));
    assert_eq!(followed.ask("rel").await, Ok("old".into()));
    file.write_all(rest.as_bytes()).unwrap();
    drop(file);
    followed.reloads(1).await;
    assert_eq!(followed.ask("rel").await, Ok("new".into()));
    assert_eq!(followed.until(|_| true).await.failures, 0, "half of the file was never read");
}

#[tokio::test]
async fn a_file_that_is_renamed_over_the_old_one_is_read_each_time() {
    let plugins = [prints("0"), prints("1"), prints("2")];
    let followed = Followed::start(&users(&[("rel", &plugins[0])])).await;
    for (count, plugin) in (1..).zip(&plugins[1..]) {
        rename_over(&followed.file(), &users(&[("rel", plugin)]));
        followed.reloads(count).await;
        assert_eq!(followed.ask("rel").await, Ok(count.to_string()));
    }
}

/// kubelet swaps the link `..data` when a `ConfigMap` or Secret changes.
#[tokio::test]
async fn a_mounted_config_map_is_followed_through_its_swaps() {
    let plugins = [prints("0"), prints("1"), prints("2")];
    let directory = private_directory();
    let mount = directory.path();
    let write = |number: usize| {
        let version = format!("..version-{number}");
        fs::create_dir(mount.join(&version)).unwrap();
        private_file(&mount.join(&version).join("users"), &users(&[("rel", &plugins[number])]));
        symlink(&version, mount.join("..data_tmp")).unwrap();
        fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
        if let Some(before) = number.checked_sub(1) {
            fs::remove_dir_all(mount.join(format!("..version-{before}"))).unwrap();
        }
    };
    write(0);
    symlink("..data/users", mount.join("users")).unwrap();
    let broker = InProcess::with(json!({"kubeconfigs": [mount.join("users")]}), &[]);
    let mut states = broker.configuration.clone();
    for number in 1..3 {
        write(number);
        let reached = states.wait_for(|state| state.reloads == u64::try_from(number).unwrap());
        drop(timeout(AGES, reached).await.expect("the swap is noticed").unwrap());
        assert_eq!(token(&broker.get("rel").await.unwrap()), number.to_string());
    }
}

#[tokio::test]
async fn new_users_and_new_files_are_served() {
    let (rel, dev, more) = (prints("rel"), prints("dev"), prints("more"));
    let followed = Followed::start(&users(&[("rel", &rel)])).await;
    assert_eq!(followed.ask("dev").await, Err(Some(Reason::UnknownProvider)));
    followed.write(&users(&[("rel", &rel), ("dev", &dev)]));
    followed.reloads(1).await;
    assert_eq!(followed.ask("dev").await, Ok("dev".into()));
    let other = followed.directory.path().join("other");
    private_file(&other, &users(&[("more", &more)]));
    followed.broker.configure(json!({"kubeconfigs": [followed.file(), other]}));
    followed.reloads(2).await;
    assert_eq!(followed.ask("more").await, Ok("more".into()));
    private_file(&other, &users(&[("more", &rel)]));
    followed.reloads(3).await;
    assert_eq!(followed.ask("more").await, Ok("rel".into()), "the new file is followed too");
}

/// The standard places, of which none existed when the broker started.
#[tokio::test]
async fn a_configuration_that_appears_in_a_standard_place_is_used() {
    let (rel, gke) = (prints("rel"), prints("gke"));
    let home = private_directory();
    let kubeconfig = home.path().join("kubeconfig");
    private_file(&kubeconfig, &users(&[("rel", &rel)]));
    let broker = Broker::builder(env!("CARGO_BIN_EXE_credbroker"))
        .kubeconfig(&kubeconfig)
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .start();
    let socket = credbroker_client::Socket::at(broker.socket());
    let client = credbroker_client::Client::connect(&socket).await.unwrap();
    let ask = async |name: &str| {
        let reference = crate::harness::reference(name, None, &[]);
        client.credential(&reference).await.map(|credential| token(&credential).to_owned())
    };
    assert_eq!(ask("rel").await.unwrap(), "rel");
    let place = home.path().join("config/credbroker");
    // A directory that a group may write to is not trusted.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&place).unwrap();
    let config = json!({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
        "providers": [crate::harness::provider("gke", &gke)]});
    private_file(&place.join("config.yaml"), &config.to_string());
    let found = async {
        while ask("gke").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(AGES, found).await.expect("it is read");
    assert!(
        ask("rel").await.is_err(),
        "the kubeconfig of the environment counts only without a configuration"
    );
}
