use std::cell::Cell;

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

/// How far a session of two scopes comes, of which `listed` are listed after a second, and that lasts for `lasts`.
async fn progress(listed: usize, lasts: Duration) -> (Option<Progress>, Option<Excess>) {
    let (unread, last) = (watch::Sender::new(2), Cell::new(None));
    let note = |progress| last.set(Some(progress));
    let listing = async {
        sleep(Duration::from_secs(1)).await;
        unread.send_modify(|unread| *unread -= listed);
        sleep(lasts).await;
    };
    let excess = tokio::select! {
        () = listing => None,
        excess = watch_over(unread.subscribe(), LIMIT, note) => Some(excess),
    };
    (last.get(), excess)
}

#[tokio::test(start_paused = true)]
async fn all_is_read_when_each_scope_was_listed_and_steady_a_while_later() {
    assert_eq!(progress(1, LIMIT / 2).await, (None, None));
    assert_eq!(progress(1, LIMIT * 2).await, (None, Some(Excess::Time(LIMIT))));
    assert_eq!(progress(2, STEADY / 2).await, (Some(Progress::Read), None), "it answered and failed");
    assert_eq!(progress(2, STEADY * 2).await, (Some(Progress::Steady), None));
}

fn token(number: u32) -> String {
    number.to_string()
}

#[test]
fn a_list_ends_when_its_pages_bring_nothing_new() {
    let mut pages = Pages::default();
    pages.turn(1, Some(token(0))).unwrap();
    for number in 1..IDLE {
        pages.turn(1, Some(token(number))).unwrap();
    }
    assert_eq!(pages.turn(1, Some(token(IDLE))), Err(Excess::EmptyPages(IDLE)));
}

#[test]
fn a_page_without_a_new_name_delays_the_next_request_and_one_with_a_new_name_does_not() {
    let mut pages = Pages::default();
    let mut pauses = Vec::new();
    for number in 1..IDLE {
        pages.turn(0, Some(token(number))).unwrap();
        pauses.push(pages.pause().as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600]);
    pages.turn(1, Some(token(IDLE))).unwrap();
    assert_eq!(pages.pause(), Duration::ZERO);
    pages.turn(1, None).expect("the last page may be empty");
}

#[test]
fn a_list_ends_when_a_page_leads_to_itself_and_when_it_has_too_many_pages() {
    let mut pages = Pages::default();
    pages.turn(1, Some(token(1))).unwrap();
    assert_eq!(pages.turn(2, Some(token(1))), Err(Excess::RepeatedPage));
    let mut pages = Pages::default();
    let turns = (1..).map(|number| pages.turn(number, Some(number.to_string())));
    let turned = turns.enumerate().find_map(|(count, turned)| Some((count + 1, turned.err()?)));
    assert_eq!(turned, Some((5_000, Excess::Pages(5_000))));
}
