//! Install hints: text of a config that reaches a terminal.

/// `hint` as client-go shows it: what is no letter, mark, number, punctuation, symbol or blank is written `U+001B`,
/// so that it cannot steer a terminal.
pub(super) fn sanitised(hint: &str) -> String {
    hint.chars()
        .map(|c| if is_invisible(c) { format!("U+{:04X}", u32::from(c)) } else { c.to_string() })
        .collect()
}

/// Control characters other than blanks, and Unicode's format and private-use characters.
fn is_invisible(c: char) -> bool {
    (c.is_control() && !c.is_whitespace())
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}'
            | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}' | '\u{f0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_spelt_out() {
        let table = [
            ("Install it:\n\tapt install x", "Install it:\n\tapt install x"),
            ("\u{1b}[31mred", "U+001B[31mred"),
            ("a\u{7}b\u{9b}c", "aU+0007bU+009Bc"),
            ("\u{202e}txt.exe", "U+202Etxt.exe"),
            ("Überprüfe ✓ 日本 e\u{301}", "Überprüfe ✓ 日本 e\u{301}"),
        ];
        for (hint, expected) in table {
            assert_eq!(sanitised(hint), expected);
        }
    }
}
