//! Follows the files that select accounts, which requests read when they may have changed.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use tokio::time::sleep;
use tracing::warn;

use super::{
    super::linux::{Watcher, Watches},
    LOOK, within,
};
use credbroker_cache::CredentialCache;
use credbroker_plugin::IdentityFiles;
use credbroker_runner::PluginRunner;

/// The most files that are watched. With more, all are read every three seconds.
const MOST: usize = 256;
/// Wait after the files were read, so that a program that always writes one does not keep the broker busy.
const PAUSE: Duration = Duration::from_millis(10);

pub(in super::super) async fn follow_accounts<R: PluginRunner>(cache: CredentialCache<R>) {
    let identities = cache.identities();
    let (mut watcher, turn, mut has_warned) = (Watcher::start(), Arc::default(), false);
    loop {
        let all = identities.all();
        let followed = followed(&all);
        // Watched before they are read: a later change is reported.
        let (inotify, paths) = (watcher.instance(), followed.iter().take(MOST).cloned().collect::<Vec<_>>());
        let added = within(&turn, move || Watches::add(inotify.as_deref(), &paths)).await.unwrap_or_default();
        let is_complete = added.is_complete && followed.len() <= MOST;
        watcher.replace(added);
        for files in &all {
            cache.judge(files).await;
        }
        // A file may name another one.
        if followed != self::followed(&all) {
            continue;
        }
        if followed.len() > MOST && !std::mem::replace(&mut has_warned, true) {
            let every = LOOK.1.as_secs();
            warn!(
                "more than {MOST} files select accounts, so the broker notices their changes after up to {every} s"
            );
        }
        let wait = match is_complete {
            _ if all.is_empty() => Duration::MAX,
            _ if all.iter().any(|files| files.is_losing()) => IdentityFiles::GRACE,
            true => LOOK.0,
            false => LOOK.1,
        };
        drop(all);
        sleep(PAUSE).await;
        tokio::select! {
            _touches = watcher.touches(Duration::ZERO) => {
                watcher.has_lost_events();
                // Through links and other names, any file may be the one that was touched.
                identities.all().iter().for_each(|files| files.touch());
            }
            () = identities.added() => {}
            () = sleep(wait) => {}
        }
    }
}

fn followed(all: &[Arc<IdentityFiles>]) -> BTreeSet<PathBuf> {
    all.iter().flat_map(|files| files.files()).collect()
}
