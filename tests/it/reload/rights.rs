//! Access rules change together with the providers that they are for.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::geteuid;
use serde_json::Value;

use super::*;
use crate::harness::{provider, reference};

/// Requests in progress at any time.
const CALLERS: usize = 8;

/// One configuration lets the test use `p`, and the other one has another `p` that it may not use.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_gets_a_provider_with_the_rules_of_the_other_configuration() {
    let (permitted, forbidden) = (prints("permitted"), prints("forbidden"));
    let with = |plugin: &FakePlugin, allowed: &str| -> Value {
        json!({
            "providers": [provider("p", plugin), provider("q", plugin)],
            "access": [{
                "name": "own",
                "peers": {"uids": [geteuid().as_raw()]},
                "allow": {"providers": [allowed], "verbs": ["get"]},
            }],
        })
    };
    let broker = InProcess::with(with(&permitted, "p"), &[]);
    let (client, is_over) = (broker.client().await, Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (client, is_over) = (client.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut answers = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    match client.credential(&reference("p", None, &[])).await {
                        Ok(credential) => {
                            assert_eq!(token(&credential), "permitted");
                            answers.0 += 1;
                        }
                        Err(_) => answers.1 += 1,
                    }
                }
                answers
            })
        })
        .collect();
    let mut states = broker.configuration.clone();
    for number in 1..=10 {
        broker.configure(if number % 2 == 1 { with(&forbidden, "q") } else { with(&permitted, "p") });
        broker.reload();
        let changed = states.wait_for(|state| state.reloads == number);
        drop(timeout(AGES, changed).await.expect("it is read").unwrap());
    }
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        let (served, refused) = caller.await.unwrap();
        assert!(served > 0 && refused > 0, "{served} {refused}");
    }
    assert_eq!(forbidden.runs(), 0);
}
