//! Real manifests, file by file: what the parser makes of each is written down in `fixtures.tsv`.
//!
//! The digests there come from another implementation (kubectl's own reader, then lists taken apart and the result
//! written as canonical JSON), so that they prove that both read every file alike.

#![expect(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use objects::digest::Sha256;
use objects::manifest::{parse_manifests, refused_folder};
use objects::yaml::Limits;

/// What became of one file.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// So many objects, with the digest over their canonical encodings, each followed by a line break.
    Accepted { objects: usize, digest: String },
    /// Refused at a line (0: for its name) with this in the message.
    Refused { line: u32, message: String },
}

fn expected() -> BTreeMap<String, Answer> {
    let table = include_str!("fixtures.tsv");
    let rows = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|row| {
        let columns: Vec<&str> = row.split('\t').collect();
        let answer = match columns[1] {
            "accepted" => Answer::Accepted {
                objects: columns[2].parse().expect("a count"),
                digest: columns[3].to_owned(),
            },
            "refused" => {
                Answer::Refused { line: columns[2].parse().expect("a line"), message: columns[3].to_owned() }
            }
            other => panic!("{other} in {row}"),
        };
        (columns[0].to_owned(), answer)
    })
    .collect()
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "json") {
            into.push(path);
        }
    }
}

fn answer(path: &Path, name: &str) -> Answer {
    let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some(message) = refused_folder(file_name) {
        return Answer::Refused { line: 0, message: message.to_owned() };
    }
    let text = fs::read_to_string(path).expect("text");
    match parse_manifests(name, &text, &Limits::default()) {
        Err(error) => Answer::Refused { line: error.line, message: error.message },
        Ok(manifests) => {
            let mut encoded = String::new();
            for manifest in &manifests {
                writeln!(encoded, "{}", manifest.object).expect("memory");
                assert_eq!(Sha256::of(manifest.object.to_string().as_bytes()), manifest.digest, "{name}");
            }
            let digest = Sha256::of(encoded.as_bytes()).to_string();
            Answer::Accepted { objects: manifests.len(), digest }
        }
    }
}

fn agree(expected: &Answer, found: &Answer) -> bool {
    match (expected, found) {
        (Answer::Refused { line, message }, Answer::Refused { line: found, message: text }) => {
            line == found && text.contains(message.as_str())
        }
        _ => expected == found,
    }
}

#[test]
fn every_fixture_gets_its_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/manifests");
    if !root.is_dir() {
        println!("skipped: {} is not there", root.display());
        return;
    }
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let mut expected = expected();
    let mut wrong = String::new();
    for path in paths {
        let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
        let found = answer(&path, &name);
        match expected.remove(&name) {
            Some(answer) if agree(&answer, &found) => {}
            other => writeln!(wrong, "{name}: {found:?}, expected {other:?}").expect("memory"),
        }
    }
    for name in expected.keys() {
        writeln!(wrong, "{name}: in the table, but not there").expect("memory");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
