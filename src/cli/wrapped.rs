//! Text in lines that fit a terminal.

/// `text` in lines of at most `width` characters; all but the first begin with `indent` blanks. A word that is longer is
/// divided.
pub(super) fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let words = text.trim_start_matches(' ');
    let blanks = |count: usize| " ".repeat(if count + 10 > width { 0 } else { count });
    let mut line = blanks(text.len() - words.len());
    let (mut lines, mut start, mut length) = (String::new(), line.len(), line.len());
    for mut word in words.split(' ') {
        loop {
            let blank = usize::from(length > start);
            let count = word.chars().count();
            if length + blank + count <= width {
                line.extend(std::iter::repeat_n(' ', blank));
                line.push_str(word);
                length += blank + count;
                break;
            }
            if blank == 0 {
                let (first, rest) = split(word, width - length);
                line.push_str(first);
                word = rest;
            }
            lines.push_str(&std::mem::replace(&mut line, blanks(indent)));
            lines.push('\n');
            (start, length) = (line.len(), line.len());
        }
    }
    lines + &line + "\n"
}

fn split(text: &str, at: usize) -> (&str, &str) {
    let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
    text.split_at_checked(at).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_and_long_words_divided() {
        let text =
            "gke: PLUGIN_EXIT: the plugin /usr/local/bin/gke-gcloud-auth-plugin-with-a-name exited with 1";
        assert_eq!(
            wrapped(text, 2, 30),
            "gke: PLUGIN_EXIT: the plugin\n  /usr/local/bin/gke-gcloud-au\n  th-plugin-with-a-name exited\n  with 1\n"
        );
        assert_eq!(wrapped(text, 2, usize::MAX), format!("{text}\n"));
        assert_eq!(wrapped("", 2, 30), "\n");
        assert_eq!(wrapped("    /a b", 4, 30), "    /a b\n");
        assert_eq!(wrapped("config  /a", 8, 30), "config  /a\n");
        for width in 10..60 {
            let text = wrapped(text, 2, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }
}
