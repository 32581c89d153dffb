//! The pages of one list, and whether they make progress.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
    mem,
    time::Duration,
};

use kube::api::DynamicObject;

use super::bounds::Excess;

/// Pages in a row without a new profile that end the list. One of them is legal: the hub may filter after it has read a
/// page.
const IDLE: u32 = 6;
/// The pause after the first of them. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Pages of one list: twice as many as the largest fleet has if the broker asks for the smallest ones.
const PAGES: u32 = 5_000;

/// The progress of one list.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// The `continue` token of the next request; `None`: it asks for the first page.
    next: Option<String>,
    /// Hashes of the names so far.
    names: HashSet<u64>,
    hasher: RandomState,
    received: u32,
    /// Pages in a row without a new name.
    idle: u32,
}

impl Pages {
    /// The `continue` token of the next request.
    pub(super) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// How long to wait before the next request.
    pub(super) fn pause(&self) -> Duration {
        self.idle.checked_sub(1).map_or(Duration::ZERO, |before| FIRST_PAUSE * (1 << before))
    }

    /// A page came, with the token of the `next` one; `None`: it is the last.
    ///
    /// # Errors
    ///
    /// The list would not end.
    pub(super) fn turn(&mut self, page: &[DynamicObject], next: Option<String>) -> Result<(), Excess> {
        let before = self.names.len();
        let hash = |object: &DynamicObject| {
            self.hasher.hash_one((&object.metadata.namespace, &object.metadata.name))
        };
        self.names.extend(page.iter().map(hash));
        self.idle = if self.names.len() > before { 0 } else { self.idle + 1 };
        self.received += 1;
        let asked = mem::replace(&mut self.next, next);
        match &self.next {
            None => Ok(()),
            next if *next == asked => Err(Excess::RepeatedPage),
            Some(_) if self.idle >= IDLE => Err(Excess::EmptyPages(IDLE)),
            Some(_) if self.received >= PAGES => Err(Excess::Pages(PAGES)),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::object;

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
}
