//! Credentials that came out of the terminal of a caller, and a reload that gives them to other users.

use tokio::time::sleep;

use super::{Script::*, *};
use crate::{CacheError, Unattended};
use credbroker_plugin::Interactive;
use credbroker_runner::{Lender, Offer};

/// The key `a` of a provider. Requests share its state, as they do in a broker.
struct Reading(Arc<Provider>);

impl Reading {
    fn new(interactive: Interactive) -> Self {
        Self(Arc::new(Provider { interactive, ..Provider::clone(&spec("a").provider) }))
    }

    fn spec(&self) -> PluginSpec {
        PluginSpec { provider: Arc::clone(&self.0), ..spec("a") }
    }

    /// Rules give its credentials to others, or no longer.
    fn set_shared(&self, is_shared: bool) {
        self.0.state.set_shared(is_shared);
    }
}

/// A request of a caller that lends its terminal, while the receiver is there.
fn lending() -> (Request, tokio::sync::oneshot::Receiver<Offer>) {
    let (lender, offered) = Lender::new(7);
    let caller = Caller { at_terminal: true, ..Caller::default() };
    (Request { caller, lender: Some(lender), ..Request::default() }, offered)
}

fn needs_terminal<T: std::fmt::Debug>(answer: &Result<T, Failed>) -> bool {
    matches!(answer, Err(failed) if matches!(failed.error, CacheError::Unattended(Unattended::NeedsTerminal)))
}

impl Setup {
    fn has(&self, reading: &Reading) -> bool {
        self.cache.lookup(&reading.spec().key, &Caller::default(), Duration::ZERO).is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn a_credential_of_a_terminal_is_forgotten_if_others_may_get_it() {
    let (setup, reading, (request, _offered)) =
        (setup(&[Token(mins(60))]), Reading::new(Interactive::Always), lending());
    setup.cache.get(reading.spec(), &request).await.unwrap();
    setup.cache.forget_leased();
    assert!(setup.has(&reading), "its user is alone");
    reading.set_shared(true);
    setup.cache.forget_leased();
    assert!(!setup.has(&reading));
    assert!(
        needs_terminal(&setup.cache.get(reading.spec(), &request).await),
        "no terminal is borrowed for others"
    );
    reading.set_shared(false);
    setup.cache.get(reading.spec(), &request).await.unwrap();
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_credential_of_a_terminal_ends_if_others_may_get_it() {
    let (setup, reading, (request, _offered)) =
        (setup(&[Token(mins(60))]), Reading::new(Interactive::Always), lending());
    setup.cache.get(reading.spec(), &request).await.unwrap();
    let mut watch = setup.cache.watch(reading.spec(), Caller::default()).unwrap();
    watch.next().await.unwrap();
    reading.set_shared(true);
    setup.cache.forget_leased();
    assert!(matches!(watch.next().await.unwrap_err().error, CacheError::Evicted));
}

#[tokio::test(start_paused = true)]
async fn a_failure_says_whether_its_run_had_the_terminal_of_a_user() {
    for (mode, expected) in [(Interactive::Always, true), (Interactive::Never, false)] {
        let (setup, reading, (request, _offered)) = (setup(&[Fail]), Reading::new(mode), lending());
        let failed = setup.cache.get(reading.spec(), &request).await.unwrap_err();
        assert_eq!(failed.is_interactive, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_credential_of_the_brokers_own_run_stays() {
    let (setup, reading, (request, _offered)) =
        (setup(&[Token(mins(60))]), Reading::new(Interactive::Never), lending());
    setup.cache.get(reading.spec(), &request).await.unwrap();
    reading.set_shared(true);
    setup.cache.forget_leased();
    assert!(setup.has(&reading), "the plugin did not read from the terminal");
}

#[tokio::test(start_paused = true)]
async fn a_run_in_a_terminal_ends_when_others_may_get_its_credential() {
    let (setup, reading, (request, _offered)) =
        (setup(&[Late(secs(600))]), Reading::new(Interactive::Always), lending());
    let started = Instant::now();
    let (answer, ()) = tokio::join!(setup.cache.get(reading.spec(), &request), async {
        sleep(secs(1)).await;
        reading.set_shared(true);
        setup.cache.forget_leased();
    });
    assert!(needs_terminal(&answer), "{answer:?}");
    assert_eq!((started.elapsed(), setup.runs()), (secs(1), 1));
    assert!(!setup.has(&reading));
}

/// It was claimed just before, and the reload has not seen it.
#[tokio::test(start_paused = true)]
async fn a_run_in_a_terminal_that_ends_after_others_may_get_its_credential_brings_none() {
    let (setup, reading, (request, _offered)) =
        (setup(&[Late(secs(10))]), Reading::new(Interactive::Always), lending());
    let (answer, ()) = tokio::join!(setup.cache.get(reading.spec(), &request), async {
        sleep(secs(1)).await;
        setup.cache.forget_leased();
        reading.set_shared(true);
    });
    assert!(needs_terminal(&answer), "{answer:?}");
    assert!(!setup.has(&reading) && setup.runs() == 1);
}
