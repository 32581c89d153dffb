//! Suggestions for a mistyped name.

/// Longer names get no suggestion.
const LONGEST: usize = 100;

/// The name among `known` that is most similar to `name`, if at most about a third of its letters differ.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The cost grows with the product of both lengths, and a caller chooses one of them.
    let letters = name.chars().take(LONGEST + 1).count();
    if letters > LONGEST {
        return None;
    }
    let (lower, limit) = (name.to_lowercase(), (letters + 1) / 3);
    let distance = |known: &str| strsim::osa_distance(&lower, &known.to_lowercase());
    let near = known.into_iter().filter(|known| known.chars().count().abs_diff(letters) <= limit);
    let near = near.map(|known| (distance(known), known)).filter(|(far, _)| *far <= limit);
    near.min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_gets_a_suggestion_and_another_word_does_not() {
        let known = ["connections", "watchesPerConnection", "pluginRuns", "gke"];
        assert_eq!(nearest("conections", known), Some("connections"));
        assert_eq!(nearest("plugin_runs", known), Some("pluginRuns"));
        assert_eq!(nearest("PLUGINRUNS", known), Some("pluginRuns"));
        assert_eq!(nearest("gek", known), Some("gke"));
        assert_eq!(nearest("socket", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), ["x".repeat(1 << 20).as_str()]), None);
    }
}
