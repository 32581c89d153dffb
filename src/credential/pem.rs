//! PEM blocks, found by their labels as in Go: text around them is skipped.

use base64::prelude::{BASE64_STANDARD, Engine};
use zeroize::Zeroizing;

/// One block.
pub(super) struct Block<'a> {
    /// The label after `BEGIN`.
    pub(super) label: &'a str,
    /// The line of `BEGIN`, counted from 1.
    pub(super) line: usize,
    /// A `Proc-Type` header says that it is encrypted.
    pub(super) encrypted: bool,
    /// The content; `None` if it is not base64 or its `END` is missing.
    pub(super) der: Option<Zeroizing<Vec<u8>>>,
}

impl Block<'_> {
    /// Whether it contains a private key in any format.
    pub(super) fn is_private_key(&self) -> bool {
        self.label.strip_suffix("PRIVATE KEY").is_some_and(|kind| kind.is_empty() || kind.ends_with(' '))
    }

    /// Whether it contains a certificate.
    pub(super) fn is_certificate(&self) -> bool {
        self.label == "CERTIFICATE"
    }
}

/// The blocks of `text` in their order.
pub(super) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut lines = text.lines().enumerate().peekable();
    let mut blocks = Vec::new();
    while let Some((number, line)) = lines.next() {
        let Some(label) = label(line, "-----BEGIN ") else { continue };
        let mut block = Block { label, line: number + 1, encrypted: false, der: None };
        let mut base64 = Zeroizing::new(String::new());
        // The beginning of the next block ends an unfinished one.
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with("-----BEGIN ")) {
            if self::label(line, "-----END ") == Some(label) {
                block.der = BASE64_STANDARD.decode(base64.as_bytes()).ok().map(Zeroizing::new);
                break;
            }
            match line.split_once(':') {
                Some((name, value)) => {
                    block.encrypted |= name.trim() == "Proc-Type" && value.trim().ends_with("ENCRYPTED");
                }
                None => base64.extend(line.chars().filter(|character| !character.is_ascii_whitespace())),
            }
        }
        blocks.push(block);
    }
    blocks
}

/// A block labelled CERTIFICATE, in lines of 64 characters as RFC 7468 demands.
pub(super) fn certificate(der: &[u8]) -> String {
    let base64 = BASE64_STANDARD.encode(der);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for (index, character) in base64.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            text.push('\n');
        }
        text.push(character);
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

/// Whether this is base64 of PEM or of DER: the output of a plugin that encodes twice.
pub(super) fn is_base64(text: &str) -> bool {
    let text: String = text.chars().filter(|character| !character.is_ascii_whitespace()).collect();
    !text.is_empty() && BASE64_STANDARD.decode(text).is_ok()
}

/// The label of a line that starts with `prefix`. Spaces may follow it.
fn label<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    line.trim_end().strip_prefix(prefix)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests {
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
            let text = certificate(&der);
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
}
