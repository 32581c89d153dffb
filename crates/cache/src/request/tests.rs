use super::*;

#[test]
fn a_key_is_found_by_the_text_that_shows_it() {
    let key = PluginKey(std::array::from_fn(|index| 0xf0 ^ u8::try_from(index).unwrap()));
    let prefix: KeyPrefix = key.to_string().parse().unwrap();
    assert_eq!(prefix.to_string(), key.to_string());
    assert!(prefix.matches(&key));
    let other = PluginKey(key.0.map(|byte| byte ^ 1));
    assert!(!prefix.matches(&other));
    assert!(key.to_string().to_uppercase().parse::<KeyPrefix>().unwrap().matches(&key));
    assert!("f0".repeat(32).parse::<KeyPrefix>().is_ok());
}

#[test]
fn other_texts_are_not_keys() {
    let long = "00".repeat(33);
    for text in [
        "",
        "00",
        "0011223344",
        "00112233445",
        "0011223344556",
        "00112233445g",
        "+1+1+1+1+1+1",
        "0é0é0é0é",
        &long,
    ] {
        assert_eq!(text.parse::<KeyPrefix>(), Err(InvalidKey), "{text}");
    }
}
