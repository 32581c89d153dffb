//! Label selectors, equality and sets, as a query carries them.

use serde_json::Value;

/// What an object's labels must fulfil, all of it. Empty: everything is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    label: String,
    /// An absent label fulfils only what is negated, as in Kubernetes.
    negated: bool,
    /// `None`: the label only has to exist.
    values: Option<Vec<String>>,
}

impl Selector {
    /// `None` if it cannot be understood.
    pub(super) fn parse(text: &str) -> Option<Self> {
        split(text).into_iter().map(Requirement::parse).collect::<Option<_>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|one| {
            let held = labels[one.label.as_str()].as_str().is_some_and(|value| {
                one.values.as_ref().is_none_or(|values| values.iter().any(|one| one == value))
            });
            held != one.negated
        })
    }
}

impl Requirement {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let make = |label: &str, negated, values| {
            let label = label.trim();
            let valid = !label.is_empty()
                && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
            valid.then(|| Self { label: label.to_owned(), negated, values })
        };
        let one = |value: &str| Some(vec![value.trim().to_owned()]);
        if let Some(label) = text.strip_prefix('!') {
            return make(label, true, None);
        }
        if let Some((label, value)) = text.split_once("!=") {
            return make(label, true, one(value));
        }
        if let Some((label, value)) = text.split_once('=') {
            return make(label, false, one(value.strip_prefix('=').unwrap_or(value)));
        }
        let Some((head, values)) = text.split_once('(') else { return make(text, false, None) };
        let values = values.strip_suffix(')')?.split(',').map(|value| value.trim().to_owned()).collect();
        let (label, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        match operator {
            "in" => make(label, false, Some(values)),
            "notin" => make(label, true, Some(values)),
            _ => None,
        }
    }
}

/// At the commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut inside = false;
    let parts = text.split(|c| {
        match c {
            '(' => inside = true,
            ')' => inside = false,
            _ => {}
        }
        c == ',' && !inside
    });
    parts.filter(|_| !text.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_selects_as_kubernetes_does() {
        let object = json!({"metadata": {"labels": {"env": "prod", "example.com/tier": "1"}}});
        let table = [
            ("", true),
            ("env=prod", true),
            ("env==prod", true),
            ("env=dev", false),
            ("env!=dev", true),
            ("env!=prod", false),
            ("absent!=x", true),
            ("absent=x", false),
            ("env in (dev, prod)", true),
            ("env in (dev,test)", false),
            ("env notin (dev,test)", true),
            ("absent notin (x)", true),
            ("env", true),
            ("absent", false),
            ("!absent", true),
            ("!env", false),
            ("env in (prod),example.com/tier=1,!absent", true),
            ("env in (prod),example.com/tier=2", false),
        ];
        for (text, selected) in table {
            assert_eq!(Selector::parse(text).unwrap().matches(&object), selected, "{text}");
        }
        for text in ["env in prod", "env in (prod", "=x", "a b", ",", "env within (a)"] {
            assert_eq!(Selector::parse(text), None, "{text}");
        }
    }
}
