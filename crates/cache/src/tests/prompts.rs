//! Keys whose plugin needs a user.

use tokio::time::sleep;

use super::*;
use crate::{Attendant, CacheError, Unattended};
use credbroker_plugin::Interactive;
use credbroker_runner::{Lender, Offer};

const NIGHT: Duration = Duration::from_secs(8 * 3600);

fn mins(mins: u64) -> Duration {
    Duration::from_secs(60 * mins)
}

fn program() -> Request {
    Request { deadline: Some(mins(30)), ..Request::default() }
}

/// A user at a terminal, who attends the run.
fn person() -> Request {
    let caller = Caller { at_terminal: true, ..Caller::default() };
    Request { caller, attendant: Some(Arc::new(Attendant::default())), ..program() }
}

fn login() -> Request {
    Request { is_login: true, ..person() }
}

/// The same request of a caller that lends its terminal, while the receiver is there.
fn lending(request: Request) -> (Request, tokio::sync::oneshot::Receiver<Offer>) {
    let (lender, offered) = Lender::new(7);
    (Request { lender: Some(lender), ..request }, offered)
}

/// The key of a plugin that always reads from a terminal.
fn always() -> PluginSpec {
    of_mode("a", Interactive::Always)
}

fn of_mode(text: &str, interactive: Interactive) -> PluginSpec {
    let spec = spec(text);
    let provider = Provider { interactive, ..Provider::clone(&spec.provider) };
    PluginSpec { provider: Arc::new(provider), ..spec }
}

impl Setup {
    async fn gets(&self, spec: PluginSpec, request: &Request) -> Result<(), CacheError> {
        self.cache.get(spec, request).await.map(drop).map_err(|failed| failed.error)
    }

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
    assert_eq!(setup.runs(), 2, "one try without a user");
    setup.asked_by(&program()).await.unwrap();
    sleep(mins(12)).await;
    setup.refuses(&program(), Unattended::NeedsPerson).await;
    sleep(NIGHT).await;
    setup.refuses(&program(), Unattended::NeedsPerson).await;
    assert_eq!(setup.runs(), 2);
    setup.asked_by(&person()).await.unwrap();
    assert_eq!(setup.runs(), 3, "in the morning a user asks");
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

fn is_refused(answer: &Result<(), CacheError>) -> bool {
    matches!(answer, Err(CacheError::Unattended(Unattended::NeedsTerminal)))
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_always_reads_a_terminal_runs_only_for_a_caller_with_one() {
    let setup = setup(&[Script::Insist(mins(60))]);
    for request in [program(), person(), login()] {
        assert!(is_refused(&setup.gets(always(), &request).await), "{request:?}");
    }
    assert_eq!((setup.cache.refresh(&Selector::All).await, setup.runs()), (1, 0), "nor for a refresh");
    let (request, _offered) = lending(person());
    setup.gets(always(), &request).await.unwrap();
    let (request, _offered) = lending(login());
    setup.gets(always(), &request).await.unwrap();
    setup.gets(always(), &program()).await.unwrap();
    sleep(secs(10)).await;
    assert!(is_refused(&setup.gets(always(), &login()).await), "a login is answered by a run only");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_in_a_terminal_needed_a_person_and_its_renewal_is_tried_once_without_one() {
    let setup = setup(&[Script::Insist(mins(60))]);
    let (request, _offered) = lending(person());
    setup.gets(always(), &request).await.unwrap();
    let _watch = setup.cache.watch(always(), Caller::default()).unwrap();
    sleep(mins(50)).await;
    assert_eq!(setup.runs(), 2, "one try without a user");
    setup.gets(always(), &program()).await.unwrap();
    sleep(NIGHT).await;
    assert!(is_refused(&setup.gets(always(), &program()).await));
    assert_eq!(setup.runs(), 2);
    let (request, _offered) = lending(person());
    setup.gets(always(), &request).await.unwrap();
    assert_eq!(setup.runs(), 3, "in the morning a user asks");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_a_person_that_succeeds_goes_on() {
    let setup = setup(&[Script::Insist(mins(60)), Script::Token(mins(60))]);
    let (request, _offered) = lending(person());
    setup.gets(always(), &request).await.unwrap();
    let _watch = setup.cache.watch(always(), Caller::default()).unwrap();
    sleep(NIGHT).await;
    setup.gets(always(), &program()).await.unwrap();
    assert!(setup.runs() > 8, "{}", setup.runs());
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_a_terminal_runs_a_plugin_again_that_turns_out_to_need_one() {
    let setup = setup(&[Script::Insist(mins(60))]);
    let (request, _offered) = lending(person());
    setup.asked_by(&request).await.unwrap_err(); // the stanza says that it never reads a terminal
    assert_eq!(setup.runs(), 1);
    for request in [person(), login()] {
        let (request, _offered) = lending(request);
        setup.gets(of_mode("b", Interactive::IfAvailable), &request).await.unwrap();
    }
    assert_eq!(setup.runs(), 1 + 2 + 1, "the next one has the terminal immediately");
}

#[tokio::test(start_paused = true)]
async fn when_the_caller_with_the_terminal_has_left_the_others_decide_again() {
    let setup = setup(&[Script::Leave, Script::Insist(mins(60))]);
    let ((first, _one), (second, _other)) = (lending(person()), lending(person()));
    let (without, with) = tokio::join!(
        async {
            let (first, _) = tokio::join!(setup.gets(always(), &first), async {
                sleep(RUN / 2).await;
                setup.gets(always(), &person()).await
            });
            first
        },
        async {
            sleep(RUN / 2).await;
            setup.gets(always(), &second).await
        }
    );
    without.unwrap();
    with.unwrap();
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_login_that_succeeded_a_short_time_ago_is_not_repeated() {
    let setup = setup(&[Script::Token(mins(60))]);
    setup.asked_by(&program()).await.unwrap();
    for _ in 0..100 {
        setup.asked_by(&login()).await.unwrap();
        sleep(Duration::from_millis(70)).await;
    }
    assert_eq!(setup.runs(), 2, "a credential that no login brought is not enough");
    sleep(secs(10)).await;
    setup.asked_by(&login()).await.unwrap();
    assert_eq!(setup.runs(), 3);
    // The entry of a watched key stays after a logout.
    let _watch = setup.cache.watch(spec("a"), Caller::default()).unwrap();
    setup.cache.evict(&Selector::All);
    setup.asked_by(&login()).await.unwrap();
    assert_eq!(setup.runs(), 4, "after a logout");
    setup.cache.evict(&Selector::All);
    setup.asked_by(&program()).await.unwrap();
    setup.asked_by(&login()).await.unwrap();
    assert_eq!(setup.runs(), 6, "a login from before a logout does not count");
}

#[tokio::test(start_paused = true)]
async fn a_login_that_failed_is_repeated() {
    let setup = setup(&[Script::Token(mins(60)), Script::Fail, Script::Token(mins(60))]);
    setup.asked_by(&program()).await.unwrap();
    assert!(setup.asked_by(&login()).await.is_err());
    setup.asked_by(&login()).await.unwrap();
    assert_eq!(setup.runs(), 3);
}
