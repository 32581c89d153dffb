//! Keys whose plugin needs a person.

use tokio::time::sleep;

use super::*;
use crate::cache::{Attendant, CacheError, Unattended};

const NIGHT: Duration = Duration::from_secs(8 * 3600);

fn mins(mins: u64) -> Duration {
    Duration::from_secs(60 * mins)
}

fn program() -> Request {
    Request { deadline: Some(mins(30)), ..Request::default() }
}

/// A person at a terminal, who attends the run.
fn person() -> Request {
    let caller = Caller { at_terminal: true, ..Caller::default() };
    Request { caller, attendant: Some(Arc::new(Attendant::default())), ..program() }
}

fn login() -> Request {
    Request { is_login: true, ..person() }
}

impl Setup {
    async fn asked_by(&self, request: &Request) -> Result<(), CacheError> {
        self.cache.get(spec("a"), request).await.map(drop).map_err(|failed| failed.error)
    }

    async fn refuses(&self, request: &Request, why: Unattended) {
        let answer = self.asked_by(request).await;
        assert!(matches!(&answer, Err(CacheError::Unattended(found)) if *found == why), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_that_takes_longer_than_the_timeout_succeeds_while_it_is_attended() {
    let setup = setup(&[Script::Login(mins(3))]);
    setup.asked_by(&person()).await.unwrap();
    assert_eq!(setup.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_at_night_is_tried_once_and_the_credential_is_served_until_it_expires() {
    let setup = setup(&[Script::Login(mins(3))]);
    setup.asked_by(&person()).await.unwrap();
    let _watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    sleep(mins(50)).await;
    assert_eq!(setup.runs(), 2, "one try without a person");
    setup.asked_by(&program()).await.unwrap();
    sleep(mins(12)).await;
    setup.refuses(&program(), Unattended::NeedsPerson).await;
    sleep(NIGHT).await;
    setup.refuses(&program(), Unattended::NeedsPerson).await;
    assert_eq!(setup.runs(), 2);
    setup.asked_by(&person()).await.unwrap();
    assert_eq!(setup.runs(), 3, "in the morning a person asks");
    setup.asked_by(&program()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_renews_silently_goes_on_without_a_person() {
    let setup = setup(&[Script::Login(mins(3)), Script::Token(mins(60))]);
    setup.asked_by(&person()).await.unwrap();
    let _watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    sleep(NIGHT).await;
    setup.asked_by(&program()).await.unwrap();
    assert!(setup.runs() > 8, "{}", setup.runs());
}

#[tokio::test(start_paused = true)]
async fn three_prompts_without_an_answer_are_the_last_until_a_login() {
    let setup = setup(&[Script::Login(mins(3))]);
    while setup.runs() < 3 {
        assert!(setup.asked_by(&program()).await.is_err());
        sleep(mins(1)).await;
    }
    for request in [program(), person()] {
        sleep(NIGHT).await;
        setup.refuses(&request, Unattended::Unanswered).await;
    }
    assert_eq!(setup.runs(), 3);
    setup.asked_by(&login()).await.unwrap();
    setup.asked_by(&program()).await.unwrap();
    assert_eq!(setup.runs(), 4);
}

#[tokio::test(start_paused = true)]
async fn programs_wait_with_the_person_for_a_run_that_they_may_not_start() {
    let setup = setup(&[Script::Login(mins(3)), Script::Fail, Script::Login(mins(3))]);
    setup.asked_by(&person()).await.unwrap();
    sleep(mins(70)).await;
    assert!(setup.asked_by(&program()).await.is_err());
    sleep(mins(10)).await;
    setup.refuses(&program(), Unattended::NeedsPerson).await;
    let (person, program) = (person(), program());
    let (one, other) = tokio::join!(setup.asked_by(&person), async {
        sleep(mins(1)).await;
        setup.asked_by(&program).await
    });
    one.unwrap();
    other.unwrap();
    assert_eq!(setup.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_login_runs_the_plugin_although_the_credential_is_valid() {
    let setup = setup(&[Script::Token(mins(60))]);
    setup.asked_by(&program()).await.unwrap();
    setup.asked_by(&login()).await.unwrap();
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_lets_a_program_try_again() {
    let setup = setup(&[Script::Login(mins(3)), Script::Fail]);
    setup.asked_by(&person()).await.unwrap();
    sleep(mins(70)).await;
    assert!(setup.asked_by(&program()).await.is_err());
    sleep(mins(10)).await;
    setup.refuses(&program(), Unattended::NeedsPerson).await;
    setup.cache.evict(&Selector::All);
    assert!(matches!(setup.asked_by(&program()).await, Err(CacheError::Run(_))));
    assert_eq!(setup.runs(), 3);
}
