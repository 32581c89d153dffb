use super::*;

#[test]
fn a_star_matches_any_text() {
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

#[test]
fn identity_variables_are_found_as_their_patterns_say() {
    let patterns = Globs::new(IDENTITY_VARIABLES);
    let stems = IDENTITY_VARIABLES.map(|pattern| pattern.trim_end_matches('*').to_owned());
    assert!(IDENTITY_VARIABLES.iter().zip(&stems).all(|(pattern, stem)| pattern.len() - stem.len() <= 1));
    for stem in stems.iter().map(String::as_str).chain(["", "HOME", "A", "O"]) {
        for name in
            [stem.to_owned(), format!("{stem}X"), format!("X{stem}"), stem.to_lowercase(), format!("{stem}*")]
        {
            assert_eq!(is_identity_variable(name.as_bytes()), patterns.matches(&name), "{name}");
        }
        assert!(stem.len() < 2 || !is_identity_variable(&stem.as_bytes()[..stem.len() - 1]), "{stem}");
    }
}
