//! The reference of all keys, for people and for editors, made from the table that the readers use.

mod schema;

use std::fmt::Write as _;

use super::{
    keys::{Section, Shape},
    table::root,
};

const HEAD: &str = "\
<!-- Generated from crates/config/src/table.rs: BLESS=1 cargo test -p credbroker-config reference -->

# Configuration

The broker reads the first of these files that exists:

1. the file of `credbroker serve --config FILE`, or of `CREDBROKER_CONFIG`;
2. `$XDG_CONFIG_HOME/credbroker/config.yaml`, by default `~/.config/credbroker/config.yaml`;
3. `/etc/credbroker/config.yaml`.

Without a file, each user with an exec plugin in `KUBECONFIG` or `~/.kube/config` is a provider.

`credbroker validate --config FILE` prints every problem with its file, line and column. An unknown key is an error. The
file, and every kubeconfig and file of certificate authorities that it names, must belong to the broker's user or to root;
[operations.md](operations.md#files-that-other-users-can-change) has the rules.

For completion and checks in an editor that uses yaml-language-server, begin the file with the path of
[config.schema.json](config.schema.json):

```yaml
# yaml-language-server: $schema=config.schema.json
```

Durations are a whole number with a unit: `30s`, `10m`, `12h`. A key with the value `null` counts as absent.

The broker also reads the provider file of Kubernetes' cluster-inventory-api: JSON with `{\"providers\": [...]}`, in which
each item has `name`, `execConfig` and the policies `profileSourcedCLIArgsPolicy` and `profileSourcedEnvVarsPolicy`. An item
can also have `callerEnv`, which other readers of the file ignore.
";

pub use schema::json_schema;

/// `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = format!("{HEAD}\n## All keys\n\n```yaml\n{}```\n", example());
    for (path, section) in sections() {
        let title = if path.is_empty() { "The file".to_owned() } else { format!("`{path}`") };
        let _infallible = write!(text, "\n## {title}\n\n{}\n", paragraph(section.doc));
        for key in section.keys {
            let _infallible = write!(
                text,
                "\n### `{}`\n\n{}\n\n- Type: {}\n- Default: {}\n- Example: `{}: {}`\n",
                if path.is_empty() { key.name().to_owned() } else { format!("{path}.{}", key.name()) },
                paragraph(key.doc()),
                shown(&key.shape()),
                key.default().unwrap_or_else(|| "none, the key is required".to_owned()),
                key.name(),
                key.example(),
            );
        }
    }
    text
}

/// Every section with its path, such as `providers[].execConfig`; the outermost first.
fn sections() -> Vec<(String, &'static Section)> {
    let mut found: Vec<(String, &'static Section)> = vec![(String::new(), &root::SECTION)];
    let mut next = 0;
    while let Some((path, section)) = found.get(next).cloned() {
        let below = section.keys.iter().filter_map(|key| {
            let (list, section) = section_of(&key.shape())?;
            let dot = if path.is_empty() { "" } else { "." };
            Some((format!("{path}{dot}{}{}", key.name(), if list { "[]" } else { "" }), section))
        });
        let below: Vec<_> = below.collect();
        next += 1;
        found.splice(next..next, below);
    }
    found
}

/// The section that a value consists of, and whether it is a list of them.
fn section_of(shape: &Shape) -> Option<(bool, &'static Section)> {
    match shape {
        Shape::Map(section) | Shape::MapOrMaps(section) => Some((false, section)),
        Shape::List(item) => section_of(item).map(|(_, section)| (true, section)),
        _ => None,
    }
}

/// A document with the example of every key.
pub(super) fn example() -> String {
    let mut text = String::new();
    write_section(&mut text, &root::SECTION, 0, "");
    text
}

/// The keys of `section`, indented by `depth`; `first` comes before the first of them.
fn write_section(text: &mut String, section: &Section, depth: usize, first: &str) {
    // A key without effect is described, not recommended.
    let keys = section.keys.iter().filter(|key| !paragraph(key.doc()).starts_with("Has no effect"));
    for (index, key) in keys.enumerate() {
        let indent = "  ".repeat(depth);
        let indent = if index == 0 && !first.is_empty() { first } else { &indent };
        let _infallible = match section_of(&key.shape()) {
            None => writeln!(text, "{indent}{}: {}", key.name(), key.example()),
            Some(_) => writeln!(text, "{indent}{}:", key.name()),
        };
        match section_of(&key.shape()) {
            None => {}
            Some((false, section)) => write_section(text, section, depth + 1, ""),
            Some((true, section)) => {
                write_section(text, section, depth + 1, &format!("{}- ", "  ".repeat(depth)));
            }
        }
    }
}

/// The lines of a doc comment as a paragraph.
fn paragraph(doc: &str) -> String {
    doc.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn shown(shape: &Shape) -> String {
    match shape {
        Shape::Text(what, _) => (*what).to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Count(most) => format!("whole number from 1 to {most}"),
        Shape::Id => "number".to_owned(),
        Shape::OneOf(names) => {
            let names = names.iter().filter(|name| !name.is_empty());
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
        }
        Shape::List(item) => format!("list, each item: {}", shown(item)),
        Shape::Map(_) => "map".to_owned(),
        Shape::MapOrMaps(_) => "map, or list of maps".to_owned(),
    }
}

#[cfg(test)]
mod tests;
