//! Field selectors (`k8s.io/apimachinery/pkg/fields`).

/// The selector cannot be parsed.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Invalid;

/// The value that `selector` requires `field` to have.
pub(super) fn exact(selector: &str, field: &str) -> Result<Option<String>, Invalid> {
    let mut terms = terms(selector);
    // The first term of several for one field is the first in this order.
    terms.sort_unstable();
    let mut required = None;
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let (name, is_equal, value) = split(term).ok_or(Invalid)?;
        let value = unescape(value)?;
        if is_equal && name == field && required.is_none() {
            required = Some(value);
        }
    }
    Ok(required)
}

/// The parts between commas, except those behind a backslash.
fn terms(selector: &str) -> Vec<&str> {
    let mut is_escaped = false;
    let separates = |character| {
        let separates = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        separates
    };
    selector.split(separates).collect()
}

/// The parts in front of and behind the first operator, and whether that is not `!=`.
fn split(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(at, _)| {
        let (field, rest) = term.split_at(at);
        let operators = [("!=", false), ("==", true), ("=", true)];
        operators
            .iter()
            .find_map(|(operator, is_equal)| Some((field, *is_equal, rest.strip_prefix(operator)?)))
    })
}

fn unescape(value: &str) -> Result<String, Invalid> {
    let mut characters = value.chars();
    let mut plain = String::with_capacity(value.len());
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => characters.next().filter(|next| matches!(next, '\\' | ',' | '=')).ok_or(Invalid)?,
            ',' | '=' => return Err(Invalid),
            character => character,
        });
    }
    Ok(plain)
}
