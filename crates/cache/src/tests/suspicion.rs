//! Suspected rejections are verified with an API server if possible, and never make a valid credential fail.

use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::{Script::*, *};
use credbroker_credential::Cluster;

/// A setup whose API server answers what `verdict` says at the moment.
fn setup_verified(script: &[Script], verdict: &Arc<Mutex<Verdict>>) -> (Setup, Arc<AtomicUsize>) {
    let mut setup = setup(script);
    let (asked, verdict) = (Arc::new(AtomicUsize::new(0)), Arc::clone(verdict));
    let counted = Arc::clone(&asked);
    let verify: crate::VerifyFn = Arc::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let verdict = Arc::clone(&verdict);
        Box::pin(async move {
            sleep(Duration::from_millis(100)).await;
            *verdict.lock().unwrap()
        })
    });
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), clock, tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { verify, ..parts });
    (setup, asked)
}

/// The caller of that name, of a credential whose API server is known.
fn verifiable(name: &str) -> Request {
    let cluster = Cluster { server: "https://paris".into(), ..Cluster::default() };
    Request { verify_at: Some(Arc::new(cluster)), ..caller(name) }
}

async fn ask(setup: &Setup, request: &Request) -> Result<String, Failed> {
    setup.cache.get(spec("a"), request).await.map(|issued| issued.generation.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_rejected_credential_is_replaced_at_once() {
    let verdict = Arc::new(Mutex::new(Verdict::Rejected));
    let (setup, asked) = setup_verified(&[Token(mins(60))], &verdict);
    assert_eq!(ask(&setup, &verifiable("kubectl")).await.unwrap(), "test-1");
    assert_eq!(ask(&setup, &verifiable("kubectl")).await.unwrap(), "test-2", "it is two seconds old");
    assert_eq!((setup.runs(), asked.load(Ordering::SeqCst)), (2, 1));
    let held = setup.cache.list(&Selector::All, None, 1);
    let rejections = held[0].rejections.unwrap();
    assert_eq!((rejections.count, rejections.verifications), (1, 1));
    assert_eq!(rejections.verdict, Some(Verdict::Rejected));
    assert!(rejections.next_run.is_some());
}

/// A script that starts the shim twice.
#[tokio::test(start_paused = true)]
async fn a_suspicion_alone_does_not_count_as_a_rejection() {
    for (verdict, verifications) in [(Verdict::Accepted, 1), (Verdict::Unverifiable, 1)] {
        let (setup, _) = setup_verified(&[Token(mins(60))], &Arc::new(Mutex::new(verdict)));
        for request in [verifiable("script"), verifiable("script"), caller("other"), caller("other")] {
            ask(&setup, &request).await.unwrap();
        }
        let rejections = setup.cache.list(&Selector::All, None, 1)[0].rejections.unwrap();
        assert_eq!((rejections.count, rejections.verifications), (0, verifications), "{verdict:?}");
        setup.cache.report(spec("a"), "test-1", &caller("client")).await.unwrap();
        assert_eq!(
            setup.cache.list(&Selector::All, None, 1)[0].rejections.unwrap().count,
            1,
            "a report is one"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_revocation_costs_a_caller_one_request_and_one_run() {
    let verdict = Arc::new(Mutex::new(Verdict::Accepted));
    let (setup, _) = setup_verified(&[Token(mins(60))], &verdict);
    let mut generation = ask(&setup, &verifiable("0")).await.unwrap();
    for revocation in 1..20 {
        sleep(mins(2)).await;
        *verdict.lock().unwrap() = Verdict::Rejected;
        // A new kubectl each time: it is given the revoked token, and comes back with a 401.
        let kubectl = verifiable(&revocation.to_string());
        assert_eq!(ask(&setup, &kubectl).await.unwrap(), generation);
        let next = ask(&setup, &kubectl).await.unwrap();
        assert_ne!(next, generation, "revocation {revocation}");
        generation = next;
        *verdict.lock().unwrap() = Verdict::Accepted;
    }
    assert_eq!(setup.runs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_the_server_accepted_at_first_was_not_refused_at_once() {
    let verdict = Arc::new(Mutex::new(Verdict::Rejected));
    let (setup, _) = setup_verified(&[Token(mins(60))], &verdict);
    assert_eq!(ask(&setup, &verifiable("kubectl")).await.unwrap(), "test-1");
    for generation in 2..8 {
        *verdict.lock().unwrap() = Verdict::Rejected;
        assert_eq!(ask(&setup, &verifiable("kubectl")).await.unwrap(), format!("test-{generation}"));
        *verdict.lock().unwrap() = Verdict::Accepted;
        assert_eq!(ask(&setup, &verifiable("kubectl")).await.unwrap(), format!("test-{generation}"));
        sleep(secs(11)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_calls_the_shim_in_a_loop_costs_no_run() {
    let verdict = Arc::new(Mutex::new(Verdict::Accepted));
    let (setup, asked) = setup_verified(&[Token(mins(60))], &verdict);
    let mut program = verifiable("a shell script");
    program.caller.without_exec_info = true;
    for _ in 0..300 {
        assert_eq!(ask(&setup, &program).await.unwrap(), "test-1");
        sleep(secs(1)).await;
    }
    assert_eq!(setup.runs(), 1);
    assert!(asked.load(Ordering::SeqCst) <= 61, "one question in five seconds");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_gets_a_new_credential_after_a_verification_only() {
    let verdict = Arc::new(Mutex::new(Verdict::Unverifiable));
    let (setup, _) = setup_verified(&[Token(mins(60))], &verdict);
    let mut java = verifiable("java");
    java.caller.without_exec_info = true;
    for _ in 0..100 {
        assert_eq!(ask(&setup, &java).await.unwrap(), "test-1");
        sleep(secs(1)).await;
    }
    *verdict.lock().unwrap() = Verdict::Rejected;
    sleep(secs(5)).await;
    assert_eq!(ask(&setup, &java).await.unwrap(), "test-2");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn all_callers_that_suspect_share_one_verification() {
    let verdict = Arc::new(Mutex::new(Verdict::Accepted));
    let (setup, asked) = setup_verified(&[Token(mins(60))], &verdict);
    let callers: Vec<_> = (0..50).map(|name| verifiable(&name.to_string())).collect();
    for caller in &callers {
        ask(&setup, caller).await.unwrap();
    }
    let repeats = callers.into_iter().map(|caller| {
        let cache = setup.cache.clone();
        setup.tasks.spawn(async move { cache.get(spec("a"), &caller).await.unwrap() })
    });
    for repeat in repeats.collect::<Vec<_>>() {
        repeat.await.unwrap();
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_never_turns_a_valid_credential_into_an_error() {
    for verdict in [Verdict::Rejected, Verdict::Accepted, Verdict::Unverifiable] {
        let (setup, _) = setup_verified(&[Token(mins(60)), Fail], &Arc::new(Mutex::new(verdict)));
        for request in [caller("a"), verifiable("b"), verifiable("c")] {
            for _ in 0..100 {
                assert_eq!(ask(&setup, &request).await.unwrap(), "test-1", "{verdict:?}");
                sleep(secs(1)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_the_server_may_have_cached_is_doubted_once() {
    let verdict = Arc::new(Mutex::new(Verdict::Accepted));
    let (setup, _) = setup_verified(&[Token(mins(60))], &verdict);
    for name in ["a", "b", "c"] {
        ask(&setup, &verifiable(name)).await.unwrap();
    }
    sleep(secs(30)).await;
    assert_eq!(ask(&setup, &verifiable("a")).await.unwrap(), "test-1");
    assert_eq!(ask(&setup, &verifiable("b")).await.unwrap(), "test-1");
    assert_eq!(ask(&setup, &verifiable("c")).await.unwrap(), "test-2", "two came back after the verdict");
    assert_eq!(setup.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_expires_during_its_verification_is_not_served() {
    let (setup, _) = setup_verified(&[Token(mins(60))], &Arc::new(Mutex::new(Verdict::Accepted)));
    let request = verifiable("kubectl");
    assert_eq!(ask(&setup, &request).await.unwrap(), "test-1");
    let suspend = async {
        sleep(Duration::from_millis(50)).await;
        setup.clock.suspend(mins(61));
    };
    let (answer, ()) = tokio::join!(ask(&setup, &request), suspend);
    assert_eq!(answer.unwrap(), "test-2");
}

#[tokio::test(start_paused = true)]
async fn a_verification_ends_with_the_deadline_of_the_caller() {
    let (setup, _) = setup_verified(&[Token(mins(60))], &Arc::new(Mutex::new(Verdict::Rejected)));
    let request = Request { deadline: Some(Duration::from_millis(2050)), ..verifiable("kubectl") };
    assert_eq!(ask(&setup, &request).await.unwrap(), "test-1");
    let asked = Instant::now();
    // A tenth of a second for the question, and two seconds for the run.
    assert_eq!(ask(&setup, &request).await.unwrap(), "test-1");
    assert_eq!(asked.elapsed(), Duration::from_millis(2050));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_is_replaced_while_the_api_server_is_asked_runs_once() {
    let script = [Token(mins(60)), Late(Duration::from_millis(20))];
    let (setup, _) = setup_verified(&script, &Arc::new(Mutex::new(Verdict::Accepted)));
    let get = async |name: &str| {
        let spec = PluginSpec { file: Arc::clone(&setup.file), ..spec("a") };
        setup.cache.get(spec, &verifiable(name)).await.unwrap();
    };
    get("kubectl").await;
    let replaced = async {
        sleep(Duration::from_millis(10)).await;
        setup.file.replace();
        get("another").await;
    };
    tokio::join!(get("kubectl"), replaced);
    sleep(secs(1)).await;
    assert_eq!(setup.runs(), 2);
}

/// A setup that asks 16 API servers at a time, each for three seconds at most. One of them never answers.
fn setup_with_slots() -> (Setup, Arc<Semaphore>) {
    let mut setup = setup(&[Token(mins(60))]);
    let slots = Arc::new(Semaphore::new(16));
    let shared = Arc::clone(&slots);
    let verify: crate::VerifyFn = Arc::new(move |issued, cluster| {
        let slots = Arc::clone(&shared);
        Box::pin(async move {
            let Ok(_slot) = timeout(secs(3), slots.acquire_owned()).await else {
                return Verdict::Unverifiable;
            };
            let answer = async {
                if cluster.server == "https://hangs" {
                    std::future::pending::<()>().await;
                }
                drop(issued);
                Verdict::Rejected
            };
            timeout(secs(3), answer).await.unwrap_or(Verdict::Unverifiable)
        })
    });
    let Setup { runner, clock, tasks, draining, .. } = &setup;
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let parts = CacheParts::for_tests(Arc::clone(runner), clock, tasks, draining);
    setup.cache = CredentialCache::new(CacheParts { verify, ..parts });
    (setup, slots)
}

fn hangs(name: &str) -> Request {
    let cluster = Cluster { server: "https://hangs".into(), ..Cluster::default() };
    Request { verify_at: Some(Arc::new(cluster)), ..caller(name) }
}

#[tokio::test(start_paused = true)]
async fn verifications_that_their_callers_have_left_disable_no_other() {
    let (setup, slots) = setup_with_slots();
    let get = async |key: &str, request: &Request| {
        setup.cache.get(spec(key), request).await.unwrap().generation.to_string()
    };
    for key in 0..16 {
        let key = key.to_string();
        get(&key, &hangs("kubectl")).await;
    }
    let first = get("last", &verifiable("kubectl")).await;
    for key in 0..16 {
        let (key, request) = (key.to_string(), hangs("kubectl"));
        let left = timeout(Duration::from_millis(100), get(&key, &request)).await;
        assert!(left.is_err(), "the API server is being asked, and the caller leaves");
    }
    assert_eq!(slots.available_permits(), 0);
    assert_ne!(get("last", &verifiable("kubectl")).await, first, "its API server was asked, and refused it");
    sleep(secs(3)).await;
    assert_eq!(slots.available_permits(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_verification_of_what_is_forgotten_ends_and_holds_nothing() {
    let (setup, slots) = setup_with_slots();
    let issued = Arc::downgrade(&setup.cache.get(spec("a"), &hangs("kubectl")).await.unwrap());
    let left = timeout(Duration::from_millis(100), setup.cache.get(spec("a"), &hangs("kubectl"))).await;
    assert!(left.is_err() && slots.available_permits() == 15);
    setup.cache.evict(&Selector::All);
    sleep(Duration::from_millis(1)).await;
    assert_eq!((slots.available_permits(), issued.upgrade().is_none()), (16, true));
}
