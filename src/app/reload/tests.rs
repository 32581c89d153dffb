use super::*;

/// A reading that never ends holds its turn.
#[tokio::test]
async fn no_second_job_starts_while_one_is_in_progress() {
    let turn = Arc::new(Mutex::new(()));
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let mut job = std::pin::pin!(within(&turn, move || end.recv().is_err()));
    assert!(futures_util::poll!(&mut job).is_pending());
    assert_eq!(within(&turn, || ()).await, None);
    drop(ended);
    assert_eq!(job.await, Some(true));
    assert_eq!(within(&turn, || ()).await, Some(()));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_end_is_not_waited_for() {
    let turn = Arc::new(Mutex::new(()));
    let (_ended, end) = std::sync::mpsc::channel::<()>();
    let stuck = within(&turn, move || end.recv_timeout(Duration::from_secs(1)).is_ok());
    // The paused clock only moves while no blocking job runs, unless it is moved.
    let moved = async {
        loop {
            tokio::time::advance(Duration::from_secs(1)).await;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    tokio::select! {
        biased;
        end = stuck => assert_eq!(end, None),
        () = moved => unreachable!(),
    }
    assert_eq!(within(&turn, || ()).await, None, "it still has its turn");
}
