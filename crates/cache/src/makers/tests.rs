use super::*;

#[test]
fn the_process_and_then_the_uid_with_the_most_entries_gives_way_first() {
    // Of uid 1: process 1 with the entries a to d, and process 2 with e. Of uid 2: process 3 with f and g.
    let entries =
        vec![('a', 1, 1), ('f', 3, 2), ('b', 1, 1), ('e', 2, 1), ('c', 1, 1), ('d', 1, 1), ('g', 3, 2)];
    let order: String =
        by_share(entries, |(_, process, uid)| (*process, *uid)).iter().rev().map(|(name, ..)| name).collect();
    assert_eq!(order, "dcgbefa");
}

#[test]
fn processes_without_entries_are_forgotten() {
    let (mut makers, mut made) = (Makers::default(), Vec::new());
    for process in 0..1000_u64 {
        let maker = makers.get(process);
        if process < 10 {
            made.push(maker.makes(1));
        }
    }
    assert!(makers.processes.len() <= 64 + 10, "{}", makers.processes.len());
    assert!((0..10).all(|process| makers.processes.contains_key(&process)));
}
