use super::*;

fn found(text: &str) -> Vec<(&str, usize, Option<Vec<u8>>)> {
    blocks(text)
        .into_iter()
        .map(|block| (block.label, block.line, block.der.map(|der| der.to_vec())))
        .collect()
}

#[test]
fn blocks_are_found_between_other_text() {
    let text = "Bag: x\n-----BEGIN A-----  \r\nAQ\r\n I=\t\r\n-----END A-----\r\nmiddle\n\n-----BEGIN B C-----\n\
                -----END B C-----\n x -----BEGIN D-----\n-----BEGIN E-----\nAw==\n-----END E-----";
    let expected = vec![("A", 2, Some(vec![1, 2])), ("B C", 8, Some(vec![])), ("E", 11, Some(vec![3]))];
    assert_eq!(found(text), expected);
    assert_eq!(found(""), vec![]);
}

#[test]
fn a_broken_block_differs_from_a_missing_one() {
    for text in [
        "-----BEGIN A-----\nAQI=\n",
        "-----BEGIN A-----\nAQI\n-----END A-----",
        "-----BEGIN A-----\n!!!!\n-----END A-----",
        "-----BEGIN A-----\nAQI=\n-----END B-----",
        "-----BEGIN A-----",
    ] {
        assert_eq!(found(text), vec![("A", 1, None)], "{text}");
    }
    let text = "-----BEGIN A-----\nAQI=\n-----BEGIN A-----\nAw==\n-----END A-----\n";
    assert_eq!(found(text), vec![("A", 1, None), ("A", 3, Some(vec![3]))]);
}

#[test]
fn headers_are_not_content() {
    let text =
        "-----BEGIN A-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAQI=\n-----END A-----\n";
    assert_eq!(found(text), vec![("A", 1, Some(vec![1, 2]))]);
    assert!(blocks(text)[0].encrypted && !blocks(&text.replace("ENCRYPTED", "CLEAR"))[0].encrypted);
}

#[test]
fn a_certificate_is_written_as_it_is_read() {
    for length in [0, 1, 47, 48, 49, 200] {
        let der = vec![7; length];
        let text = certificate_block(&der);
        assert_eq!(found(&text), vec![("CERTIFICATE", 1, Some(der))], "{length}");
        assert!(text.lines().all(|line| line.len() <= 64), "{text}");
    }
}

#[test]
fn labels_say_what_a_block_holds() {
    let keys = |label: &str| blocks(&format!("-----BEGIN {label}-----\n"))[0].is_private_key();
    for label in
        ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "ANY PRIVATE KEY"]
    {
        assert!(keys(label), "{label}");
    }
    for label in ["PUBLIC KEY", "CERTIFICATE", "XPRIVATE KEY", "PRIVATE KEY X", "EC PARAMETERS"] {
        assert!(!keys(label), "{label}");
    }
}
