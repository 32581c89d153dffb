//! Follows the files that select accounts, which requests read when they may have changed.

use std::{collections::BTreeSet, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::sleep;
use tracing::warn;

use super::{
    super::linux::{Watcher, Watches, has_events},
    LOOK, within,
};
use credbroker_cache::CredentialCache;
use credbroker_plugin::{Identities, IdentityFiles};
use credbroker_runner::PluginRunner;

/// The most files that are watched. With more, all are read every three seconds.
const MOST: usize = 256;
/// Wait after an event, so that a program that always writes a file does not keep the broker busy.
const PAUSE: Duration = Duration::from_millis(10);

pub(in super::super) async fn follow_accounts<R: PluginRunner>(cache: CredentialCache<R>) {
    let identities = cache.identities();
    let (mut watcher, turn, mut has_warned) = (Watcher::start(), Arc::default(), false);
    if let Some(inotify) = watcher.instance() {
        identities.follow(move || has_events(&inotify));
    }
    loop {
        let all = identities.all();
        let followed = followed(&all);
        // Watched before they are read: a later change is reported.
        let (inotify, paths) = (watcher.instance(), followed.iter().take(MOST).cloned().collect::<Vec<_>>());
        let adding = within(&turn, move || Watches::add(inotify.as_deref(), &paths));
        let (added, was_touched) = noticing(&mut watcher, &identities, adding).await;
        let is_complete = added.as_ref().is_some_and(|added| added.is_complete) && followed.len() <= MOST;
        if let Some(added) = added {
            watcher.replace(added);
        }
        let judging = async {
            // In parallel: a mount that hangs delays no other file.
            join_all(all.iter().map(|files| cache.judge(files))).await;
            sleep(PAUSE).await;
        };
        let ((), is_touched) = noticing(&mut watcher, &identities, judging).await;
        // A file that was touched may have lost its own watch, and a file may name another one.
        if was_touched || is_touched || followed != self::followed(&all) {
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
        tokio::select! {
            () = notice(&mut watcher, &identities) => {}
            () = identities.added() => {}
            () = sleep(wait) => {}
        }
    }
}

/// Waits for `work`, which a slow file system can delay, and notices events meanwhile. Also returns whether there was one.
async fn noticing<T>(
    watcher: &mut Watcher,
    identities: &Identities,
    work: impl Future<Output = T>,
) -> (T, bool) {
    let (mut work, mut is_touched) = (pin!(work), false);
    loop {
        tokio::select! {
            done = &mut work => return (done, is_touched),
            () = notice(watcher, identities) => {
                is_touched = true;
                sleep(PAUSE).await;
            }
        }
    }
}

/// Waits for an event. From then on, requests that depend on a file wait until it was read.
async fn notice(watcher: &mut Watcher, identities: &Identities) {
    loop {
        watcher.readable().await;
        if identities.read(|| !watcher.waiting().is_empty() | watcher.has_lost_events()) {
            return;
        }
        sleep(PAUSE).await;
    }
}

fn followed(all: &[Arc<IdentityFiles>]) -> BTreeSet<PathBuf> {
    all.iter().flat_map(|files| files.files()).collect()
}

#[cfg(test)]
mod tests;
