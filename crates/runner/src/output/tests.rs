use super::*;

#[tokio::test]
async fn stdout_is_whole_up_to_the_limit_and_refused_one_byte_later() {
    for size in [0, 1, FIRST - 1, FIRST, FIRST + 1, FIRST + 2, 99_999, 100_000, 100_001] {
        let written: Vec<u8> = (0..=250).cycle().take(size).collect();
        let mut stdout = Capped::new(&*written, 100_000);
        assert_eq!(stdout.fill().await.is_ok(), size <= 100_000, "{size}");
        if size <= 100_000 {
            assert_eq!(*stdout.into_bytes(), written);
        }
    }
}

#[tokio::test]
async fn only_the_end_of_stderr_is_kept() {
    for (size, cut) in [(0, false), (KEPT, false), (KEPT + 1, true), (10 * KEPT, true)] {
        let written: Vec<u8> = (0..=250).cycle().take(size).collect();
        let mut stderr = Tail::new(&*written, Arc::default());
        stderr.drain().await;
        assert!(stderr.bytes.capacity() < 8 * KEPT);
        let start = size.saturating_sub(KEPT);
        assert_eq!(stderr.end(), (&written[start..], cut));
    }
}

#[tokio::test]
async fn the_end_of_stderr_is_bounded_for_any_bytes() {
    for pattern in [&b"\x80"[..], b"\xbf\x80", b"x", b"\n", b"\r", b"\0", b"\x1b[2J", b"\xf0\x9f\x98"] {
        let written: Vec<u8> = pattern.iter().copied().cycle().take(1 << 20).collect();
        let mut stderr = Tail::new(&*written, Arc::default());
        stderr.drain().await;
        assert!(stderr.bytes.capacity() < 512 << 10, "{pattern:?}: {}", stderr.bytes.capacity());
        assert_eq!(stderr.end(), (&written[written.len() - KEPT..], true));
    }
}
