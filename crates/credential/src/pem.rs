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
mod tests;
