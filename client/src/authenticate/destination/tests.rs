use super::*;

fn of(uri: &str) -> Destination {
    Destination::of(&uri.parse().unwrap())
}

#[test]
fn it_shows_where_a_request_goes_and_nothing_else() {
    for (uri, expected) in [
        ("http://user:c4n4ry@example.com:8080/c4n4ry?c4n4ry", "http://example.com:8080"),
        ("https://Example.COM.:443", "https://example.com"),
        ("https://[0:0:0:0:0:0:0:1]:6443", "https://[::1]:6443"),
        ("/version", "a URI without a scheme or host"),
    ] {
        assert_eq!(of(uri).to_string(), expected);
    }
}

#[test]
fn the_same_server_in_another_spelling_is_equal() {
    for (uri, same) in [
        ("https://paris.example", "https://PARIS.example:443/path"),
        ("https://paris.example", "https://paris.example./"),
        ("http://paris.example", "HTTP://paris.example:80"),
        ("https://user@paris.example:6443", "https://paris.example:6443"),
        ("https://[::1]", "https://[0::0:1]:443"),
    ] {
        assert_eq!(of(uri), of(same));
    }
}

#[test]
fn another_scheme_host_or_port_is_another_server() {
    for (uri, other) in [
        ("https://paris.example", "http://paris.example:443"),
        ("https://paris.example", "https://paris.example:6443"),
        ("https://paris.example", "https://paris.example.evil.example"),
        ("https://paris.example", "https://paris.example@evil.example"),
        ("https://paris.example", "https://paris.example.."),
        ("https://127.0.0.1", "https://[::ffff:127.0.0.1]"),
        ("https://127.0.0.1", "https://localhost"),
    ] {
        assert_ne!(of(uri), of(other));
    }
}
