use std::sync::atomic::{AtomicU64, Ordering};

use credbroker_observe::clock::Now;
use rustls::pki_types::CertificateDer;

use super::*;

#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let since = Duration::from_secs(self.0.load(Ordering::Relaxed));
        Now { wall: UNIX_EPOCH + since, boot: since }
    }
}

#[test]
fn the_certificate_is_renewed_at_half_of_its_lifetime_and_after_a_step_of_the_clock() {
    let key = Authority::new_key().unwrap();
    let root = Authority::certificate(&key).unwrap();
    let clock = Arc::new(TestClock::default());
    let set = |days: u64| clock.0.store(days * DAY.as_secs(), Ordering::Relaxed);
    set(1000);
    let leaf = Leaf::new(Authority::open(&key, &root).unwrap(), Arc::clone(&clock) as _).unwrap();
    let first = leaf.current();
    set(1014);
    assert!(Arc::ptr_eq(&first, &leaf.current()));
    set(1015);
    let second = leaf.current();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &leaf.current()));
    set(3);
    let third = leaf.current();
    assert!(!Arc::ptr_eq(&second, &third) && Arc::ptr_eq(&third, &leaf.current()));
    for (leaf, day) in [(&first, 1000), (&first, 1029), (&second, 1015), (&third, 3)] {
        verify(&root, leaf, "127.0.0.1", day).unwrap();
    }
    assert!(verify(&root, &first, "127.0.0.1", 1031).is_err());
}

#[test]
fn the_certificate_is_for_loopback_alone() {
    let key = Authority::new_key().unwrap();
    let root = Authority::certificate(&key).unwrap();
    let leaf = Authority::open(&key, &root).unwrap().leaf(UNIX_EPOCH).unwrap();
    for name in ["127.0.0.1", "::1", "localhost"] {
        verify(&root, &leaf, name, 0).unwrap();
    }
    for name in ["127.0.0.2", "::2", "kubernetes.default.svc", "10.0.0.1"] {
        assert!(verify(&root, &leaf, name, 0).is_err(), "{name}");
    }
}

#[test]
fn debug_shows_no_key() {
    let key = Authority::new_key().unwrap();
    let authority = Authority::open(&key, &Authority::certificate(&key).unwrap()).unwrap();
    assert_eq!(format!("{authority:?}"), "Authority");
}

fn verify(root: &[u8], leaf: &CertifiedKey, name: &str, day: u32) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root).unwrap()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
    let now = UnixTime::since_unix_epoch(DAY * day);
    let name = ServerName::try_from(name).unwrap();
    verifier.verify_server_cert(leaf.end_entity_cert().unwrap(), &[], &name, &[], now).map(drop)
}
