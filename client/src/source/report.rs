//! The loop that tells the broker what API servers rejected.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::state::{Rejection, State};
use crate::Error;

/// Between two reports of one source: the broker limits its plugin runs, this limits the calls.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);

/// Tells the broker of each generation that was rejected, one at a time, for ever. `report` resolves to the generation
/// to use instead. What it is comes over the watch: with two writers, an old answer could overtake a new message.
pub(crate) async fn report<F, R>(state: Arc<State>, mut report: F)
where
    F: FnMut(String) -> R,
    R: Future<Output = Result<String, Error>>,
{
    let mut rejections = state.rejection.subscribe();
    loop {
        let seen = match &*rejections.borrow_and_update() {
            Rejection::Seen(generation) => Some(Arc::clone(generation)),
            Rejection::Nothing | Rejection::Reported { .. } => None,
        };
        if let Some(generation) = seen {
            let instead = report(generation.as_ref().to_owned()).await;
            let replaced = instead.is_ok_and(|instead| instead != *generation);
            let reported = Rejection::Reported { generation: Arc::clone(&generation), replaced };
            replace(&state, &Rejection::Seen(generation), reported.clone());
            sleep(BETWEEN_REPORTS).await;
            replace(&state, &reported, Rejection::Nothing);
        } else if rejections.changed().await.is_err() {
            return;
        }
    }
}

/// Unless another generation was rejected meanwhile.
fn replace(state: &State, before: &Rejection, after: Rejection) {
    state.rejection.send_if_modified(|rejection| {
        let is_same = rejection == before;
        if is_same {
            *rejection = after;
        }
        is_same
    });
}
