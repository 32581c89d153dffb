//! The names of types, and the imports between files: what a reader has to keep in mind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::map::code_of;

/// The sources of each crate. A type of one name may have one form for each operating system, or each feature.
const CRATES: [(&str, &[&str]); 5] = [
    ("src", &["RequestSpan", "RunSpan"]),
    ("client/src", &["Directory"]),
    ("client/exec/src", &[]),
    ("proto/src", &[]),
    ("tests/support/src", &[]),
];

#[test]
fn no_type_name_is_used_twice_in_a_crate() {
    for (crate_, variants) in CRATES {
        let mut places = BTreeMap::<String, Vec<PathBuf>>::new();
        for file in files(crate_) {
            for name in code_of(&file).lines().filter_map(declared) {
                places.entry(name.to_owned()).or_default().push(file.clone());
            }
        }
        places.retain(|name, files| files.len() > 1 && !variants.contains(&name.as_str()));
        assert!(places.is_empty(), "names that {crate_} gives to several types: {places:#?}");
    }
}

/// The name of the type that this line declares. An associated type is indented.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start_matches("pub ");
    let line =
        line.strip_prefix("pub(").and_then(|line| line.split_once(") ")).map_or(line, |(_, line)| line);
    let rest =
        ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|kind| line.strip_prefix(kind))?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

#[test]
fn no_imports_run_in_a_circle_inside_plugin_and_the_client() {
    for root in ["src/plugin", "client/src"] {
        let uses: BTreeMap<_, _> = files(root).into_iter().map(|file| (module(root, &file), file)).collect();
        let uses: BTreeMap<_, BTreeSet<_>> =
            uses.iter().map(|(module, file)| (module.clone(), imports(root, module, file, &uses))).collect();
        for start in uses.keys() {
            let (mut reached, mut next) = (BTreeSet::new(), vec![start]);
            while let Some(module) = next.pop() {
                next.extend(uses[module].iter().filter(|used| reached.insert(*used)));
            }
            assert!(!reached.contains(start), "{root}: {start:?} imports itself, through others");
        }
    }
}

type Module = Vec<String>;

fn module(root: &str, file: &Path) -> Module {
    let path = file.strip_prefix(directory(root)).unwrap().with_extension("");
    let names = path.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| !["mod", "lib"].contains(&name.as_str())).collect()
}

/// The modules below `root` that `file` names in its imports.
fn imports(
    root: &str,
    module: &Module,
    file: &Path,
    modules: &BTreeMap<Module, PathBuf>,
) -> BTreeSet<Module> {
    let own = if root.ends_with("/src") { &[][..] } else { &["plugin"][..] };
    let code = code_of(file);
    // A statement begins a line; texts say "use" too.
    let statements = code.match_indices("use ").filter_map(|(at, word)| {
        let line = code[..at].rsplit('\n').next().unwrap().trim();
        let begins = line.is_empty() || line == "pub" || (line.starts_with("pub(") && line.ends_with(')'));
        code[at + word.len()..].split_once(';').filter(|_| begins)
    });
    let paths = statements.flat_map(|(tree, _)| expanded(tree));
    let found = paths.filter_map(|path| {
        let mut path = path.iter().map(String::as_str).peekable();
        let mut at = module.clone();
        match path.peek().copied()? {
            "crate" => {
                path.next();
                at.clear();
                if !own.iter().all(|name| path.next_if_eq(name).is_some()) {
                    return None;
                }
            }
            "super" => {}
            "self" => drop(path.next()),
            name if !modules.contains_key(&[&at[..], &[name.to_owned()]].concat()) => return None,
            _ => {}
        }
        while path.next_if_eq(&"super").is_some() {
            at.pop()?;
        }
        for name in path {
            at.push(name.to_owned());
            if !modules.contains_key(&at) {
                at.pop();
                break;
            }
        }
        Some(at)
    });
    found.filter(|found| found != module && modules.contains_key(found)).collect()
}

/// `a::b` and `a::c` of `a::{b, c}`.
fn expanded(tree: &str) -> Vec<Vec<String>> {
    let names = |path: &str| -> Vec<_> {
        path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let Some((head, list)) = tree.split_once('{') else {
        return vec![names(tree.split(" as ").next().unwrap())];
    };
    let list = list.rsplit_once('}').unwrap().0;
    let (mut depth, mut items) = (0, vec![String::new()]);
    for character in list.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().unwrap().push(character);
    }
    let items = items.iter().filter(|item| !item.trim().is_empty()).flat_map(|item| expanded(item));
    items.map(|path| [names(head), path].concat()).collect()
}

fn directory(root: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(root)
}

/// The source files below `root` that are not tests or generated.
fn files(root: &str) -> Vec<PathBuf> {
    let (mut found, mut next) = (Vec::new(), vec![directory(root)]);
    while let Some(path) = next.pop() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if ["tests", "generated"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            next.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
