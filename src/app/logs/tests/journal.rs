use std::os::unix::fs::MetadataExt as _;

use super::super::*;

#[test]
fn only_the_stream_that_systemd_opened_is_the_journal() {
    let (stderr, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let metadata = stderr.metadata().unwrap();
    let stream = format!("{}:{}", metadata.dev(), metadata.ino());
    let environment = Environment([("JOURNAL_STREAM".into(), stream.into())].into());
    assert!(is_journal(&stderr, &environment));
    assert!(!is_journal(&other, &environment));
    assert!(!is_journal(&stderr, &Environment::default()));
}

#[test]
fn each_record_is_a_datagram_and_one_that_is_too_large_costs_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let journald = UnixDatagram::bind(&path).unwrap();
    let mut sink = JournalSink::open(&path).unwrap();
    let large = vec![b'x'; 8 << 20];
    sink.write_all(&[b"MESSAGE=a\n\0", large.as_slice(), b"\0MESSAGE=b\n\0"].concat()).unwrap();
    for expected in ["MESSAGE=a\n", "MESSAGE=b\n"] {
        let mut record = [0; 64];
        let length = journald.recv(&mut record).unwrap();
        assert_eq!(str::from_utf8(&record[..length]).unwrap(), expected);
    }
}

#[test]
fn a_journald_that_was_restarted_gets_the_next_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    drop(UnixDatagram::bind(&path).unwrap());
    assert!(JournalSink::open(&path).is_err(), "nothing receives");
    std::fs::remove_file(&path).unwrap();
    let first = UnixDatagram::bind(&path).unwrap();
    let mut sink = JournalSink::open(&path).unwrap();
    drop(first);
    std::fs::remove_file(&path).unwrap();
    let second = UnixDatagram::bind(&path).unwrap();
    sink.write_all(b"MESSAGE=a\n\0").unwrap();
    assert_eq!(second.recv(&mut [0; 64]).unwrap(), 10);
}
