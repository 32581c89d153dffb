use credbroker_proto::v1;
use credbroker_test_support::{Accepts, ApiServer};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::*;
use crate::{
    clock::tests::paused,
    source::handle::tests::Fake,
    tls::{
        connection::{Connection, is_replaced},
        settings::DRAIN,
    },
};

const ROTATIONS: usize = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_reader_takes_an_old_generation_for_that_of_the_newest_credential() {
    let api = ApiServer::start(Accepts::Certificates);
    let pairs = ["x", "y"].map(|name| api.issue_client_certificate(name, Duration::from_secs(3600)));
    let mut fake = Fake::new();
    let broker = fake.broker();
    let settings = Settings::trusting(api.ca_pem().as_bytes()).unwrap().drain(Duration::ZERO);
    let generations = Arc::new(IdentityGenerations::new(fake.source.clone(), settings.clone()));
    let credential = |rotation: usize| {
        let (chain, key) = pairs[rotation % 2].clone();
        let received = v1::Credential {
            generation: rotation.to_string(),
            client_certificate_data: Some(chain.into()),
            client_key_data: Some(key.into()),
            ..v1::Credential::default()
        };
        Credential::receive(received, None, paused()).unwrap()
    };
    let look = || {
        let (source, generations, provider) =
            (fake.source.clone(), Arc::clone(&generations), settings.provider().clone());
        let identities = [0, 1]
            .map(|rotation| Identity::parse(credential(rotation).identity().unwrap(), &provider).unwrap());
        move || {
            // Without this all readers would wait for the one that makes the generation.
            (0..fastrand::u32(0..4_000)).for_each(|_| std::hint::spin_loop());
            let (before, found, after) = (source.current(), generations.current().unwrap(), source.current());
            // After a rotation in between, either generation is right.
            if let (Some(before), Some(after)) = (before, after)
                && Arc::ptr_eq(&before, &after)
            {
                let rotation: usize = before.generation().parse().unwrap();
                assert_eq!(found.identity.as_ref(), Some(&identities[rotation % 2]), "{rotation}");
            }
        }
    };
    let (other, here, done) = (look(), look(), CancellationToken::new());
    let ends = done.clone().drop_guard();
    let other = tokio::task::spawn_blocking(move || {
        while !done.is_cancelled() {
            other();
        }
    });
    for rotation in 0..ROTATIONS {
        broker.send(Ok(credential(rotation))).unwrap();
        fake.source.changed().await;
        (0..4).for_each(|_| here());
    }
    drop(ends);
    other.await.unwrap();
}

#[tokio::test]
async fn generations_without_a_connection_do_not_stay_until_their_certificate_expires() {
    let api = ApiServer::start(Accepts::Certificates);
    let mut fake = Fake::new();
    let broker = fake.broker();
    let settings = Settings::trusting(api.ca_pem().as_bytes()).unwrap().draining(Drain::Natural);
    let generations = Arc::new(IdentityGenerations::new(fake.source.clone(), settings));
    let mut kept = None;
    for rotation in 0..10 {
        let (chain, key) = api.issue_client_certificate(&rotation.to_string(), Duration::from_secs(3600));
        let received = v1::Credential {
            generation: rotation.to_string(),
            client_certificate_data: Some(chain.into()),
            client_key_data: Some(key.into()),
            ..v1::Credential::default()
        };
        broker.send(Ok(Credential::receive(received, None, paused()).unwrap())).unwrap();
        fake.source.changed().await;
        let current = generations.current().unwrap();
        assert!(current.expiry.is_some_and(|expiry| expiry.is_after(clock::system())));
        if rotation == 3 {
            kept = Some(current);
        }
    }
    let draining = generations.draining.lock().unwrap();
    // The one that is in use, and the last one, which is gone.
    assert!(draining.len() <= 2, "{}", draining.len());
    let held: Vec<_> = draining.iter().filter_map(Weak::upgrade).collect();
    assert!(held.len() == 1 && Arc::ptr_eq(&held[0], kept.as_ref().unwrap()));
    assert!(!kept.unwrap().closing.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_closes_the_turn_that_it_began_with_and_no_later_one() {
    let settings = Settings::trusting(ApiServer::start(Accepts::Either).ca_pem().as_bytes()).unwrap();
    let generation = Arc::new(IdentityGeneration::new(None, &settings));
    let close = || close_later(Arc::downgrade(&generation), generation.turns.load(Ordering::SeqCst), DRAIN);
    let first = close();
    assert!(generation.comes_back());
    let second = close();
    first.await;
    assert!(!generation.closing.is_cancelled());
    second.await;
    assert!(generation.closing.is_cancelled() && !generation.comes_back());
}

/// hyper flushes between two reads, and does not report to the reader of an answer why that failed.
#[tokio::test]
async fn a_flush_of_nothing_does_not_hide_from_a_reader_why_its_connection_was_closed() {
    let api = ApiServer::start(Accepts::Either);
    let settings = Settings::trusting(api.ca_pem().as_bytes()).unwrap();
    let generation = Arc::new(IdentityGeneration::new(None, &settings));
    let (ours, _peer) = duplex(64);
    let mut connection = Connection::plain(ours, &generation);
    generation.closing.cancel();
    connection.flush().await.expect("nothing is left to send");
    assert!(is_replaced(&connection.read_u8().await.unwrap_err()));
    assert!(is_replaced(&connection.write_u8(1).await.unwrap_err()));
}
