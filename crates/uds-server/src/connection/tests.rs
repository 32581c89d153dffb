use futures_util::future::pending;
use tokio::time::{Instant, sleep};

use super::*;
use crate::traffic::Call;

/// How long a connection is served before GOAWAY on which `serving` happens, and its end if it ends before.
async fn served<T>(traffic: &Traffic, serving: impl Future<Output = T>) -> (Duration, Option<T>) {
    #[expect(clippy::disallowed_methods, reason = "tokio's paused clock is the test's clock")]
    let began = Instant::now();
    let ended = until_last_call(pin!(serving), traffic).await;
    (began.elapsed(), ended)
}

#[tokio::test(start_paused = true)]
async fn goaway_waits_for_the_next_call_but_not_long() {
    let (traffic, soon) = (Traffic::for_tests(), LAST_CALL / 2);
    assert_eq!(served(&traffic, pending::<()>()).await, (LAST_CALL, None));
    let earlier = Call::of(&traffic);
    let calls_once = async {
        sleep(soon).await;
        drop(Call::of(&traffic));
        pending::<()>().await;
    };
    assert_eq!(served(&traffic, calls_once).await, (soon, None), "it may have ended already");
    let calls_at_once = async {
        let _call = Call::of(&traffic);
        pending::<()>().await;
    };
    assert_eq!(served(&traffic, calls_at_once).await, (Duration::ZERO, None));
    assert_eq!(served(&traffic, async { 7 }).await, (Duration::ZERO, Some(7)));
    drop(earlier);
}
