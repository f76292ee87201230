//! Every version of every event that was ever released stands in `tests/golden`, and is read for ever.
//!
//! `KASBAH_GOLDEN=add cargo test -p events --test golden` writes files that are missing. Files are only ever added.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests end a test by panicking"
)]

#[path = "golden_samples/deployed.rs"]
mod deployed;
#[path = "golden_samples/objects.rs"]
mod objects;
#[path = "golden_samples/records.rs"]
mod records;
#[path = "golden_samples/samples.rs"]
mod samples;

use std::collections::BTreeSet;
use std::path::PathBuf;

use events::{Event, EventBody};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Golden {
    #[serde(rename = "type")]
    event_type: String,
    schema_version: u16,
    /// The stored bytes, in hexadecimal.
    data: String,
    /// What today's code reads in them.
    json: serde_json::Value,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn files() -> Vec<(String, Golden)> {
    let mut files: Vec<(String, Golden)> = std::fs::read_dir(folder())
        .expect("golden folder")
        .map(|entry| entry.expect("entry").path())
        .map(|path| {
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("golden file");
            (name, serde_json::from_str(&text).expect("golden json"))
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

fn golden_of(event: &Event) -> Golden {
    let body = event.encode().expect("encodes");
    Golden {
        json: event.to_json().expect("json"),
        event_type: body.event_type,
        schema_version: body.schema_version,
        data: hex::encode(body.data),
    }
}

#[test]
fn every_sample_is_in_a_golden_file_byte_for_byte() {
    for (name, event) in samples::all() {
        let golden = golden_of(&event);
        let path = folder().join(format!("{}.v{}.{name}.json", golden.event_type, golden.schema_version));
        if !path.exists() && std::env::var("KASBAH_GOLDEN").as_deref() == Ok("add") {
            std::fs::write(&path, serde_json::to_string_pretty(&golden).expect("json") + "\n")
                .expect("write");
        }
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|_| panic!("{} is missing: add it with KASBAH_GOLDEN=add", path.display()));
        let stored: Golden = serde_json::from_str(&text).expect("golden json");
        assert_eq!(
            stored,
            golden,
            "{} was released and may not change: add a version and an upcaster",
            path.display()
        );
    }
}

#[test]
fn every_golden_file_is_still_read() {
    for (name, golden) in files() {
        let body = EventBody {
            event_type: golden.event_type,
            schema_version: golden.schema_version,
            data: hex::decode(golden.data).expect("hex"),
        };
        let event = Event::decode(&body).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(event.to_json().expect("json"), golden.json, "{name}");
    }
}

#[test]
fn every_type_and_version_has_a_golden_file() {
    let have: BTreeSet<(String, u16)> =
        files().into_iter().map(|(_, golden)| (golden.event_type, golden.schema_version)).collect();
    for (event_type, newest) in Event::types() {
        for version in 1..=newest {
            assert!(
                have.contains(&(event_type.to_owned(), version)),
                "{event_type} version {version} has no sample"
            );
        }
    }
}

#[test]
fn a_field_of_a_newer_writer_is_ignored() {
    let (_, event) = samples::all().remove(0);
    let body = event.encode().expect("encodes");
    let mut value: rmpv::Value = rmpv::decode::read_value(&mut body.data.as_slice()).expect("value");
    let rmpv::Value::Map(fields) = &mut value else { panic!("a map") };
    fields.push(("added_later".into(), 1.into()));
    let mut data = Vec::new();
    rmpv::encode::write_value(&mut data, &value).expect("writes");
    assert_eq!(Event::decode(&EventBody { data, ..body }).expect("decodes"), event);
}
