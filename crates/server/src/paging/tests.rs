use super::*;

fn paging(size: i32) -> Paging {
    Paging::read::<usize>("list", &"filter", size, None).unwrap().0
}

/// Number of rows in each page of a list with `rows` rows of `length` bytes.
fn pages(size: i32, rows: usize, length: usize) -> Vec<usize> {
    let (mut lengths, mut after) = (Vec::new(), 0_usize);
    loop {
        // A `String` is a message: its tag and length take two or three bytes.
        let rest = (after..rows).map(|row| ("x".repeat(length), row));
        let (page, token) = paging(size).fill(rest);
        lengths.push(page.len());
        let Some(last) = Paging::read::<usize>("list", &"filter", size, token.as_deref()).unwrap().1 else {
            return lengths;
        };
        after = last + 1;
    }
}

#[test]
fn a_page_has_as_many_rows_as_were_asked_for_or_fit() {
    assert_eq!(pages(2, 5, 10), [2, 2, 1]);
    assert_eq!(pages(5, 5, 10), [5], "the last page is known to be the last");
    assert_eq!(pages(0, 5, 10), [5]);
    assert_eq!(pages(0, 5, BYTES * 3 / 10), [3, 2]);
    assert_eq!(pages(4, 5, BYTES * 3 / 10), [3, 2]);
    assert_eq!(pages(0, 2, 2 * BYTES), [1, 1], "a row that is larger than a page is a page");
    assert_eq!(pages(0, 0, 0), [0]);
}

#[test]
fn a_page_size_over_the_maximum_means_the_maximum_and_a_negative_one_is_refused() {
    assert_eq!(pages(i32::MAX, ROWS + 1, 0), [ROWS, 1]);
    let refused = Paging::read::<usize>("list", &"filter", -1, None).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

#[test]
fn a_token_belongs_to_its_list_and_filter() {
    let at = |name: &str| (name.to_owned(), [0xa7_u8; 32]);
    let (_, token) = paging(1).fill([(String::new(), at("a/\0\"")), (String::new(), at("c"))].into_iter());
    let read = |name: &str, filter: &str| {
        Paging::read::<(String, [u8; 32])>(name, &filter, 7, token.as_deref()).map(|(_, after)| after)
    };
    assert_eq!(read("list", "filter").unwrap(), Some(at("a/\0\"")), "the size may change from page to page");
    for (name, filter) in [("other", "filter"), ("list", "other")] {
        assert_eq!(read(name, filter).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
    let token = token.as_deref().unwrap();
    for (token, is_whole) in [("gke", false), (token, true), (&token.replace("[167,", "["), false)] {
        assert!(Paging::read::<String>("list", &"filter", 0, Some(token)).is_err(), "{token}");
        let read = Paging::read::<(String, [u8; 32])>("list", &"filter", 0, Some(token));
        assert_eq!(read.is_ok(), is_whole, "{token}");
    }
}
