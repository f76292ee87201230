//! Claims of volumes.

use serde_json::Value;

use super::view::View;
use super::{Health, HealthOptions, HealthStatus};

pub(super) fn claim(view: View<'_>, options: &HealthOptions) -> Health {
    match view.text("status.phase").unwrap_or("Pending") {
        "Bound" => Health::healthy(),
        "Pending" if waits_for_consumer(view, options) => {
            Health::progressing("waits for the first pod that uses it").optional(true)
        }
        "Pending" => Health::progressing("no volume is bound yet"),
        "Lost" => Health::degraded("the volume is lost"),
        other => Health::new(HealthStatus::Unknown, format!("the claim's phase is {other}")),
    }
}

/// Whether a StorageClass binds a volume only when the first pod that uses a claim is put on a node.
#[must_use]
pub fn binds_on_first_use(class: &Value) -> bool {
    class.get("volumeBindingMode").and_then(Value::as_str) == Some("WaitForFirstConsumer")
}

/// The class binds on first use, and no pod that uses the claim has been put on a node.
fn waits_for_consumer(view: View<'_>, options: &HealthOptions) -> bool {
    let annotations = view.at("metadata.annotations").value();
    let consumed = annotations.get("volume.kubernetes.io/selected-node").is_some();
    let class = view.text("spec.storageClassName").unwrap_or_default();
    !consumed && options.first_consumer_classes.contains(class)
}
