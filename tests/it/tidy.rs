//! The house's own rules, as tests: bands, words that have no place in a band, lengths, and the contract's list of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules with their bands, and what of their own band they may name besides themselves.
const BANDS: &[(&str, u8, &[&str])] = &[
    ("error", 0, &[]),
    ("time", 0, &[]),
    ("entropy", 0, &["time"]),
    ("model", 1, &[]),
    ("rules", 2, &[]),
    ("store", 2, &[]),
    ("secrets", 2, &[]),
    ("engine", 3, &[]),
    ("metrics", 4, &[]),
    ("writer", 4, &[]),
    ("net", 5, &[]),
    ("kafka", 5, &["net"]),
    ("sink", 5, &["net"]),
    ("dispatch", 5, &["net", "sink"]),
    ("http", 5, &["net", "dispatch"]),
    ("config", 6, &[]),
    ("daemon", 6, &["config"]),
    ("cli", 6, &["config", "daemon"]),
];

/// Words with no place in a module: where, what, and why.
const BANNED: &[(&[&str], &[&str], &str)] = &[
    (&["error", "time", "entropy", "model"], &["tokio::", "redb::", "hyper::"], "the ground knows no machinery"),
    (&["rules"], &["async ", ".await", "SystemTime", "Instant", "tracing::", "tokio::"], "rules only decide"),
    (
        &["engine"],
        &["async ", ".await", "tokio::", "metrics::", "TcpStream", "SystemTime", "Instant::"],
        "the core is synchronous",
    ),
    (&["metrics"], &["async ", ".await", "tokio::"], "only names and types"),
    (
        &["net", "kafka", "sink", "dispatch", "http", "config", "daemon", "cli", "writer", "engine"],
        &["redb::", "TableDefinition"],
        "the store's own words",
    ),
];

/// Files that are tables of rows, and may be longer than the rest.
const LONG_TABLES: &[&str] = &[];
const LINES_AT_MOST: usize = 500;

#[test]
fn a_file_names_only_lower_bands_or_its_own() {
    let mut wrong = Vec::new();
    for (path, code) in sources("src") {
        let Some((own, band, mates)) = module(&path) else { continue };
        for (name, other, _) in BANDS {
            let allowed = name == own || other < band || mates.contains(name);
            if !allowed && names(&code, name) {
                wrong.push(format!("{} names {name}", path.display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn every_module_has_a_band() {
    for (path, _) in sources("src") {
        let is_root = matches!(path.to_str(), Some("src/lib.rs" | "src/main.rs"));
        assert!(is_root || module(&path).is_some(), "{} stands in no band", path.display());
    }
}

#[test]
fn words_stay_where_they_belong() {
    let mut wrong = Vec::new();
    for (path, code) in sources("src") {
        let Some((own, ..)) = module(&path) else { continue };
        for (modules, words, why) in BANNED.iter().filter(|(modules, ..)| modules.contains(own)) {
            let found = words.iter().filter(|word| code.contains(**word));
            wrong.extend(found.map(|word| format!("{}: {word:?} in {modules:?}: {why}", path.display())));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn files_begin_with_their_doc_and_stay_short() {
    for folder in ["src", "tests", "benches"] {
        for path in files(folder, "rs") {
            let text = read(&path);
            let name = path.to_str().unwrap();
            assert!(text.starts_with("//!"), "{name} does not begin with what it is");
            assert!(text.lines().count() <= LINES_AT_MOST || LONG_TABLES.contains(&name), "{name} is too long");
            let unfinished = ["to", "do!"].concat();
            assert!(!text.contains(&unfinished), "{name} is unfinished");
        }
    }
}

#[test]
fn nothing_names_a_path_of_one_machine() {
    let mut all = Vec::new();
    for folder in ["src", "tests", "benches", "data", "systemd"] {
        all.extend(["rs", "md", "sh", "py", "jsonl", "toml", "service"].iter().flat_map(|ext| files(folder, ext)));
    }
    all.extend(["README.md", "Cargo.toml", "deny.toml", "install.sh"].map(PathBuf::from));
    for path in all.iter().filter(|path| root().join(path).exists()) {
        let text = read(path);
        for place in ["work", "root", "farm"].map(|name| format!("/{name}/")) {
            assert!(!text.contains(&place), "{} names {place}", path.display());
        }
    }
}

#[test]
fn the_contract_names_tests_that_exist() {
    let contract = contract();
    assert!(contract.len() > 90, "only {} rules", contract.len());
    for (rule, tests) in &contract {
        for test in tests {
            let (file, name) = test.rsplit_once("::").unwrap_or_else(|| panic!("{rule}: {test:?} is no file::test"));
            let path = Path::new(file);
            assert!(root().join(path).is_file(), "{rule} names {file}, which is not there");
            assert!(read(path).contains(&format!("{name}(")), "{rule} names {test}, which is not there");
        }
    }
}

#[test]
fn rules_that_tests_name_stand_in_the_contract() {
    let contract = contract();
    for folder in ["src", "tests"] {
        for path in files(folder, "rs") {
            for line in read(&path).lines().map(str::trim).filter(|line| line.starts_with("// ")) {
                for rule in rule_ids(line) {
                    assert!(contract.contains_key(&rule), "{} names {rule}, which is no rule: {line}", path.display());
                }
            }
        }
    }
}

/// Rule to tests, out of `tests/CONTRACT.md`: rows `| C2.7 | what | file::test, file::test |`, or `not built yet`.
fn contract() -> BTreeMap<String, BTreeSet<String>> {
    let text = read(Path::new("tests/CONTRACT.md"));
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [rule, _, tests] = cells.as_slice() else { return None };
        if rule_ids(rule) != [rule.to_string()] {
            return None;
        }
        let named = tests.split(", ").map(|test| test.trim_matches('`')).filter(|test| test.contains("::"));
        Some(((*rule).to_owned(), named.map(str::to_owned).collect()))
    });
    rows.collect()
}

/// Everything in a text that looks like `C2.7` or `A1.10`.
fn rule_ids(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let is_rule = |word: &&str| {
        let Some((chapter, number)) = word.split_once('.') else { return false };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        chapter.strip_prefix(['C', 'A']).is_some_and(digits) && digits(number)
    };
    words.map(|word| word.trim_end_matches('.')).filter(is_rule).map(str::to_owned).collect()
}

fn module(path: &Path) -> Option<(&'static &'static str, &'static u8, &'static [&'static str])> {
    let part = path.components().nth(1)?.as_os_str().to_str()?;
    let name = part.strip_suffix(".rs").unwrap_or(part);
    BANDS.iter().find(|(module, ..)| *module == name).map(|(module, band, mates)| (module, band, *mates))
}

/// Whether code names a module of this crate, also inside `use crate::{…}`.
fn names(code: &str, module: &str) -> bool {
    let mut rest = code;
    while let Some(at) = rest.find("crate::") {
        rest = &rest[at + "crate::".len()..];
        let group = rest.strip_prefix('{').map(|group| group.split(';').next().unwrap_or(group));
        let begins = |text: &str| {
            text.trim_start()
                .strip_prefix(module)
                .is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        if begins(rest) || group.is_some_and(|group| group.split(',').any(begins)) {
            return true;
        }
    }
    false
}

/// Files with their code: comments and the tests at their end left out.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let code = |text: String| {
        let without_tests = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
        without_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    };
    files(folder, "rs").into_iter().map(|path| (path.clone(), code(read(&path)))).collect()
}

fn files(folder: &str, ext: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|own| own == ext) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn names_are_seen_in_paths_and_in_groups() {
    for (code, module, seen) in [
        ("use crate::store::Store;", "store", true),
        ("use crate::{rules, store::Store};", "store", true),
        ("let x = crate::store::open();", "store", true),
        ("use crate::storage::Store;", "store", false),
        ("use crate::{rules, model::store};", "store", false),
        ("use store::Store;", "store", false),
    ] {
        assert_eq!(names(code, module), seen, "{code}");
    }
}
