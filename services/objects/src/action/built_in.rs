//! Actions for kinds that many clusters have.

use std::sync::LazyLock;

use events::configuration::{DeclaredAction, ObjectPatch};
use serde_json::{Value, json};

/// An annotation at whose change Flux's controllers reconcile.
const FLUX_REQUESTED: &str = "reconcile.fluxcd.io/requestedAt";
const FLUX: [(&str, &str); 7] = [
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
    ("source.toolkit.fluxcd.io", "GitRepository"),
    ("source.toolkit.fluxcd.io", "OCIRepository"),
    ("source.toolkit.fluxcd.io", "HelmRepository"),
    ("source.toolkit.fluxcd.io", "HelmChart"),
    ("source.toolkit.fluxcd.io", "Bucket"),
];
const CRON_JOB: (&str, &str) = ("batch", "CronJob");
const ROLLOUT: (&str, &str) = ("argoproj.io", "Rollout");
const CANARY: (&str, &str) = ("flagger.app", "Canary");
const SUSPENDED: &str = "has(spec.suspend) && spec.suspend";
const NOT_SUSPENDED: &str = "!has(spec.suspend) || !spec.suspend";

static ACTIONS: LazyLock<Vec<DeclaredAction>> = LazyLock::new(|| {
    let merge =
        |(group, kind): (&str, &str), name: &str, text: &str, when: &str, patch: Value| DeclaredAction {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            text: text.to_owned(),
            when: Some(when.to_owned()),
            patch: ObjectPatch::Merge(patch),
            subresource: None,
        };
    let status = |action: DeclaredAction| DeclaredAction { subresource: Some("status".to_owned()), ..action };
    let suspend = |suspended: bool| json!({"spec": {"suspend": suspended}});
    let mut all = vec![
        merge(
            CRON_JOB,
            "suspend",
            "Starts no further jobs; those that run go on.",
            NOT_SUSPENDED,
            suspend(true),
        ),
        merge(CRON_JOB, "resume", "Starts jobs by its schedule again.", SUSPENDED, suspend(false)),
        merge(
            ROLLOUT,
            "pause",
            "Stops the rollout where it is; its pods stay as they are.",
            "!has(spec.paused) || !spec.paused",
            json!({"spec": {"paused": true}}),
        ),
        merge(
            ROLLOUT,
            "resume",
            "Lets the rollout go on.",
            "has(spec.paused) && spec.paused",
            json!({"spec": {"paused": false}}),
        ),
        status(merge(
            ROLLOUT,
            "promote",
            "Lets the canary go on to its next step.",
            "has(status.pauseConditions) && size(status.pauseConditions) > 0",
            json!({"status": {"pauseConditions": null}}),
        )),
        status(merge(
            ROLLOUT,
            "abort",
            "Ends the canary: its stable version gets all pods again.",
            "has(status.currentPodHash) && has(status.stableRS) && status.currentPodHash != status.stableRS && !(has(status.abort) && status.abort)",
            json!({"status": {"abort": true}}),
        )),
        merge(
            CANARY,
            "skip-analysis",
            "Promotes new versions without analysis, until somebody sets it back.",
            "!has(spec.skipAnalysis) || !spec.skipAnalysis",
            json!({"spec": {"skipAnalysis": true}}),
        ),
        merge(
            CANARY,
            "analyse",
            "Analyses new versions again before it promotes them.",
            "has(spec.skipAnalysis) && spec.skipAnalysis",
            json!({"spec": {"skipAnalysis": false}}),
        ),
    ];
    for kind in FLUX {
        let requested = json!({"metadata": {"annotations": {FLUX_REQUESTED: {"$cel": "now"}}}});
        all.extend([
            merge(kind, "reconcile", "Has Flux reconcile it now.", NOT_SUSPENDED, requested),
            merge(
                kind,
                "suspend",
                "Has Flux leave it alone until it is resumed.",
                NOT_SUSPENDED,
                suspend(true),
            ),
            merge(kind, "resume", "Has Flux reconcile it again.", SUSPENDED, suspend(false)),
        ]);
    }
    all
});

/// The built-in actions for objects of a kind.
pub fn built_in(group: &str, kind: &str) -> impl Iterator<Item = &'static DeclaredAction> {
    ACTIONS.iter().filter(move |action| (action.group.as_str(), action.kind.as_str()) == (group, kind))
}
