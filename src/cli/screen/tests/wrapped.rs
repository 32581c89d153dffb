use super::super::*;

#[test]
fn long_lines_are_wrapped_and_long_words_divided() {
    let text = "gke: PLUGIN_EXIT: the plugin /usr/local/bin/gke-gcloud-auth-plugin-with-a-name exited with 1";
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
