use super::*;

#[test]
fn a_timeout_has_digits_and_a_unit() {
    let table = [
        ("1H", Some(Duration::from_secs(3600))),
        ("2M", Some(Duration::from_secs(120))),
        ("45S", Some(Duration::from_secs(45))),
        ("250m", Some(Duration::from_millis(250))),
        ("99999999u", Some(Duration::from_micros(99_999_999))),
        ("7n", Some(Duration::from_nanos(7))),
        ("100000000m", None),
        ("", None),
        ("S", None),
        ("-1S", None),
        ("1.5S", None),
        ("1s", None),
        ("1é", None),
    ];
    for (text, expected) in table {
        assert_eq!(timeout(text), expected, "{text}");
    }
}

#[test]
fn the_broker_answers_before_the_callers_deadline() {
    let within = |text: &str| {
        let mut request = Request::new(());
        request.metadata_mut().insert("grpc-timeout", text.parse().unwrap());
        deadline(&request)
    };
    assert_eq!(within("45S"), Some(Duration::from_millis(44_500)));
    assert_eq!(within("1S"), Some(Duration::from_millis(900)));
    assert_eq!(within("soon"), None);
    assert_eq!(deadline(&Request::new(())), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_before_the_run_counts_against_the_deadline() {
    let secs = Duration::from_secs;
    let table = [
        (Some(secs(1)), secs(5), Some(Duration::ZERO), secs(1)),
        (Some(secs(7)), secs(5), Some(secs(2)), secs(5)),
        (None, secs(5), None, secs(5)),
    ];
    for (deadline, takes, left, waited) in table {
        #[expect(clippy::disallowed_methods, reason = "tokio's paused clock is the test's clock")]
        let started = Instant::now();
        assert_eq!(wait_within(deadline, tokio::time::sleep(takes)).await, left, "{deadline:?}");
        assert_eq!(started.elapsed(), waited, "{deadline:?}");
    }
}
