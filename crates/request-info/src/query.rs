//! The query of a URL, as Go reads it (`url.ParseQuery`).

use std::collections::HashMap;

/// The parameters of a query. A pair with a `;` or with an invalid escape is left out, as Go does without an error.
#[derive(Clone, Debug, Default)]
pub struct Query(HashMap<Vec<u8>, Vec<Vec<u8>>>);

impl Query {
    /// Reads the query of a URL, which is percent-encoded.
    pub fn of(query: &str) -> Self {
        let mut parameters = HashMap::<_, Vec<_>>::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(name), Some(value)) = (unescape(name, true), unescape(value, true)) {
                parameters.entry(name).or_default().push(value);
            }
        }
        Self(parameters)
    }

    /// The first value of a parameter, which is the one that the API server uses.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name.as_bytes())?.first().map(Vec::as_slice)
    }

    /// All parameters with their values, in any order.
    pub fn parameters(&self) -> impl Iterator<Item = (&[u8], &[Vec<u8>])> {
        self.0.iter().map(|(name, values)| (&**name, &**values))
    }

    /// How often a parameter occurs.
    pub fn count(&self, name: &str) -> usize {
        self.0.get(name.as_bytes()).map_or(0, Vec::len)
    }
}

/// `text` without percent-encoding. `None`: it is invalid. In a query, a `+` is a space.
pub(crate) fn unescape(text: &str, is_query: bool) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            b'+' if is_query => b' ',
            byte => byte,
        });
    }
    Some(plain)
}

fn digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).and_then(|digit| digit.try_into().ok())
}
