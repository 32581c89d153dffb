use std::num::NonZeroUsize;

use super::*;
use credbroker_plugin::PluginKey;

const THROTTLED: Outcome = Outcome::Throttled(Throttling { retry_after: None });

fn pace(rate: usize, concurrency: usize) -> Pace {
    let count = |count| NonZeroUsize::new(count).unwrap();
    Pace::new(&Issuer { name: "idp".into(), runs_per_second: count(rate), concurrency: count(concurrency) })
}

/// One of which a run was throttled a short time ago, so that the next one pauses it.
fn suspect(rate: usize, concurrency: usize) -> Pace {
    let mut pace = pace(rate, concurrency);
    let run = pace.start(Class::First, of_broker(configured(0)), Duration::ZERO);
    assert_eq!(pace.finish(run, THROTTLED, 0.5, Duration::ZERO), None);
    pace.starts.clear();
    pace
}

/// A run that the configuration alone defines.
fn configured(key: u8) -> RunSource {
    RunSource::Configuration(PluginKey([key; 32]))
}

/// A run whose plugin receives the variables of a caller of that uid.
fn sent(uid: u32) -> RunSource {
    RunSource::Others { uid: Some(uid) }
}

/// The broker, for a uid whose text the plugin receives.
fn broker(uid: Option<u32>) -> Party {
    Party { group: uid, sender: uid, process: None }
}

/// A run that no caller waits for.
fn of_broker(source: RunSource) -> (RunSource, Party) {
    (source, broker(source.uid()))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn after(seconds: u64) -> Outcome {
    Outcome::Throttled(Throttling { retry_after: Some(secs(seconds)) })
}

impl Pace {
    /// One run that ends immediately.
    fn run(&mut self, class: Class, outcome: Outcome, now: Duration) -> Option<PaceChange> {
        assert_eq!(self.gate(class, now), Gate::Open, "at {now:?}");
        let run = self.begin(class, now);
        self.finish(run, outcome, 0.5, now)
    }

    /// Starts a run that the configuration alone defines.
    fn begin(&mut self, class: Class, now: Duration) -> StartedRun {
        self.start(class, of_broker(configured(1)), now)
    }

    /// How many runs of `class` start in parallel at `now`, each of which ends immediately.
    fn burst(&mut self, class: Class, now: Duration) -> usize {
        let started = std::iter::from_fn(|| {
            (self.gate(class, now) == Gate::Open).then(|| self.run(class, Outcome::Success, now))
        });
        started.count()
    }

    /// The starts from `from` to `until` if runs always wait and each takes `long`.
    fn all(&mut self, class: Class, (from, until): (Duration, Duration), long: Duration) -> Vec<Duration> {
        let (mut starts, mut running, mut now) = (Vec::new(), VecDeque::new(), from);
        while now < until {
            while running.front().is_some_and(|(end, _)| *end <= now) {
                let (_, run) = running.pop_front().unwrap();
                self.finish(run, Outcome::Success, 0.5, now);
            }
            while self.gate(class, now) == Gate::Open {
                running.push_back((now + long, self.begin(class, now)));
                starts.push(now);
            }
            now += ms(10);
        }
        starts
    }
}

/// The largest number of starts in any second.
fn busiest(starts: &[Duration]) -> usize {
    let within = |(index, first): (usize, &Duration)| {
        starts[index..].iter().take_while(|at| **at < *first + SECOND).count()
    };
    starts.iter().enumerate().map(within).max().unwrap_or_default()
}

#[test]
fn an_idle_issuer_delays_no_run() {
    let mut pace = pace(10, 4);
    for class in [Class::Forced, Class::First, Class::Background] {
        assert_eq!(pace.run(class, Outcome::Success, secs(100)), None);
    }
    assert_eq!(pace.burst(Class::First, secs(100)), 7, "the rest of the second's ten");
}

#[test]
fn no_second_has_more_runs_than_the_rate() {
    for (class, rate, long) in [
        (Class::First, 10, ms(0)),
        (Class::First, 1, ms(0)),
        (Class::First, 3, ms(700)),
        (Class::Forced, 10, ms(50)),
        (Class::Background, 10, ms(0)),
        (Class::Background, 1, ms(0)),
        (Class::Background, 7, ms(300)),
    ] {
        let starts = pace(rate, 4).all(class, (secs(5), secs(65)), long);
        assert_eq!(busiest(&starts), rate, "{class:?}");
        assert!(starts.len() >= rate * 59, "{class:?} {rate}: {} starts leave none unused", starts.len());
    }
}

#[test]
fn background_runs_are_spread_over_the_second() {
    let starts = pace(10, 4).all(Class::Background, (secs(1), secs(2)), ms(20));
    assert!(starts.windows(2).all(|pair| pair[0] + ms(50) <= pair[1]), "{starts:?}");
    // So a new caller waits for at most a tenth of a second.
    let mut pace = pace(10, 4);
    let until = secs(10) + ms(510);
    pace.all(Class::Background, (secs(5), until), ms(0));
    let Gate::At(at, cause) = pace.gate(Class::First, until) else { panic!("the second is used up") };
    assert!(at <= until + ms(100), "{at:?}");
    assert_eq!(cause, Cause::Rate(10));
}

#[test]
fn the_number_of_runs_at_a_time_is_limited() {
    let mut pace = pace(10, 2);
    let first = pace.begin(Class::First, secs(1));
    assert_eq!(pace.gate(Class::Background, secs(1)), Gate::Open);
    let second = pace.begin(Class::Background, secs(1));
    for class in [Class::Forced, Class::First, Class::Background] {
        assert_eq!(pace.gate(class, secs(9)), Gate::Shut(Cause::Concurrency(2)));
    }
    pace.finish(first, Outcome::Unknown, 0.5, secs(9));
    assert_eq!(pace.gate(Class::First, secs(9)), Gate::Open);
    pace.finish(second, Outcome::Reached, 0.5, secs(9));
    assert_eq!(pace.paused(secs(9)), None, "a failure alone means nothing");
}

#[test]
fn a_pause_lasts_as_long_as_the_issuer_says_or_a_minute() {
    for (outcome, u, pause) in [
        (THROTTLED, 0.0, secs(48)),
        (THROTTLED, 0.5, secs(60)),
        (THROTTLED, 0.999, ms(71_976)),
        (after(7), 0.9, secs(7)),
        (after(7200), 0.9, secs(60)),
    ] {
        let mut pace = suspect(10, 4);
        let run = pace.begin(Class::First, secs(1));
        assert_eq!(pace.finish(run, outcome, u, secs(2)), Some(PaceChange::Paused(pause)));
        let probe = secs(17).min(secs(2) + pause);
        assert_eq!(pace.paused(secs(2)), Some(pause));
        let end = secs(2) + pause;
        let cause = Cause::Paused(pause);
        for class in [Class::First, Class::Background] {
            assert_eq!(pace.gate(class, secs(2)), Gate::At(probe, cause));
            assert_eq!(pace.gate(class, probe), Gate::Open);
        }
        assert_eq!(pace.gate(Class::Forced, secs(2)), Gate::Open);
        assert_eq!(pace.paused(end), None);
    }
}

#[test]
fn after_a_pause_a_single_run_probes_the_issuer() {
    let mut pace = suspect(10, 4);
    pace.run(Class::First, THROTTLED, secs(0));
    let probe = pace.begin(Class::Background, secs(60));
    for class in [Class::First, Class::Background] {
        assert_eq!(pace.gate(class, secs(70)), Gate::At(secs(75), Cause::Probe));
        assert_eq!(pace.gate(class, secs(75)), Gate::Open, "it hangs");
    }
    assert_eq!(pace.gate(Class::Forced, secs(70)), Gate::Open);
    assert_eq!(pace.finish(probe, THROTTLED, 0.5, secs(70)), Some(PaceChange::Paused(secs(60))));
    let probe = pace.begin(Class::First, secs(130));
    pace.finish(probe, Outcome::Unknown, 0.5, secs(131));
    let probe = pace.begin(Class::First, secs(131));
    let waits = Gate::At(secs(146), Cause::Probe);
    assert_eq!(pace.gate(Class::First, secs(132)), waits, "the last one said nothing");
    assert_eq!(pace.finish(probe, Outcome::Reached, 0.5, secs(132)), Some(PaceChange::Resumed));
}

#[test]
fn outcomes_of_runs_from_before_a_pause_neither_end_nor_extend_it() {
    let mut pace = suspect(10, 4);
    let [first, second, third, fourth] = [0; 4].map(|_| pace.begin(Class::First, secs(0)));
    pace.finish(first, THROTTLED, 0.5, secs(1));
    assert_eq!(pace.finish(second, THROTTLED, 0.5, secs(5)), None);
    assert_eq!(pace.finish(third, Outcome::Success, 0.5, secs(6)), None);
    assert_eq!(pace.paused(secs(6)), Some(secs(55)));
    assert_eq!(pace.finish(fourth, after(90), 0.5, secs(6)), None);
    assert_eq!(pace.paused(secs(6)), Some(secs(60)), "unless the issuer says for how long");
}

#[test]
fn a_forced_run_that_succeeds_ends_the_pause_and_one_that_fails_does_not() {
    let mut pace = suspect(10, 4);
    pace.run(Class::First, THROTTLED, secs(0));
    assert_eq!(pace.run(Class::Forced, Outcome::Reached, secs(10)), None);
    assert_eq!(pace.run(Class::Forced, THROTTLED, secs(20)), None);
    assert_eq!(pace.paused(secs(20)), Some(secs(60)), "it was asked again, and said the same");
    assert_eq!(pace.run(Class::Forced, Outcome::Success, secs(30)), Some(PaceChange::Resumed));
    assert_eq!(pace.paused(secs(30)), None);
    assert_eq!(pace.burst(Class::First, secs(30)), 9, "all of its rate");
}

#[test]
fn an_issuer_is_paused_after_two_keys_of_the_configuration_or_two_uids() {
    let of_peer = |source, uid: u64| (source, Party::peer(uid << 32 | 7));
    let once = [
        [of_broker(configured(1)), of_broker(configured(1))],
        [of_broker(sent(1)), of_broker(sent(1))],
        [of_broker(sent(1)), of_peer(sent(1), 1)],
        [of_peer(sent(1), 1), of_peer(configured(1), 1)],
        [of_broker(RunSource::Others { uid: None }), of_broker(sent(1))],
    ];
    let twice = [
        [of_broker(configured(1)), of_broker(configured(2))],
        [of_broker(sent(1)), of_broker(sent(2))],
        [of_peer(sent(1), 1), of_peer(configured(1), 2)],
        [of_peer(configured(1), 1), of_peer(configured(1), 2)],
    ];
    for (blames, is_paused) in once.map(|blames| (blames, false)).into_iter().chain(twice.map(|b| (b, true)))
    {
        for (apart, counts) in [(secs(119), true), (secs(121), false)] {
            let mut pace = pace(10, 4);
            for (blame, at) in blames.into_iter().zip([secs(1), secs(1) + apart]) {
                assert_eq!(pace.paused(at), None);
                let run = pace.start(Class::First, blame, at);
                pace.finish(run, THROTTLED, 0.5, at);
            }
            assert_eq!(pace.paused(secs(1) + apart).is_some(), is_paused && counts, "{blames:?} {apart:?}");
        }
    }
}

/// Its plugin receives no text of the uid that it starts for.
#[test]
fn a_throttled_run_of_the_configuration_keeps_no_uid_from_probing() {
    let mut pace = suspect(10, 4);
    let of_peer = (configured(1), Party::peer(1 << 32 | 7));
    for second in [0, 15] {
        assert!(pace.admits(broker(Some(1)), secs(second)), "{second}");
        let run = pace.start(Class::First, of_peer, secs(second));
        pace.finish(run, THROTTLED, 0.5, secs(second));
        assert_eq!(pace.paused(secs(second)), Some(secs(60)), "it begins or extends the pause");
    }
    assert!(pace.admits(broker(Some(1)), secs(30)));
}

#[test]
fn one_uid_neither_pauses_an_issuer_nor_has_two_probes_in_a_row() {
    let mut pace = suspect(10, 4);
    let run = |pace: &mut Pace, uid: Option<u32>, outcome, now: Duration| {
        let source = uid.map_or(configured(1), sent);
        let run = pace.start(Class::First, of_broker(source), now);
        pace.finish(run, outcome, 0.5, now)
    };
    for second in 0..100 {
        assert_eq!(run(&mut pace, Some(1), after(600), secs(second)), None);
    }
    assert_eq!(run(&mut pace, Some(2), THROTTLED, secs(100)), Some(PaceChange::Paused(secs(60))));
    let (first, second) = (broker(Some(1)), broker(Some(2)));
    let admitted = |pace: &Pace, at: u64| {
        assert!(pace.admits(broker(None), secs(at)));
        [first, second].map(|party| pace.admits(party, secs(at)))
    };
    assert_eq!(pace.gate(Class::First, secs(115)), Gate::Open);
    assert_eq!(admitted(&pace, 115), [true, false], "the second uid has caused it");
    run(&mut pace, Some(1), after(600), secs(115));
    assert_eq!(pace.paused(secs(115)), Some(secs(600)));
    assert_eq!(admitted(&pace, 130), [false, true], "the first had the last probe");
    run(&mut pace, None, Outcome::Reached, secs(130));
    assert!(pace.paused(secs(130)).is_some(), "the run may have failed before it asked the issuer");
    assert_eq!(admitted(&pace, 145), [true, true]);
    run(&mut pace, Some(1), after(600), secs(145));
    assert_eq!(pace.paused(secs(145)), Some(secs(570)), "its word alone makes it no longer");
    run(&mut pace, Some(2), Outcome::Success, secs(160));
    assert_eq!(pace.paused(secs(160)), None);
}

#[test]
fn the_uid_of_the_last_probe_waits_for_others_after_a_pause_for_half_a_minute() {
    let mut pace = suspect(10, 4);
    pace.run(Class::First, THROTTLED, secs(0));
    let probe = pace.start(Class::First, of_broker(sent(1)), secs(60));
    assert_eq!(pace.gate(Class::First, secs(74)), Gate::At(secs(75), Cause::Probe));
    assert_eq!(
        pace.gate(Class::First, secs(75)),
        Gate::Open,
        "a probe that hangs keeps no other from trying"
    );
    let admits = |pace: &Pace, party, at| pace.admits(party, secs(at));
    for party in [broker(Some(1)), Party::peer(1 << 32 | 7)] {
        assert!(!admits(&pace, party, 89) && admits(&pace, party, 90), "{party:?}");
    }
    assert!(admits(&pace, Party::peer(2 << 32 | 7), 75));
    assert_eq!(pace.pause.unwrap().readmits_at(), secs(90));
    pace.finish(probe, Outcome::Success, 0.5, secs(80));
    assert!(admits(&pace, broker(Some(1)), 80));
}
