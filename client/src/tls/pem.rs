//! PEM blocks, read as the broker reads them: what it accepts must not fail here.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use secrecy::{SecretSlice, zeroize::Zeroizing};

/// The content of the blocks whose label is `wanted`, in their order. Text around the blocks, their headers, and broken
/// blocks are skipped.
pub(super) fn blocks(pem: &[u8], wanted: fn(&str) -> bool) -> impl Iterator<Item = SecretSlice<u8>> {
    let mut lines = std::str::from_utf8(pem).unwrap_or_default().lines();
    let next = move || {
        loop {
            let Some(label) = label(lines.next()?, "-----BEGIN ").filter(|label| wanted(label)) else {
                continue;
            };
            if let Some(der) = content(label, &mut lines) {
                return Some(der);
            }
        }
    };
    std::iter::from_fn(next)
}

/// Whether it is the label of a certificate.
pub(super) fn is_certificate(label: &str) -> bool {
    label == "CERTIFICATE"
}

/// Whether it is the label of a private key of any format. Plugins print wrong formats, which Go ignores too.
pub(super) fn is_private_key(label: &str) -> bool {
    label.strip_suffix("PRIVATE KEY").is_some_and(|kind| kind.is_empty() || kind.ends_with(' '))
}

/// Reads up to the end of the block. `None`: it is not base64, or it does not end before the next block begins.
fn content<'a>(label: &str, lines: &mut (impl Iterator<Item = &'a str> + Clone)) -> Option<SecretSlice<u8>> {
    let mut base64 = Zeroizing::new(String::new());
    loop {
        let line = lines.clone().next().filter(|line| !line.starts_with("-----BEGIN "))?;
        lines.next();
        if self::label(line, "-----END ") == Some(label) {
            return STANDARD.decode(base64.as_bytes()).ok().map(SecretSlice::from);
        }
        if !line.contains(':') {
            base64.extend(line.chars().filter(|character| !character.is_ascii_whitespace()));
        }
    }
}

/// The label of a line that starts with `prefix`. Trailing blanks are ignored.
fn label<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    line.trim_end().strip_prefix(prefix)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn found(pem: &str, wanted: fn(&str) -> bool) -> Vec<Vec<u8>> {
        blocks(pem.as_bytes(), wanted).map(|der| der.expose_secret().to_vec()).collect()
    }

    #[test]
    fn blocks_are_found_by_their_label_between_other_text() {
        let pem = "Bag: x\r\n-----BEGIN CERTIFICATE-----  \r\nAQ\r\n I=\t\r\n-----END CERTIFICATE-----\r\ntext\n\
                   -----BEGIN EC PARAMETERS-----\nBA==\n-----END EC PARAMETERS-----\n\
                   -----BEGIN ANY PRIVATE KEY-----\nA header: x\n\nAw==\n-----END ANY PRIVATE KEY-----\n\
                   -----BEGIN CERTIFICATE-----\nBQ==\n-----END CERTIFICATE-----";
        assert_eq!(found(pem, is_certificate), [vec![1, 2], vec![5]]);
        assert_eq!(found(pem, is_private_key), [[3]]);
        assert!(found("", is_certificate).is_empty());
    }

    #[test]
    fn a_broken_block_is_skipped() {
        let whole = "-----BEGIN CERTIFICATE-----\nAw==\n-----END CERTIFICATE-----\n";
        for broken in [
            "-----BEGIN CERTIFICATE-----\nAQI=\n",
            "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(found(&format!("{broken}{whole}"), is_certificate), [[3]], "{broken}");
            assert!(found(broken, is_certificate).is_empty(), "{broken}");
        }
    }
}
