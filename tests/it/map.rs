//! The map in `docs/architecture.md` is what the code does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_map_has_each_use_between_modules_and_no_other() {
    let (map, order) = documented();
    let actual = actual();
    for (module, uses) in &actual {
        let documented =
            map.get(module).unwrap_or_else(|| panic!("docs/architecture.md has no module `{module}`"));
        let missing: Vec<_> = uses.difference(documented).collect();
        assert!(missing.is_empty(), "docs/architecture.md: `{module}` uses {missing:?} too");
        let unused: Vec<_> = documented.difference(uses).collect();
        assert!(unused.is_empty(), "docs/architecture.md: `{module}` does not use {unused:?}");
    }
    assert_eq!(map.keys().collect::<Vec<_>>(), actual.keys().collect::<Vec<_>>(), "the modules of `src/`");
    let place = |module: &String| order.iter().position(|name| name == module);
    for (module, used) in actual.iter().flat_map(|(module, uses)| uses.iter().map(move |used| (module, used)))
    {
        assert!(
            place(module) < place(used),
            "`{module}` uses `{used}`, which is above it in docs/architecture.md"
        );
    }
}

#[test]
fn the_files_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for document in ["CONTRIBUTING.md", "docs/architecture.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        // Odd pieces are between backticks; those of code blocks are not paths.
        for path in
            text.split('`').skip(1).step_by(2).filter(|code| code.contains('/') && !code.contains([' ', '*']))
        {
            let candidates = [path.to_owned(), format!("src/{path}"), format!("src/{path}.rs")];
            let exists = candidates.iter().any(|candidate| root.join(candidate).exists());
            assert!(exists, "{document} names `{path}`, which does not exist");
        }
    }
}

#[test]
fn the_links_of_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect_documents(root, &mut files);
    assert!(files.len() > 25, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // Not in code blocks, which are the odd pieces.
        for link in text.split("```").step_by(2).flat_map(|prose| prose.split("](").skip(1)) {
            let target = link.split([')', '#']).next().unwrap();
            let exists = target.starts_with("https://") || file.parent().unwrap().join(target).exists();
            assert!(exists, "{} links to {target}, which does not exist", file.display());
        }
    }
}

/// The Markdown files below `directory`, without those that are built or installed.
fn collect_documents(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
            collect_documents(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

#[test]
fn the_tests_that_the_security_page_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let (mut tests, mut missing) = (BTreeSet::new(), Vec::new());
    for directory in ["src", "client", "proto", "tests"] {
        collect_tests(&root.join(directory), &mut tests);
    }
    let mut promises = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [promise, cell] = cells[..] else { continue };
        if ["Promise", "---"].contains(&promise) {
            continue;
        }
        let names: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "docs/security.md names no test of: {promise}");
        missing.extend(names.into_iter().filter(|name| !tests.contains(*name)));
        promises += 1;
    }
    assert!(promises > 20, "{promises} promises");
    assert!(missing.is_empty(), "docs/security.md names tests that do not exist: {missing:#?}");
}

/// The names of all test functions below `path`.
fn collect_tests(path: &Path, tests: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect_tests(&entry.unwrap().path(), tests);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let text = fs::read_to_string(path).unwrap();
        for after in text.split("#[test]").skip(1).chain(text.split("#[tokio::test").skip(1)) {
            let name = after.split_once("fn ").and_then(|(_, after)| after.split('(').next());
            tests.extend(name.map(str::to_owned));
        }
    }
}

/// The rows of the table of modules, and their order.
fn documented() -> (Uses, Vec<String>) {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md")).unwrap();
    let (_, table) = text.split_once("| Module | Its one job | Uses |").expect("a table of modules");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (
            cells[1].trim_matches('`').to_owned(),
            cells[3].split(", ").map(|cell| cell.trim_matches('`').to_owned()),
        )
    });
    let rows: Vec<_> =
        rows.map(|(module, uses)| (module, uses.filter(|used| !used.is_empty()).collect())).collect();
    let order = rows.iter().map(|(module, _): &(String, BTreeSet<String>)| module.clone()).collect();
    (rows.into_iter().collect(), order)
}

/// Which top modules of `src/` each of them names, tests apart.
fn actual() -> Uses {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut uses = Uses::new();
    for entry in fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path()) {
        let module = entry.file_stem().unwrap().to_str().unwrap().to_owned();
        if module != "lib" {
            collect(&entry, uses.entry(module).or_default());
        }
    }
    let modules: BTreeSet<_> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|name| modules.contains(name) && name != module);
    }
    uses
}

fn collect(path: &Path, uses: &mut BTreeSet<String>) {
    let name = path.file_stem().unwrap().to_str().unwrap();
    if name == "tests" {
        return;
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), uses);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let code = code_of(path);
        for root in ["crate::", "credbroker::"] {
            code.split(root).skip(1).for_each(|after| first_names(after, uses));
        }
    }
}

/// The lines of a file without comments and tests.
pub(crate) fn code_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    // Tests are last in a file.
    let begins_tests = |pair: &[&str]| {
        pair[0].starts_with("#[cfg(")
            && pair[0].contains("test")
            && pair[1].contains("mod ")
            && pair[1].ends_with('{')
    };
    let end = lines.windows(2).position(begins_tests).unwrap_or(lines.len());
    let lines = lines[..end].iter().copied().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// `a` of `a::b`, and `a` and `c` of `{a::{b, d}, c::e}`.
fn first_names(after: &str, uses: &mut BTreeSet<String>) {
    let identifier = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        text[..end].to_owned()
    };
    let Some(list) = after.strip_prefix('{') else {
        uses.insert(identifier(after));
        return;
    };
    let (mut depth, mut is_first) = (0, true);
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => return,
            '}' => depth -= 1,
            ',' if depth == 0 => is_first = true,
            character if is_first && character.is_alphabetic() => {
                uses.insert(identifier(&list[at..]));
                is_first = false;
            }
            _ => {}
        }
    }
}
