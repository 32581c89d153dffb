//! What documents name exists: files, pages and tests.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

#[test]
fn the_files_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for document in ["CONTRIBUTING.md", "docs/architecture.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        // Not in code blocks, which are the odd pieces.
        let prose = text.split("```").step_by(2).collect::<Vec<_>>().concat();
        // Odd pieces are between backticks.
        for path in prose
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|code| code.contains('/') && !code.contains([' ', '*']))
        {
            // `cache/policy` is a module of a crate, `app/reload` one of the program.
            let (crate_, module) = path.split_once('/').unwrap();
            let module = format!("crates/{crate_}/src/{module}");
            let candidates = [
                path.to_owned(),
                format!("src/{path}"),
                format!("src/{path}.rs"),
                format!("{module}.rs"),
                module,
            ];
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

/// The page of a crate in the registry is its README; without one it is blank.
#[test]
fn each_published_crate_has_a_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let mut published = 0;
    for member in members.split('"').skip(1).step_by(2).chain(["."]) {
        let manifest = fs::read_to_string(root.join(member).join("Cargo.toml")).unwrap();
        if !manifest.contains("publish = false") {
            assert!(root.join(member).join("README.md").exists(), "{member} has no README.md");
            published += 1;
        }
    }
    assert!(published > 10, "{published}");
}

#[test]
fn the_tests_that_the_pages_about_security_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let (mut tests, mut missing) = (BTreeSet::new(), Vec::new());
    for directory in ["src", "crates", "client", "proto", "tests"] {
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
    let proxy = fs::read_to_string(root.join("docs/proxy.md")).unwrap();
    let (_, threats) = proxy.split_once("\n## Threat model\n").unwrap();
    let threats = threats.lines().filter_map(|line| line.strip_suffix('|')?.rsplit_once(" | "));
    let names: Vec<_> = threats.flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 20, "{names:?}");
    missing.extend(names.into_iter().filter(|name| !tests.contains(*name)));
    assert!(missing.is_empty(), "the pages name tests that do not exist: {missing:#?}");
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
