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
async fn all_of_stderr_is_read_in_a_small_buffer() {
    for pattern in [&b"\x80"[..], b"\xbf\x80", b"x", b"\n", b"\r", b"\0", b"\x1b[2J", b"\xf0\x9f\x98"] {
        let written: Vec<u8> = pattern.iter().copied().cycle().take(1 << 20).chain(*b"\nend").collect();
        let run = Arc::<Attendance>::default();
        let mut stderr = Stderr::new(&*written, Arc::clone(&run));
        stderr.drain().await;
        assert!(stderr.buffer.capacity() <= 2 * PIECE, "{pattern:?}: {}", stderr.buffer.capacity());
        run.show_partial_line();
        assert_eq!(run.last_lines(3), "end", "{pattern:?}");
    }
}
