//! Whether a label selector is valid (`k8s.io/apimachinery/pkg/labels`). What it selects does not matter here.

use std::iter::Peekable;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Token<'a> {
    End,
    Close,
    Comma,
    Not,
    /// `=`, `==` or `!=`.
    Equal,
    /// `<` or `>`.
    Order,
    Open,
    Word(&'a str),
}

/// Whether the API server can parse `selector`.
pub(super) fn is_valid(selector: &str) -> bool {
    Parser { tokens: Tokens { rest: selector, has_ended: false }.peekable() }.selector().is_some()
}

struct Parser<'a> {
    tokens: Peekable<Tokens<'a>>,
}

/// `None` is an error.
impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        self.tokens.next().unwrap_or(Token::End)
    }

    fn peek(&mut self) -> Token<'a> {
        self.tokens.peek().copied().unwrap_or(Token::End)
    }

    fn selector(&mut self) -> Option<()> {
        if self.peek() == Token::End {
            return Some(());
        }
        loop {
            self.requirement()?;
            match self.next() {
                Token::End => return Some(()),
                Token::Comma => {}
                _ => return None,
            }
        }
    }

    fn requirement(&mut self) -> Option<()> {
        let (is_negated, key) = match self.next() {
            Token::Not => (true, self.next()),
            key => (false, key),
        };
        let Token::Word(key) = key else { return None };
        if !is_key(key) {
            return None;
        }
        // After `!key`, the caller finds what does not belong there.
        if is_negated || matches!(self.peek(), Token::End | Token::Comma) {
            return Some(());
        }
        match self.next() {
            Token::Equal => is_value(self.exact()?).then_some(()),
            Token::Order => {
                let value = self.exact()?;
                (is_value(value) && value.parse::<i64>().is_ok()).then_some(())
            }
            Token::Word("in" | "notin") => self.set(),
            _ => None,
        }
    }

    fn exact(&mut self) -> Option<&'a str> {
        match self.peek() {
            Token::End | Token::Comma => Some(""),
            Token::Word(value) => {
                self.next();
                Some(value)
            }
            _ => None,
        }
    }

    /// Values in parentheses. Each may be empty.
    fn set(&mut self) -> Option<()> {
        if self.next() != Token::Open {
            return None;
        }
        loop {
            match self.next() {
                Token::Close => return Some(()),
                Token::Comma => {}
                Token::Word(value)
                    if is_value(value) && matches!(self.peek(), Token::Comma | Token::Close) => {}
                _ => return None,
            }
        }
    }
}

/// The last token is the end. A NUL ends the token in front of it, and alone the selector.
struct Tokens<'a> {
    rest: &'a str,
    has_ended: bool,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        if self.has_ended {
            return None;
        }
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let symbols = [
            ("==", Token::Equal),
            ("!=", Token::Equal),
            ("=", Token::Equal),
            ("!", Token::Not),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
            (">", Token::Order),
            ("<", Token::Order),
        ];
        if rest.is_empty() || rest.starts_with('\0') {
            self.has_ended = true;
            return Some(Token::End);
        }
        for (symbol, token) in symbols {
            if let Some(rest) = rest.strip_prefix(symbol) {
                self.rest = after_nul(rest);
                return Some(token);
            }
        }
        let ends = |character| {
            matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<' | ' ' | '\t' | '\r' | '\n' | '\0')
        };
        let (word, rest) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        self.rest = after_nul(rest);
        Some(Token::Word(word))
    }
}

fn after_nul(rest: &str) -> &str {
    rest.strip_prefix('\0').unwrap_or(rest)
}

/// The key of a label: a name, behind an optional prefix.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_value(name)
}

fn is_value(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    value.len() <= 63 && value.bytes().all(inner) && ends(value.bytes().next()) && ends(value.bytes().last())
}

/// A name of RFC 1123 in lower case.
fn is_subdomain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
