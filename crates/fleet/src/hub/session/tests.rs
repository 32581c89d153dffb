use std::time::Duration;

use futures_util::stream;

use super::*;
use crate::hub::tests::{Runner, Setup, object};

fn session<'a>(
    inventory: &'a Inventory<std::sync::Arc<Runner>>,
    scopes: &'a Scopes,
    events: Vec<(usize, Event<DynamicObject>)>,
) -> HubSession<'a, std::sync::Arc<Runner>> {
    let events = stream::iter(events.into_iter().map(|(scope, event)| (scope, Ok(event)))).boxed();
    let read = vec![false; scopes.namespaces.len()];
    let progress = ReadProgress { inventory, scopes, read };
    HubSession { events, renewal: None, progress, list: Duration::from_secs(60) }
}

#[tokio::test]
async fn all_is_read_when_each_namespace_was_read_to_its_end() {
    let setup = Setup::new(Duration::ZERO, false);
    let inventory = setup.inventory(Vec::new());
    let scopes = Scopes::new(vec!["edge".into(), "fleet".into()], String::new());
    let (mut reads, paris) = (0, || Event::InitApply(object("fleet/paris", "paris")));
    let first = vec![(1, Event::Init), (0, Event::Init), (1, paris()), (1, Event::InitDone)];
    let ended = session(&inventory, &scopes, first.clone()).follow(|| reads += 1).await;
    assert!(matches!(ended, SessionEnd::Failed(HubError::Ended)), "{ended:?}");
    assert_eq!((reads, setup.fleet.list(None).len()), (0, 1));
    // A new connection reads both again.
    let second = [first, vec![(0, Event::InitDone)]].concat();
    session(&inventory, &scopes, second).follow(|| reads += 1).await;
    assert_eq!(reads, 1);
}
