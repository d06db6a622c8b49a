//! Imports between the files of a crate, read from its sources: each path in a file is resolved, through re-exports, to the file that
//! defines the name. Code that only tests compile is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A file, with the facts that resolving paths needs.
#[derive(Default)]
struct File {
    /// `use` declarations: the path, and the name by which this file has it; `*` for a glob.
    imports: Vec<(Vec<String>, String)>,
    /// Names that other files import from here, whether or not this file's code uses them.
    offered: BTreeSet<String>,
    /// Words of the code, without those of `use` declarations.
    words: BTreeSet<String>,
    /// Other paths of two segments or more in the code.
    paths: Vec<Vec<String>>,
    /// Names of items that the file defines.
    items: BTreeSet<String>,
    /// Modules declared in other files.
    modules: BTreeSet<String>,
    /// Modules declared for tests only.
    test_modules: BTreeSet<String>,
}

/// The files of a crate by the path of their module.
pub struct Graph {
    files: BTreeMap<Vec<String>, File>,
}

/// An import of one file by another, by their modules' paths, and the names that are imported.
type Edges = BTreeMap<(Vec<String>, Vec<String>), BTreeSet<String>>;

impl Graph {
    /// Reads the sources below a folder.
    pub fn read(source: &Path) -> Self {
        let mut graph = Self { files: BTreeMap::new() };
        graph.read_folder(source, &[]);
        let tests: Vec<Vec<String>> = graph
            .files
            .iter()
            .flat_map(|(module, file)| {
                file.test_modules.iter().map(|name| child(module, name)).collect::<Vec<_>>()
            })
            .collect();
        graph.files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        graph
    }

    fn read_folder(&mut self, folder: &Path, module: &[String]) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                self.read_folder(&path, &child(module, &stem));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let own = match stem.as_str() {
                    "main" if module.is_empty() => continue,
                    "mod" | "lib" => module.to_vec(),
                    _ => child(module, &stem),
                };
                self.files.insert(own, parse(&fs::read_to_string(&path).expect("a source file")));
            }
        }
    }

    /// Imports of one file by another.
    pub fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (module, file) in &self.files {
            let is_used = |name: &str| !file.offered.contains(name) || file.words.contains(name);
            let imports = file.imports.iter().filter(|(_, name)| is_used(name)).map(|(path, _)| path);
            for path in imports.chain(&file.paths) {
                for target in self.resolve(module, path, 0) {
                    if target != *module {
                        edges.entry((module.clone(), target)).or_default().insert(path.join("::"));
                    }
                }
            }
        }
        edges
    }

    /// The files that define what a path in a module's file means. None for a name of another crate, and for the module itself.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Vec<Vec<String>> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        if depth > 20 {
            return Vec::new();
        }
        let mut found = Vec::new();
        match first.as_str() {
            "crate" => return self.resolve(&[], rest, depth + 1),
            "self" => return self.resolve(module, rest, depth + 1),
            "super" => {
                return module
                    .split_last()
                    .map_or(found, |(_, parent)| self.resolve(parent, rest, depth + 1));
            }
            "*" => return vec![module.to_vec()],
            _ => {}
        }
        let Some(file) = self.files.get(module) else { return found };
        let below = child(module, first);
        if self.files.contains_key(&below) && file.modules.contains(first) {
            found.extend(self.resolve(&below, rest, depth + 1));
        }
        if file.items.contains(first) {
            found.push(module.to_vec());
            return found;
        }
        for (imported, name) in &file.imports {
            // `use a::b as b` from the crate `b` would name itself.
            if name == first && imported != path {
                let whole: Vec<String> = imported.iter().chain(rest).cloned().collect();
                found.extend(self.resolve(module, &whole, depth + 1));
            } else if name == "*" && imported[0] != *first {
                let whole: Vec<String> = imported[..imported.len() - 1].iter().chain(path).cloned().collect();
                found.extend(self.resolve(module, &whole, depth + 1));
            }
        }
        found
    }

    /// Groups of files that import each other, directly or through others: the first file of each, and the imports among them.
    pub fn circles(&self) -> Vec<(String, String)> {
        let edges = self.edges();
        let reach: BTreeMap<&Vec<String>, BTreeSet<&Vec<String>>> =
            self.files.keys().map(|module| (module, reachable(&edges, module))).collect();
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for module in self.files.keys() {
            let circle: BTreeSet<_> =
                reach[module].iter().copied().filter(|other| reach[other].contains(module)).collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                let inside =
                    edges.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
                let lines = inside.map(|((from, to), names)| {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    format!("  {} -> {}: {}", from.join("/"), to.join("/"), names.join(", "))
                });
                circles.push((module.join("/"), lines.collect::<Vec<_>>().join("\n")));
            }
        }
        circles
    }
}

/// The files that a file imports, directly or through others.
fn reachable<'a>(edges: &'a Edges, from: &Vec<String>) -> BTreeSet<&'a Vec<String>> {
    let mut found = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(next) = todo.pop() {
        for ((_, to), _) in edges.iter().filter(|((start, _), _)| start == next) {
            if found.insert(to) {
                todo.push(to);
            }
        }
    }
    found
}

fn child(module: &[String], name: &str) -> Vec<String> {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Words and single characters of a source text, without comments and the content of literals; `::` is one token.
fn tokens(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let (mut at, mut tokens) = (0, Vec::new());
    let starts =
        |at: usize, what: &str| what.chars().enumerate().all(|(i, c)| characters.get(at + i) == Some(&c));
    while at < characters.len() {
        let character = characters[at];
        let begin = at;
        if starts(at, "//") {
            while at < characters.len() && characters[at] != '\n' {
                at += 1;
            }
        } else if starts(at, "/*") {
            while at < characters.len() && !starts(at, "*/") {
                at += 1;
            }
            at += 2;
        } else if character == '"' {
            at += 1;
            while at < characters.len() && characters[at] != '"' {
                at += if characters[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
            tokens.push("\"\"".to_owned());
        } else if character == '\'' {
            // A character, or the name of a lifetime.
            at += match (characters.get(at + 1), characters.get(at + 2)) {
                (Some('\\'), _) => {
                    characters[at + 3..].iter().position(|c| *c == '\'').expect("the end of a literal") + 4
                }
                (_, Some('\'')) => 3,
                _ => 1,
            };
        } else if character.is_alphanumeric() || character == '_' {
            while at < characters.len() && (characters[at].is_alphanumeric() || characters[at] == '_') {
                at += 1;
            }
            let word: String = characters[begin..at].iter().collect();
            let hashes = characters[at..].iter().take_while(|c| **c == '#').count();
            if ["r", "br"].contains(&word.as_str()) && characters.get(at + hashes) == Some(&'"') {
                let end: String = format!("\"{}", "#".repeat(hashes));
                at += hashes + 1;
                while !starts(at, &end) {
                    at += 1;
                }
                at += end.len();
                tokens.push("\"\"".to_owned());
            } else {
                tokens.push(word);
            }
        } else if starts(at, "::") {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !character.is_whitespace() {
                tokens.push(character.to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// The end of the item, block or list that begins at a token: after its `;`, `,` or last closing bracket.
fn end_of_item(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth < 0 {
                    return at;
                }
                if depth == 0 && tokens[at] == "}" && tokens.get(at + 1).is_none_or(|next| next != ";") {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Words that define an item, before its name.
const DEFINES: [&str; 9] = ["struct", "enum", "trait", "fn", "type", "const", "static", "union", "mod"];

fn parse(text: &str) -> File {
    let mut parser = Parser { tokens: tokens(text), ..Parser::default() };
    while parser.at < parser.tokens.len() {
        parser.next();
    }
    parser.file
}

/// The state of reading one file.
#[derive(Default)]
struct Parser {
    tokens: Vec<String>,
    at: usize,
    /// Open braces.
    depth: usize,
    /// The depths at which inline modules began.
    inline: Vec<usize>,
    /// Whether `pub` came just before.
    is_public: bool,
    file: File,
}

impl Parser {
    fn word(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    /// Moves behind the item, block or list that begins this many tokens ahead.
    fn skip_item(&mut self, ahead: usize) {
        self.at = end_of_item(&self.tokens, self.at + ahead);
    }

    fn next(&mut self) {
        let word = self.word(0).to_owned();
        let after = self.word(1).to_owned();
        if is_name(&word) && !["pub", "use"].contains(&word.as_str()) {
            self.file.words.insert(word.clone());
            self.is_public = false;
        }
        match (word.as_str(), after.as_str()) {
            ("#", "[") => return self.attribute(),
            ("pub", "(") => {
                self.skip_item(2);
                self.is_public = true;
            }
            ("pub", _) => self.is_public = true,
            ("use", _) => return self.import(),
            ("mod", name) if [";", "{"].contains(&self.word(2)) => {
                if self.word(2) == ";" {
                    self.file.modules.insert(name.to_owned());
                } else {
                    self.file.items.insert(name.to_owned());
                    self.inline.push(self.depth);
                    self.depth += 1;
                }
                self.at += 2;
            }
            ("macro_rules", _) => _ = self.file.items.insert(self.word(2).to_owned()),
            ("{", _) => self.depth += 1,
            ("}", _) => {
                self.depth -= 1;
                self.inline.pop_if(|start| *start == self.depth);
            }
            (define, name)
                if DEFINES.contains(&define) && self.depth == self.inline.len() && is_name(name) =>
            {
                let name = if name == "mut" { self.word(2) } else { name };
                self.file.items.insert(name.to_owned());
            }
            (first, "::") if is_name(first) => self.path(first),
            _ => {}
        }
        self.at += 1;
    }

    /// Skips an attribute, and the item after it if only tests compile it.
    fn attribute(&mut self) {
        let begin = self.at;
        self.skip_item(2);
        self.at += 1;
        if self.tokens[begin..self.at].concat() != "#[cfg(test)]" {
            return;
        }
        while self.word(0) == "#" {
            self.skip_item(2);
            self.at += 1;
        }
        let begin = self.at;
        self.skip_item(0);
        let module =
            self.tokens[begin..self.at].windows(3).find(|words| words[0] == "mod" && words[2] == ";");
        self.file.test_modules.extend(module.map(|words| words[1].clone()));
    }

    fn import(&mut self) {
        let begin = self.at + 1;
        self.skip_item(1);
        for (mut path, name) in use_tree(&self.tokens[begin..self.at - 1]) {
            leave_inline(&mut path, self.inline.len());
            if self.is_public {
                self.file.offered.insert(name.clone());
            }
            self.file.imports.push((path, name));
        }
        self.is_public = false;
    }

    /// Reads a path up to its last segment.
    fn path(&mut self, first: &str) {
        let mut path = vec![first.to_owned()];
        while self.word(1) == "::" && is_name(self.word(2)) {
            path.push(self.word(2).to_owned());
            self.at += 2;
        }
        leave_inline(&mut path, self.inline.len());
        self.file.paths.push(path);
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|character: char| character.is_alphabetic() || character == '_')
}

/// Makes a path of an inline module a path of its file's module.
fn leave_inline(path: &mut Vec<String>, depth: usize) {
    let supers = path.iter().take(depth).take_while(|segment| *segment == "super").count();
    path.drain(..supers);
}

/// The paths of a `use` declaration, each with the name that it has in the file.
fn use_tree(tokens: &[String]) -> Vec<(Vec<String>, String)> {
    let mut prefix = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "::" => {}
            "{" => {
                let (mut found, mut begin) = (Vec::new(), at + 1);
                while begin < tokens.len() && tokens[begin] != "}" {
                    let end = end_of_item(tokens, begin);
                    let item = &tokens[begin..end];
                    found.extend(use_tree(item.strip_suffix(&[",".to_owned()]).unwrap_or(item)));
                    begin = end;
                }
                return found.into_iter().map(|(path, name)| with_prefix(&prefix, path, name)).collect();
            }
            "as" => return vec![(prefix, tokens[at + 1].clone())],
            segment => prefix.push(segment.to_owned()),
        }
        at += 1;
    }
    let name = prefix.last().cloned().unwrap_or_default();
    vec![(prefix, name)]
}

fn with_prefix(prefix: &[String], path: Vec<String>, name: String) -> (Vec<String>, String) {
    if path == ["self"] {
        let name = if name == "self" { prefix.last().cloned().unwrap_or_default() } else { name };
        return (prefix.to_vec(), name);
    }
    (prefix.iter().cloned().chain(path).collect(), name)
}

/// The crates, by folder.
const CRATES: [&str; 15] = [
    ".",
    "crates/bench",
    "crates/cel",
    "crates/core",
    "crates/counts",
    "crates/envoy-config",
    "crates/http2",
    "crates/operations",
    "crates/replay",
    "crates/service",
    "crates/shared",
    "crates/snapshot",
    "crates/threads",
    "crates/transport",
    "modules/envoy",
];

#[test]
fn files_import_each_other_in_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for folder in CRATES {
        let circles = Graph::read(&root.join(folder).join("src")).circles();
        let circle = |(first, imports)| format!("{folder}: a circle of `{first}`:\n{imports}");
        wrong.extend(circles.into_iter().map(circle));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_imports_follows_reexports_lists_and_paths_and_leaves_tests_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("lib.rs", "mod a; mod b; mod c; mod d;");
    write("a/mod.rs", "mod inner;\npub use inner::Name;");
    write(
        "a/inner.rs",
        "use crate::{b::{self, Other}, d};\npub struct Name;\nfn f() { b::g(); d::h(\"c::i\") } // c::i();",
    );
    write("b.rs", "pub struct Other; pub fn g() {}\n#[cfg(test)] mod tests { use crate::a::Name; }");
    write("c.rs", "use super::a; pub fn i() -> a::Name { a::Name }");
    write(
        "d.rs",
        "pub fn h(_: &str) -> char { let _: &'static str = r#\"crate::c::i\"#; crate::c::i(); '\"' }",
    );
    let graph = Graph::read(folder.path());
    let edges: Vec<String> =
        graph.edges().keys().map(|(from, to)| format!("{} {}", from.join("/"), to.join("/"))).collect();
    assert_eq!(edges, ["a/inner b", "a/inner d", "c a/inner", "d c"]);
    let circles: Vec<String> = graph.circles().into_iter().map(|(first, _)| first).collect();
    assert_eq!(circles, ["a/inner"]);
}
