//! Files select the account of a credential, and change.

use std::{fs, path::Path};

use credbroker_test_support::private_directory;
use futures_util::FutureExt as _;
use tokio::time::{sleep, timeout};

use super::*;
use crate::CacheError;

/// A key whose account `file` selects.
fn of_file(file: &Path) -> PluginSpec {
    let spec = spec("a");
    let provider = Provider { identity_files: vec![file.into()], ..(*spec.provider).clone() };
    PluginSpec { provider: Arc::new(provider), ..spec }
}

async fn ask(setup: &Setup, file: &Path) -> Result<String, Failed> {
    let answer = setup.cache.get(of_file(file), &Request::default()).await;
    answer.map(|issued| issued.generation.to_string())
}

/// Notes a change of the files, as the broker's follower does.
fn touch(setup: &Setup) {
    for files in setup.cache.identities().all() {
        files.touch();
    }
}

/// Reads the files, as that does.
async fn judge(setup: &Setup) {
    for files in setup.cache.identities().all() {
        setup.cache.judge(&files).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_belongs_to_the_account_that_the_files_select() {
    let (setup, directory) =
        (setup(&[Script::Token(mins(60)), Script::Fail, Script::Token(mins(60))]), private_directory());
    let file = directory.path().join("file");
    fs::write(&file, "one").unwrap();
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-1");
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-1");
    fs::write(&file, "two").unwrap();
    touch(&setup);
    let key = of_file(&file).key;
    assert!(
        setup.cache.lookup(&key, &Caller::default(), Duration::ZERO).is_none(),
        "it waits until the file was read"
    );
    judge(&setup).await;
    assert!(
        setup.cache.lookup(&key, &Caller::default(), Duration::ZERO).is_none(),
        "it is of another account"
    );
    assert!(ask(&setup, &file).await.is_err());
    fs::write(&file, "one").unwrap();
    touch(&setup);
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-2", "the failure was of the other account");
    touch(&setup);
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-2", "nothing has changed");
    assert_eq!(setup.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_run_during_a_switch_goes_only_to_the_callers_that_wait() {
    let (setup, directory) = (setup(&[Script::Token(mins(60))]), private_directory());
    let file = directory.path().join("file");
    fs::write(&file, "one").unwrap();
    // No touch: the run itself finds the change.
    let (first, ()) = tokio::join!(ask(&setup, &file), async {
        sleep(secs(1)).await;
        fs::write(&file, "two").unwrap();
    });
    assert_eq!(first.unwrap(), "test-1");
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-2");
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-2");
    // The account is not certain while the file is empty.
    let (third, ()) = tokio::join!(setup.cache.refresh(&Selector::All), async {
        sleep(secs(1)).await;
        fs::write(&file, "").unwrap();
        sleep(RUN - secs(1) - Duration::from_millis(100)).await;
        judge(&setup).await;
    });
    assert_eq!((third, setup.runs()), (1, 3));
    fs::write(&file, "two").unwrap();
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_plugin_that_changes_its_files_does_not_run_it_again_and_again() {
    let short = Duration::from_millis(10);
    let (setup, directory) = (setup(&[Script::Late(short)]), private_directory());
    let file = directory.path().join("file");
    fs::write(&file, "0").unwrap();
    let mut watch = setup.cache.watch(of_file(&file), Caller::default()).unwrap();
    let watching = async { while watch.next().await.is_ok() {} };
    let changing = async {
        for number in 1..=1_000 {
            sleep(short).await; // in each run
            fs::write(&file, number.to_string()).unwrap();
        }
    };
    tokio::select! {
        () = watching => panic!("the watch ends"),
        () = changing => {}
    }
    assert!((5..=25).contains(&setup.runs()), "{} in 10 s", setup.runs());
    watch.next().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_the_files_select_another_account() {
    let (setup, directory) = (setup(&[Script::Token(mins(60))]), private_directory());
    let file = directory.path().join("file");
    fs::write(&file, "one").unwrap();
    let mut watch = setup.cache.watch(of_file(&file), Caller::default()).unwrap();
    assert_eq!(watch.next().await.unwrap().generation.to_string(), "test-1");
    let (ended, ()) = tokio::join!(watch.next(), async {
        fs::write(&file, "two").unwrap();
        touch(&setup);
        judge(&setup).await;
        // The maintenance finds it.
    });
    assert!(matches!(ended.unwrap_err().error, CacheError::Evicted));
    let mut again = setup.cache.watch(of_file(&file), Caller::default()).unwrap();
    assert_eq!(again.next().await.unwrap().generation.to_string(), "test-2");
}

/// A run finds the change before the follower does.
#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_a_run_starts_as_another_account() {
    let (setup, directory) = (setup(&[Script::Token(mins(60))]), private_directory());
    let file = directory.path().join("file");
    fs::write(&file, "one").unwrap();
    let mut watch = setup.cache.watch(of_file(&file), Caller::default()).unwrap();
    watch.next().await.unwrap();
    fs::write(&file, "two").unwrap();
    let (ended, refreshed) = tokio::join!(watch.next(), setup.cache.refresh(&Selector::All));
    assert!(matches!(ended.unwrap_err().error, CacheError::Evicted));
    assert_eq!(refreshed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_of_the_broker_itself_starts_as_the_account_of_the_moment() {
    let (setup, directory) = (setup(&[Script::Token(mins(60))]), private_directory());
    let file = directory.path().join("file");
    fs::write(&file, "one").unwrap();
    setup.cache.fetch_ahead(of_file(&file)).await.unwrap();
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-1");
    fs::write(&file, "two").unwrap();
    touch(&setup);
    assert_eq!(setup.cache.refresh(&Selector::All).await, 1);
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-2");
    // No touch: the run itself finds the change.
    fs::write(&file, "three").unwrap();
    assert_eq!(setup.cache.refresh(&Selector::All).await, 1);
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-3");
    assert_eq!(setup.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_dropped_while_files_are_read_looks_again() {
    let (setup, directory) = (setup(&[Script::Token(mins(60))]), private_directory());
    let file = directory.path().join("file");
    fs::write(&file, "one").unwrap();
    assert_eq!(ask(&setup, &file).await.unwrap(), "test-1");
    touch(&setup);
    let mut watch = setup.cache.watch(of_file(&file), Caller::default()).unwrap();
    let files = setup.cache.identities().all().pop().unwrap();
    let another_reads = Arc::clone(&files.turn).try_lock_owned().unwrap();
    assert!(watch.next().now_or_never().is_none());
    drop(another_reads);
    let issued = timeout(mins(1), watch.next()).await.expect("it does not wait for a change").unwrap();
    assert_eq!(issued.generation.to_string(), "test-1");
}
