use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::git::parse_id;

fn git(folder: &Path, arguments: &[&str], input: &str) -> Vec<u8> {
    use std::io::Write;
    let mut command = Command::new("git");
    command
        .current_dir(folder)
        .args(["-c", "user.name=Dana", "-c", "user.email=dana@example.com"])
        .args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn text(folder: &Path, arguments: &[&str]) -> String {
    String::from_utf8(git(folder, arguments, "")).unwrap().trim().to_owned()
}

/// A repository with two commits: many files, and one of them changed. Gives their ids.
fn repository(folder: &Path) -> (ObjectId, ObjectId) {
    text(folder, &["init", "--quiet", "--initial-branch=main", "."]);
    std::fs::create_dir(folder.join("a")).unwrap();
    for index in 0..200 {
        std::fs::write(
            folder.join(format!("a/{index}.yaml")),
            format!("kind: X\nvalue: {index}\n").repeat(5),
        )
        .unwrap();
    }
    let mut commits = Vec::new();
    for value in ["one", "two"] {
        std::fs::write(folder.join("a/7.yaml"), "kind: X\nvalue: 7\n".repeat(5) + value).unwrap();
        text(folder, &["add", "--all"]);
        text(folder, &["commit", "--quiet", "-m", value]);
        commits.push(parse_id(&text(folder, &["rev-parse", "HEAD"])).unwrap());
    }
    (commits[0], commits[1])
}

/// The thin pack of the second commit for somebody who has the first.
fn thin_pack(folder: &Path, first: ObjectId, second: ObjectId) -> Vec<u8> {
    let arguments = ["pack-objects", "--stdout", "--thin", "--revs", "--delta-base-offset", "-q"];
    git(folder, &arguments, &format!("{second}\n^{first}\n"))
}

fn objects(folder: &Path) -> Objects {
    let options = gix::odb::store::init::Options::default();
    let store = gix::odb::Store::at_opts(
        folder.join(".git/objects"),
        gix::hash::Kind::Sha1,
        &mut std::iter::empty(),
        options,
    );
    Objects::new(Arc::new(store.unwrap()))
}

#[test]
fn a_thin_pack_is_completed_from_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = repository(folder.path());
    let pack = Bytes::from(thin_pack(folder.path(), first, second));
    // Cut into pieces, as they come from the network.
    let pieces: Vec<Bytes> = pack.chunks(7).map(Bytes::copy_from_slice).collect();
    let known = objects(folder.path());
    let unpacked = unpack(&pieces, &known).unwrap();
    let kinds: Vec<Kind> = unpacked.values().map(|(kind, _)| *kind).collect();
    let count = |kind: Kind| kinds.iter().filter(|found| **found == kind).count();
    assert_eq!((count(Kind::Commit), count(Kind::Tree), count(Kind::Blob)), (1, 2, 1));
    for (id, (kind, content)) in &unpacked {
        let mut reader = known.reader();
        assert_eq!(reader.raw(id).unwrap(), Some((*kind, content.as_ref())), "what git stored itself");
    }
    let overlay = Overlay::default().with(unpacked);
    assert_eq!(overlay.reachable(&[second]).bytes(), overlay.bytes());
    assert!(overlay.reachable(&[first]).is_empty());
    assert_eq!(overlay.commits(&second.to_string()[..6]).collect::<Vec<_>>(), [second]);
}

#[test]
fn a_pack_without_its_bases_or_damaged_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = repository(folder.path());
    let pack = thin_pack(folder.path(), first, second);
    let empty = tempfile::tempdir().unwrap();
    text(empty.path(), &["init", "--quiet", "."]);
    let unknown = objects(empty.path());
    assert!(unpack(&[Bytes::from(pack.clone())], &unknown).unwrap_err().message.contains("does not have"));
    let known = objects(folder.path());
    for index in (0..pack.len()).step_by(3) {
        let mut flipped = pack.clone();
        flipped[index] ^= 0x10;
        assert!(unpack(&[Bytes::from(flipped)], &known).is_err(), "byte {index}");
    }
    assert!(unpack(&[Bytes::from(pack[..pack.len() - 30].to_vec())], &known).is_err());
}

proptest! {
    #[test]
    fn any_delta_is_taken_without_a_panic(base in "[a-z]{0,40}", delta in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut delta = Delta(&delta);
        while let Ok(Some(part)) = delta.part(base.as_bytes()) {
            prop_assert!(!part.is_empty());
        }
    }
}
