//! Patterns over variable names.

use std::fmt;

/// Patterns over variable names, in which `*` stands for any text, also none. No other character is special.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Globs(Vec<String>);

impl Globs {
    /// Patterns in any order; a name matches if one of them does.
    pub fn new(patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(patterns.into_iter().map(Into::into).collect())
    }

    /// Whether one of the patterns covers the whole of `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| covers(pattern, name))
    }
}

impl fmt::Display for Globs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Whether `pattern` covers the whole of `name`. The leftmost place for each middle part is as good as any other, so
/// nothing is tried twice: the time is linear whatever the pattern.
pub(super) fn covers(pattern: &str, name: &str) -> bool {
    let Some((first, others)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = others.split('*');
    let last = parts.next_back().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let table = [
            ("AWS_*", "AWS_PROFILE", true),
            ("AWS_*", "AWS_", true),
            ("AWS_*", "AWS", false),
            ("AWS_*", "XAWS_PROFILE", false),
            ("*", "", true),
            ("*", "ANYTHING", true),
            ("**", "ANYTHING", true),
            ("", "", true),
            ("", "A", false),
            ("AWS_PROFILE", "AWS_PROFILE", true),
            ("AWS_PROFILE", "AWS_PROFILE2", false),
            ("AWS_PROFILE", "aws_profile", false),
            ("*_TOKEN", "GITHUB_TOKEN", true),
            ("*_TOKEN", "GITHUB_TOKEN_", false),
            ("A*B*C", "A-B-C", true),
            ("A*B*C", "ABC", true),
            ("A*B*C", "ACB", false),
            ("A*A", "A", false), // no character counts twice
            ("A?", "AB", false),
            ("A?", "A?", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(Globs::new([pattern]).matches(name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn no_pattern_matches_nothing() {
        assert!(!Globs::default().matches("HOME"));
        assert!(!Globs::default().matches(""));
    }
}
