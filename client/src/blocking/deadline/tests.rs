use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::*;

const LONG: Duration = Duration::from_secs(600);

#[test]
fn a_wait_ends_with_the_descriptor_its_own_limit_or_the_deadline() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let readable = || PollFd::new(&ours, PollFlags::IN);
    let mut deadline = Deadline::starting_now(Timeouts::default().total(LONG), None);
    assert_eq!(deadline.wait(readable(), Duration::from_millis(1)), Ok(false));
    assert!(!deadline.is_over());
    drop(theirs);
    assert_eq!(deadline.wait(readable(), LONG), Ok(true));

    let mut short = Deadline::starting_now(Timeouts::default().total(Duration::from_millis(5)), None);
    short.pause(LONG);
    assert!(short.is_over());
}

#[test]
fn the_notice_is_given_once_after_its_time() {
    let mut calls = 0;
    let mut notify = || calls += 1;
    let notice = Notice::new(Duration::from_millis(2), &mut notify);
    let mut deadline = Deadline::starting_now(Timeouts::default().total(LONG), Some(notice));
    deadline.pause(Duration::from_micros(1));
    for _ in 0..3 {
        deadline.pause(Duration::from_millis(4));
    }
    assert_eq!(calls, 1);

    let mut early = || panic!("the wait ended before");
    let notice = Notice::new(LONG, &mut early);
    Deadline::starting_now(Timeouts::default().total(LONG), Some(notice)).pause(Duration::from_millis(1));
}
