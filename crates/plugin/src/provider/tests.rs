use super::*;
use crate::testing::provider;

#[test]
fn debug_shows_no_values_and_no_arguments() {
    let env = vec![("NAME".to_owned(), "canary".to_owned())];
    let args = vec!["--secret=canary".to_owned()];
    let provider = Provider { args, env, ..provider("p", Command::Name("x".into())) };
    let shown = format!("{provider:?}");
    assert!(!shown.contains("canary"), "{shown}");
}
