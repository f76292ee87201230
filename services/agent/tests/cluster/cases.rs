//! Inputs that other people's bug reports suggested: manifests of `shared/cases`, in namespaces of the tests' own.

use std::path::Path;

use objects::yaml::Limits;
use serde_json::Value;

/// The manifests of one commit of a case, its own name replaced by `name`; `None` where the folder is not there.
pub fn commit(case: &str, number: u32, name: &str) -> Option<Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    let folder = std::fs::read_dir(&root).ok().and_then(|mut all| {
        all.find_map(|entry| {
            let path = entry.unwrap().path();
            path.file_name()?.to_str()?.starts_with(&format!("{case}-")).then_some(path)
        })
    });
    let Some(folder) = folder else {
        eprintln!("skipped: case {case} is not in {}", root.display());
        return None;
    };
    let files = std::fs::read_dir(folder.join(format!("commits/{number}"))).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let mut manifests = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap().replace(&format!("case{case}"), name);
        let read = objects::manifest::parse_manifests(&path.display().to_string(), &text, &Limits::default());
        manifests.extend(read.unwrap().into_iter().map(|manifest| manifest.object));
    }
    Some(manifests)
}
