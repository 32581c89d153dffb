use std::collections::BTreeMap;

use credbroker_plugin::{Command, testing::provider};
use tokio::time::timeout;

use super::*;

/// As on a mount that hangs: what is being read does not end.
#[tokio::test]
async fn a_change_is_noticed_while_other_files_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("selector");
    let mut provider = provider("p", Command::Name("other".into()));
    provider.identity_files = vec![path.clone()];
    let identities = Identities::default();
    let files = identities.of(&provider, &BTreeMap::new()).unwrap();
    files.judge(|_| "one", || Duration::ZERO);
    let mut watcher = Watcher::start();
    let added = Watches::add(watcher.instance().as_deref(), std::slice::from_ref(&path));
    watcher.replace(added);
    assert!(!files.is_unsettled());
    std::fs::write(&path, "another").unwrap();
    let hung = timeout(Duration::from_secs(60), async {
        while !files.is_unsettled() {
            tokio::task::yield_now().await;
        }
    });
    let (ended, is_touched) = noticing(&mut watcher, &identities, hung).await;
    assert!(ended.is_ok() && is_touched);
}
