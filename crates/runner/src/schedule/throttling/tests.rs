use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;

use super::*;
use credbroker_credential::Cluster;
use credbroker_plugin::{
    Command, Globs, PluginFile, PluginKey, Provider, testing::provider as test_provider,
};

fn texts(texts: &[&str]) -> ForeignTexts {
    let mut foreign = ForeignTexts::default();
    for text in texts {
        foreign.add(text.as_bytes(), SHORTEST);
    }
    foreign
}

fn spec(variables: &[(&str, &str)], cluster: Option<Cluster>) -> PluginSpec {
    let command = Command::Path("/fake".into());
    let provider =
        Provider { caller_env: Globs::new(["AWS_PROFILE", "X*"]), ..test_provider("p", command.clone()) };
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    PluginSpec {
        key: PluginKey([0; 32]),
        provider: Arc::new(provider),
        file: Arc::new(PluginFile::new(command, None)),
        cluster: cluster.map(Arc::new),
        caller_env: variables.collect::<BTreeMap<_, _>>(),
        target: None,
    }
}

/// Whether the run of a caller with these variables and this cluster is throttled, if it prints `stderr`.
fn is_throttled(variables: &[(&str, &str)], cluster: Option<Cluster>, stderr: &str) -> bool {
    let spec = spec(variables, cluster);
    throttling(stderr, || ForeignTexts::of(&spec, None)).is_some()
}

impl ForeignTexts {
    /// `text` with a line break in place of each byte of a character that is marked.
    fn masked(&self, text: &str) -> String {
        let marks = self.marks(text);
        let mut masked = String::new();
        for (at, character) in text.char_indices() {
            let length = character.len_utf8();
            if marks[at..at + length].contains(&true) {
                masked.extend(std::iter::repeat_n('\n', length));
            } else {
                masked.push(character);
            }
        }
        masked
    }
}

#[test]
fn each_piece_of_three_characters_is_replaced() {
    for (text, stderr, masked) in [
        ("Throttling", "profile (Throttling) not found", "profile (..........) not found"),
        ("Throttling", "THROTTLING throttling", ".......... .........."),
        ("a-Throttling-b", "ottli Throttling", "..... .........."),
        ("th", "the th", "the th"),
        ("Thr ott", "Throttling", "......ling"),
        ("Rate%20exceeded", "Rate exceeded", "............."),
        ("Rate exceeded", "x=Rate%20exceeded", "x=..............."),
        ("%54hrottling", "Throttling", ".........."),
        ("4%2532%39", "429 4%32%39", "... ......."),
        ("%zz%4", "%zz%4", "....."),
        ("naïve", "the naïve one", "the ...... one"),
        ("éab", "ũab", "...."), // the last byte of both characters is the same
        ("", "HTTP 429", "HTTP 429"),
    ] {
        let found = texts(&[text]).masked(stderr).replace('\n', ".");
        assert_eq!(found, masked, "{text} in {stderr}");
    }
}

#[test]
fn removing_one_text_joins_nothing() {
    // Each of the texts is found in the original, and what remains is apart.
    let both = texts(&["XXX", "42"]);
    assert_eq!(both.masked("4XXX29"), "4\n\n\n29");
    assert_eq!(throttling("4XXX29 Throttling", || texts(&["XXX", "Throttling"])), None);
    // A text that is removed makes no word of what was a part of one.
    for (text, stderr) in
        [("profile", "profileThrottling"), ("token.go:", "token.go:429] no token"), ("port 1", "port 1429")]
    {
        let stderr = format!("{stderr} RESOURCE_EXHAUSTED");
        assert_eq!(throttling(&stderr, || texts(&[text, "RESOURCE_EXHAUSTED"])), None, "{stderr}");
    }
}

#[test]
fn what_a_caller_sent_is_not_searched() {
    let quoted = |value: &str| format!("The config profile ({value}) could not be found");
    for value in ["Throttling", "x) Retry-After: 600 (", "429", "HTTP 429", "RESOURCE_EXHAUSTED"] {
        let variables = [("AWS_PROFILE", value)];
        assert!(is_throttled(&[], None, &quoted(value)), "{value}: the same words of the plugin");
        assert!(!is_throttled(&variables, None, &quoted(value)), "{value}");
        let real = format!("{} | Rate exceeded", quoted(value));
        assert!(is_throttled(&variables, None, &real), "{value}: it is really throttled");
    }
    assert!(!is_throttled(&[("AWS_PROFILE", "resource_exhausted")], None, "RESOURCE_EXHAUSTED"));
    assert!(!is_throttled(&[("X-Throttling", "")], None, "unset: X-Throttling"), "a name that `X*` admits");
    let cluster = |config: &str| {
        let server = "https://Throttling".to_owned();
        Some(Cluster { server, config: config.to_owned().into(), ..Cluster::default() })
    };
    assert!(!is_throttled(&[], cluster(""), "no such host: Throttling"));
    let escaped = |text: &str| text.bytes().map(|byte| format!("\\u{byte:04x}")).collect::<Vec<_>>().concat();
    for sign in ["HTTP 429", "Rate exceeded", "Throttling"] {
        for config in [format!(r#"{{"a": ["{}"]}}"#, escaped(sign)), format!(r#"{{"{}": 1}}"#, escaped(sign))]
        {
            assert!(!is_throttled(&[], cluster(&config), sign), "as JSON means it: {config}");
            assert!(is_throttled(&[], cluster(&config), "TooManyRequests"), "{config}");
        }
    }
    let session =
        Session::of([("TERM".to_owned(), "Throttling".to_owned())].into(), credbroker_plugin::Origin::Beside);
    let spec = spec(&[], None);
    let found = throttling("unknown terminal Throttling", || ForeignTexts::of(&spec, session.as_deref()));
    assert_eq!(found, None, "the session of a user");
}

#[test]
fn throttling_is_found_beside_large_certificate_authorities() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut line = |length: usize| -> String { (0..length).map(|_| random.alphanumeric()).collect() };
    let certificate =
        |body: String| format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n");
    let bundle: String = (0..100)
        .map(|_| certificate((0..25).map(|_| line(64) + "\n").collect::<String>() + &line(40) + "\n"))
        .collect();
    let cluster = |authorities: String| {
        Some(Cluster {
            server: "https://paris".into(),
            certificate_authority_data: authorities.into(),
            ..Cluster::default()
        })
    };
    for stderr in ["Throttling", "Rate exceeded", "TooManyRequests", "AADSTS90055", "RESOURCE_EXHAUSTED"] {
        assert!(is_throttled(&[], cluster(bundle.clone()), stderr), "{stderr}");
    }
    let crafted = format!("Throttling\n{}/Throttling/\n", "A".repeat(20));
    for stderr in ["bad line: Throttling", &format!("bad line: {}/Throttling/", "A".repeat(20))] {
        assert!(!is_throttled(&[], cluster(crafted.clone()), stderr), "{stderr}");
    }
    let encoded = "/Throttling/AAAA";
    let certificate_authority_data = STANDARD.decode(encoded).unwrap().into();
    let binary = Cluster { server: "https://paris".into(), certificate_authority_data, ..Cluster::default() };
    assert!(is_throttled(&[], cluster(String::new()), encoded));
    assert!(!is_throttled(&[], Some(binary), encoded), "as the plugin receives it");
}

#[test]
fn more_text_than_is_compared_hides_everything() {
    let large = "x".repeat(MOST + 1);
    assert!(!is_throttled(&[("AWS_PROFILE", &large)], None, "Throttling"));
    assert!(is_throttled(&[("AWS_PROFILE", &large[..MOST / 2])], None, "Throttling"));
}

#[test]
fn the_texts_are_not_shown() {
    assert_eq!(format!("{:?}", texts(&["canary"])), "ForeignTexts(6 bytes)");
}

proptest! {
    /// What a plugin quotes of the texts that a caller sent is never a sign.
    #[test]
    fn no_quotation_is_throttling(
        before in "[a-z%: ]{0,6}",
        sign in prop::sample::select(vec!["Throttling", "Rate exceeded", "429", "Retry-After: 600"]),
        after in "[a-z%: ]{0,6}",
        encoded: bool,
    ) {
        let value = format!("{before}{sign}{after}");
        let sent: String = if encoded { value.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat() } else { value.clone() };
        let stderr = format!("error: ({value})");
        prop_assert_eq!(throttling(&stderr, || texts(&[&sent])), None);
    }

    #[test]
    fn any_text_is_masked(stderr: String, texts: Vec<String>) {
        let mut foreign = ForeignTexts::default();
        for text in &texts {
foreign.add(text.as_bytes(), SHORTEST);
}
        let masked = foreign.masked(&stderr);
        prop_assert_eq!(masked.len(), stderr.len());
        prop_assert!(stderr.bytes().zip(masked.bytes()).all(|(one, other)| other == b'\n' || one == other));
        for text in texts.iter().filter(|text| text.len() >= SHORTEST) {
            prop_assert!(!masked.contains(text.as_str()) || text.contains('\n'));
        }
    }
}

const UNKNOWN: Throttling = Throttling { retry_after: None };

fn after(seconds: u64) -> Throttling {
    Throttling { retry_after: Some(Duration::from_secs(seconds)) }
}

#[test]
fn throttling_is_recognized_in_the_words_of_issuers() {
    for text in [
        "An error occurred (Throttling) when calling the AssumeRole operation (reached max retries: 4): Rate exceeded",
        "operation error STS: https response error StatusCode: 400, api error Throttling: Rate exceeded",
        "Throttling",
        "error: TooManyRequests: slow down",
        "unexpected status code 429",
        "HTTP 429: Too Many Requests",
        "429 Client Error",
        "server returned status:429.",
        r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}"#,
        "rpc error: code = RESOURCE_EXHAUSTED desc = quota",
        "invalid_request: AADSTS90055: the tenant is being throttled",
        "AADSTS50196 | Trace ID: 1",
        "first line | (HTTP/1.1 429) | last line",
    ] {
        assert_eq!(throttling(text, ForeignTexts::default), Some(UNKNOWN), "{text}");
    }
}

#[test]
fn parts_of_longer_words_and_numbers_are_ignored() {
    for text in [
        "",
        "xThrottling",
        "Throttlings",
        "Throttling_x",
        "ThrottlingÄ",
        "client-side throttling, not priority and fairness",
        "rate exceeded the limit",
        "Rate  exceeded",
        "TooManyRequestsX",
        "X_RESOURCE_EXHAUSTED",
        "AADSTS900551",
        "4290",
        "1429",
        "HTTP 4290: x",
        "1.429 s",
        "429.5 ms",
        "took 429ms",
        "429,000 bytes",
        "2026-11-21 10:00:00,429 connection refused",
        "2026-11-21T10:00:00.429Z refused",
        "10:00:00.429 refused",
        "id 8-429-1",
        "token.go:429] no token",
        "/src/main.py:429: error",
        "File \"x.py\", line 429, in main",
        "main.c:429:5: error",
        "see the Retry-After header",
        "x-retry-after_ms: 5",
        "not logged in",
    ] {
        assert_eq!(throttling(text, ForeignTexts::default), None, "{text}");
    }
}

#[test]
fn the_time_that_the_issuer_names_is_used() {
    for (text, expected) in [
        ("Retry-After: 30", after(30)),
        ("retry-after:7", after(7)),
        ("< Retry-After: 30 | 503", after(30)),
        ("map[Retry-After:[12] Server:[x]]", after(12)),
        (r#"{"Retry-After": "15"}"#, after(15)),
        (r#""retry-after":"15","x":1"#, after(15)),
        ("Retry-After: 30s", after(30)),
        ("429 Too Many Requests; Retry-After: 5, please", after(5)),
        ("Retry-After: 5 | Retry-After: 9", after(9)),
        ("Retry-After: 99999999999999999999999", after(u64::MAX)),
        ("Retry-After: 0", UNKNOWN),
        ("Retry-After: -1", UNKNOWN),
        ("Retry-After: soon", UNKNOWN),
        ("Retry-After: Fri, 31 Dec 2027 23:59:59 GMT", UNKNOWN),
        ("Retry-After: 30abc", UNKNOWN),
        ("Retry-After:", UNKNOWN),
    ] {
        assert_eq!(throttling(text, ForeignTexts::default), Some(expected), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read(text: String, number: u64) {
        throttling(&text, ForeignTexts::default);
        let header = format!("{text} Retry-After: {number}");
        proptest::prop_assert!(throttling(&header, ForeignTexts::default).is_some());
    }
}
