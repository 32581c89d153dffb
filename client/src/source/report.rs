//! The loop that reports rejected credentials to the broker.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::state::{Rejection, SourceState};
use crate::error::Error;

/// Between two reports of one source. The broker limits its plugin runs; this limits the calls.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);

/// Reports rejected generations, one at a time, until it is dropped. `report` resolves to the generation to use instead;
/// the credential itself arrives over the watch, because with two writers an old answer could overtake a new message.
pub(crate) async fn run<F, R>(state: Arc<SourceState>, mut report: F)
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

/// Replaces `before`, unless another generation was rejected meanwhile.
fn replace(state: &SourceState, before: &Rejection, after: Rejection) {
    state.rejection.send_if_modified(|rejection| {
        let is_same = rejection == before;
        if is_same {
            *rejection = after;
        }
        is_same
    });
}
