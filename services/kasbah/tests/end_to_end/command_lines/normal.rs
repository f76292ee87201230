//! What differs between two runs of anything, taken out of texts and objects.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// What is taken out, what is put there, in this order; beside each why it cannot be the same twice.
static VARYING: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        // What looks random comes first: any of the patterns below may stand in it by chance.
        // A service account's token.
        (r"\beyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
        // Certificates and keys: each cluster has an authority of its own, and the tests' certificate is a new one each time.
        (r"LS0tLS1CRUdJTi[\w+/=]+", "<certificate>"),
        (r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", "<certificate>"),
        // helm's record of a release, with the time of day in it.
        (r"\bSDRzSU[\w+/=]+", "<release>"),
        // The API server makes up the ids of objects.
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>"),
        // Containers and what is executed in them have ids that the node makes up.
        (r"\b[0-9a-f]{64}\b", "<id>"),
        // The time of day as objects have it, and as describe, helm and Go print it.
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?(Z|[+-]\d\d:?\d\d))?( UTC)?", "<time>"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun),? \w+ +\w+ [\d:]+ [\d:]+( \+0000)?", "<time>"),
        // Ages, and how long something took, as tables and messages have them.
        (r"\b(\d+m\d+s|\d+(\.\d+)?m?s|[1-9]m)\b", "<age>"),
        // A count of all writes to the cluster, those of controllers and leases among them.
        (r#"(?i)(resource ?version"?[:=] *"?)\d+"#, "${1}<version>"),
        // The ends of names that controllers make up, which have no vowels.
        (r"\b([a-z0-9]+)-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "${1}-<made-up>"),
        // Addresses of pods and services, and node ports, which are picked at random.
        (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
        (r"\b3[0-2]\d{3}\b", "<port>"),
        // Files that kubectl makes for diff and edit.
        (r"\b(LIVE|MERGED|kubectl-edit)-\d+", "$1-<made-up>"),
        // kubectl stops a watch when its own time is over, by two ways at once, and says so or not as the one or the other comes first;
        // each version words it in its own way.
        (r"(?m)^E\d{4} .* reflector\.go:\d+\] .*Failed to watch.*context deadline exceeded.*\n", ""),
        // The fake kubelet's port.
        (r#""Port": \d+"#, r#""Port": <port>"#),
        // helm's time of a release.
        (r#""modifiedAt": "\d+""#, r#""modifiedAt": "<time>""#),
        // Columns are as wide as their widest value, which may be any of the above.
        (r"(\S) {2,}", "$1  "),
    ]
    .map(|(pattern, put)| (Regex::new(pattern).unwrap(), put))
    .into()
});

/// A text without what varies.
pub fn text(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, put) in VARYING.iter() {
        text = pattern.replace_all(&text, *put).into_owned();
    }
    text
}

/// An object without what varies, as text.
pub fn object(object: &Value) -> String {
    let mut object = object.clone();
    // Entries stand in the order of their times, which are whole seconds.
    if let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields") {
        entries.sort_by_key(|entry| text(&entry.to_string()));
    }
    // Conditions stand in the order in which several controllers came to write them.
    if let Some(Value::Array(conditions)) = object.pointer_mut("/status/conditions") {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    // A count of how often the controller wrote it while pods came and went.
    if object["kind"] == "EndpointSlice" {
        object["metadata"]["generation"] = Value::Null;
    }
    text(&serde_json::to_string_pretty(&object).unwrap())
}

#[test]
fn what_looks_random_is_taken_out_whole() {
    for random in ["eyJhbGci.eyJhdWQi.3m-7E2_1s-x", "LS0tLS1CRUdJTi1m/31234=", "SDRzSUFB/2m+5s="] {
        let normal = text(&format!("a {random} b"));
        assert!(normal.starts_with("a <") && normal.ends_with("> b"), "{normal}");
    }
}
