use std::{
    io::{PipeReader, Read as _, pipe},
    sync::atomic::{AtomicU64, Ordering},
};

use super::*;

const TEXT: LogForm = LogForm::Text { colours: false };
const AGES: Duration = Duration::from_secs(60);

fn read_all(mut reader: PipeReader) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        text.len()
    })
}

#[test]
fn lines_beyond_the_bound_are_dropped_and_counted_once_it_flows() {
    static REPORTED: AtomicU64 = AtomicU64::new(0);
    let (reader, writer) = pipe().unwrap();
    let queue = LogQueue::start(writer, TEXT, |dropped| {
        REPORTED.fetch_add(dropped, Ordering::SeqCst);
    });
    let line = [b'x'; 1024];
    let bound = 2 * PENDING / line.len() + 64; // of the queue, of the writer, of the pipe
    let lines = 2 * bound;
    for _ in 0..lines {
        (&queue).write_all(&line).unwrap();
    }
    queue.flush(Duration::from_millis(1)); // returns although nothing is read
    assert!(queue.lock().pending.len() <= PENDING);
    let dropped = queue.lock().dropped;
    assert!(dropped >= u64::try_from(lines - bound).unwrap(), "{dropped}");
    drop(read_all(reader));
    queue.flush(AGES);
    assert_eq!(REPORTED.load(Ordering::SeqCst), dropped);
    assert_eq!(queue.lock().dropped, 0);
}

#[test]
fn a_pipe_that_does_not_block_loses_nothing() {
    let (reader, writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let lines = thread::spawn(move || {
        let mut sink = writer;
        for _ in 0..100 {
            write_batch(&mut sink, &[b'x'; 4096]).unwrap();
        }
    });
    assert_eq!(read_all(reader).join().unwrap(), 100 * 4096);
    lines.join().unwrap();
}

#[test]
fn a_reader_that_left_is_not_reported_over_and_over() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let queue = LogQueue::start(writer, TEXT, |_| panic!("without a reader there is nothing to report"));
    for _ in 0..PENDING {
        queue.line("line");
    }
    queue.flush(AGES);
    assert!(queue.lock().pending.is_empty());
}

/// Panics when it is written to.
struct Broken(io::PipeWriter);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("broken on purpose")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Broken {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[tokio::test]
async fn the_end_of_the_thread_that_writes_is_noticed_and_delays_no_flush() {
    let (_reader, writer) = pipe().unwrap();
    let queue = LogQueue::start(Broken(writer), TEXT, |_| {});
    queue.line("first");
    tokio::time::timeout(AGES, queue.ended()).await.expect("the end is noticed");
    queue.line("second");
    queue.flush(AGES);
    assert!(queue.lock().pending.is_empty(), "the rest went to stderr");
}
