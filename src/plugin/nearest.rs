//! The name that somebody probably meant.

/// The one of `known` that `name` was most likely meant to be: about a third of its letters may be wrong.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let limit = (name.chars().count() + 1) / 3;
    let distance = |known: &str| strsim::osa_distance(&lower, &known.to_lowercase());
    known
        .into_iter()
        .map(|known| (distance(known), known))
        .filter(|(far, _)| *far <= limit)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["connections", "watchesPerConnection", "pluginRuns", "gke"];
        assert_eq!(nearest("conections", known), Some("connections"));
        assert_eq!(nearest("plugin_runs", known), Some("pluginRuns"));
        assert_eq!(nearest("PLUGINRUNS", known), Some("pluginRuns"));
        assert_eq!(nearest("gek", known), Some("gke"));
        assert_eq!(nearest("socket", known), None);
        assert_eq!(nearest("", known), None);
    }
}
