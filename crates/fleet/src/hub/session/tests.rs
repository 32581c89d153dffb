use futures_util::stream;

use super::*;
use crate::hub::tests::{Setup, object};

#[tokio::test]
async fn all_is_read_when_each_namespace_was_read_to_its_end() {
    let setup = Setup::new(Duration::ZERO, false);
    let inventory = setup.inventory(Vec::new());
    let scopes = Scopes::new(vec!["edge".into(), "fleet".into()], String::new());
    let read = async |events: Vec<(usize, Event<DynamicObject>)>| {
        let (mut reads, events) = (0, events.into_iter().map(|(scope, event)| (scope, Ok(event))));
        let limit = Duration::from_secs(60);
        let ended = read(stream::iter(events), limit, &scopes, &inventory, || reads += 1).await;
        assert!(matches!(ended, HubError::Ended), "{ended:?}");
        reads
    };
    let paris = || Event::InitApply(object("fleet/paris", "paris"));
    let first = vec![(1, Event::Init), (0, Event::Init), (1, paris()), (1, Event::InitDone)];
    assert_eq!((read(first.clone()).await, setup.fleet.list(None).len()), (0, 1));
    // A new connection reads both again.
    let second = [first, vec![(0, Event::InitDone)]].concat();
    assert_eq!(read(second).await, 1);
}

fn token(number: u32) -> String {
    number.to_string()
}

#[test]
fn a_list_ends_when_its_pages_bring_nothing_new() {
    for page in [Vec::new(), vec![object("fleet/paris", "paris")]] {
        let mut pages = Pages::default();
        pages.turn(&[object("fleet/paris", "paris")], Some(token(0))).unwrap();
        for number in 1..IDLE {
            pages.turn(&page, Some(token(number))).unwrap();
        }
        assert_eq!(pages.turn(&page, Some(token(IDLE))), Err(Excess::EmptyPages(IDLE)));
    }
}

#[test]
fn a_page_without_a_new_name_delays_the_next_request_and_one_with_a_new_name_does_not() {
    let mut pages = Pages::default();
    let mut pauses = Vec::new();
    for number in 1..IDLE {
        pages.turn(&[], Some(token(number))).unwrap();
        pauses.push(pages.pause().as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600]);
    pages.turn(&[object("fleet/paris", "paris")], Some(token(IDLE))).unwrap();
    assert_eq!(pages.pause(), Duration::ZERO);
    pages.turn(&[], None).expect("the last page may be empty");
}

#[test]
fn a_list_ends_when_a_page_leads_to_itself_and_when_it_has_too_many_pages() {
    let mut pages = Pages::default();
    pages.turn(&[object("fleet/paris", "paris")], Some(token(1))).unwrap();
    let turned = pages.turn(&[object("fleet/tokyo", "tokyo")], Some(token(1)));
    assert_eq!(turned, Err(Excess::RepeatedPage));
    let mut pages = Pages::default();
    let turns =
        (0..).map(|number| pages.turn(&[object(&format!("fleet/{number}"), "x")], Some(token(number))));
    let turned = turns.enumerate().find_map(|(count, turned)| Some((count + 1, turned.err()?)));
    assert_eq!(turned, Some((5_000, Excess::Pages(5_000))));
}
