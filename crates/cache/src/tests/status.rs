//! The state of a key that people see is the current one.

use tokio::time::sleep;

use super::{Script::*, *};
use crate::{Holding, KeyStatus};

impl Setup {
    fn status(&self) -> KeyStatus {
        self.cache.list(&Selector::All, None, 1).remove(0)
    }

    /// How long after now the broker runs the plugin by itself.
    fn next_refresh(&self) -> Option<Duration> {
        let wall = self.clock.now().wall;
        self.status().next_refresh.map(|at| at.duration_since(wall).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_refresh_is_the_next_retry_after_a_failure() {
    let setup = setup(&[Token(mins(10)), Fail]);
    let _watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    setup.ask().await.unwrap();
    assert_eq!((setup.status().holding, setup.next_refresh()), (Holding::Valid, Some(secs(450))));
    sleep(secs(452)).await;
    assert_eq!((setup.status().holding, setup.next_refresh()), (Holding::Refreshing, None), "it runs");
    for runs in 2..6 {
        while setup.next_refresh().is_none() {
            sleep(secs(1)).await;
        }
        let status = setup.status();
        assert_eq!((status.holding, status.runs), (Holding::Refreshing, runs));
        sleep(setup.next_refresh().unwrap() + secs(1)).await;
        assert_eq!(setup.status().runs, runs + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_no_one_uses_has_no_next_refresh() {
    let setup = setup(&[Token(mins(1)), Fail]);
    setup.ask().await.unwrap();
    sleep(mins(2)).await;
    let status = setup.status();
    assert_eq!((status.holding, status.next_refresh), (Holding::Failed, None));
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_issuer_is_shown_with_the_time_that_is_left() {
    let setup = setup(&[Throttle(secs(60)), Throttle(secs(50)), Token(mins(60))]);
    setup.ask().await.unwrap_err();
    let shown = || {
        let (failed, _) = setup.status().failure.unwrap();
        (failed.to_string(), failed.retry_after)
    };
    sleep(secs(20)).await;
    let (text, left) = shown();
    assert!(text.contains("this credential is paused for another 40 s"), "{text}");
    assert_eq!(left, secs(40));
    // After the pause of the key, the run for another one is throttled, which pauses the issuer.
    sleep(secs(41)).await;
    setup.cache.get(spec("b"), &Request::default()).await.unwrap_err();
    let (text, left) = shown();
    assert!(text.contains("asked for fewer runs and is paused for another 50 s"), "{text}");
    assert_eq!(left, secs(50));
    sleep(secs(51)).await;
    let (text, left) = shown();
    assert!(
        text.ends_with(
            "asked for fewer runs; the pause has ended, and the next request or `credbroker refresh fake` runs it"
        ),
        "{text}"
    );
    assert_eq!(left, Duration::ZERO);
}
