//! Subscribers that read along a feed, the applier above all.

use super::*;
use crate::desired;
use crate::kubernetes::WatchEvent;
use crate::live_feeds::Subscription;

impl Stage {
    /// Applies a ConfigMap from now on. The API server in memory takes no writes, and shows what is watched.
    fn applies(&mut self) {
        let manifest = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        let (page, manifest) = desired::tests::content(manifest);
        self.sources = desired::tests::state(1, Some(vec![Sha256::of(&page)])).sources;
        self.shared.desired.put_contents([page, manifest]);
        let applying = crate::applier::run(Arc::clone(&self.shared), self.shutdown.clone());
        self.shared.world.spawner.spawn("applier", Box::pin(applying));
    }

    fn subscribe(&self, plural: &str) -> Option<Subscription> {
        let kinds = self.shared.discovery.kinds();
        let resource = kinds.preferred().find(|resource| resource.plural == plural)?;
        self.shared.live_feeds.subscribe(resource, "", |_| true)
    }

    async fn subscribes(&self, plural: &str) -> Subscription {
        eventually(DEADLINE, || std::future::ready(self.subscribe(plural).ok_or("no feed is live"))).await
    }

    /// So many read along a feed, and there are so many watches over ConfigMaps.
    async fn watches(&self, subscriptions: usize, watches: usize) {
        self.watches_any(&[(subscriptions, watches)]).await;
    }

    /// One of these pairs of subscriptions and watches is so.
    async fn watches_any(&self, expected: &[(usize, usize)]) {
        eventually(DEADLINE, || {
            let now = (self.shared.live_feeds.subscriptions(), self.server.watches("configmaps"));
            std::future::ready(if expected.contains(&now) { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .await;
    }
}

/// What a subscriber hears until its subscription ends.
async fn rest(mut subscription: Subscription) -> Vec<String> {
    let mut heard = Vec::new();
    while let Some(event) = subscription.next().await {
        heard.push(heard_of(&event));
    }
    heard
}

fn heard_of(event: &WatchEvent) -> String {
    let word = if matches!(event, WatchEvent::Seen(_)) { "seen" } else { "deleted" };
    format!("{word} {}", event.object().head.name)
}

fn without(kind: &str) -> ObserveRules {
    ObserveRules { include: Vec::new(), exclude: vec![pattern(kind)] }
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_once_however_many_need_it() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("configmaps", "a", "v");
    stage.applies();
    stage.desire(1, ObserveRules::default());
    stage.watches(1, 1).await;
    // Nobody observes it: the applier watches by itself.
    stage.desire(1, without("ConfigMap"));
    stage.watches(0, 1).await;
    stage.desire(1, ObserveRules::default());
    stage.watches(1, 1).await;
    // The agent may not see them any more, so neither part watches.
    stage.server.forbid("configmaps", true);
    stage.server.cut(false);
    stage.watches(0, 0).await;
    stage.server.forbid("configmaps", false);
    stage.watches(1, 1).await;
    stage.server.forget();
    stage.server.cut(false);
    stage.server.write("configmaps", "b", "v");
    stage.catches_up(&mut receiver).await;
    stage.watches(1, 1).await;
    // Another instance is the applier, and observes, and then this one again.
    stage.shared.holding.lose();
    stage.watches(0, 0).await;
    stage.shared.holding.hold(stage.shared.now() + YEARS);
    stage.watches(1, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_again_and_again_is_not_read_along_each_time() {
    let mut stage = Stage::start();
    stage.applies();
    stage.desire(1, ObserveRules::default());
    stage.watches(1, 1).await;
    let before = stage.server.lists();
    for _ in 0..60 {
        // The applier reads along again, or watches beside the observer.
        stage.watches_any(&[(1, 1), (0, 2)]).await;
        stage.server.cut(false);
    }
    let lists = stage.server.lists() - before;
    assert!(lists < 90, "each change over costs a list: {lists}");
    stage.watches(1, 1).await;
}

#[tokio::test(start_paused = true)]
async fn both_hear_of_what_is_gone_behind_a_gap() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    for name in ["a", "b", "c"] {
        stage.server.write("configmaps", name, "v");
    }
    stage.desire(1, ObserveRules::default());
    let subscription = stage.subscribes("configmaps").await;
    stage.server.write("configmaps", "a", "w");
    stage.server.delete("configmaps", "b");
    stage.catches_up(&mut receiver).await;
    stage.server.cut_off(true);
    stage.server.delete("configmaps", "c");
    stage.server.forget();
    stage.server.cut_off(false);
    // The subscription ends before the last one is deleted.
    assert_eq!(rest(subscription).await, ["seen a", "deleted b"]);
    stage.catches_up(&mut receiver).await;
    let gone = |name: &'static str| {
        move |one: &Observed| match one {
            Observed::ObjectGone { identity, why, .. } if identity.name == name => Some(*why),
            _ => None,
        }
    };
    assert_eq!(stage.hears(&mut receiver, "end of b", gone("b")).await, Gone::Deleted);
    assert_eq!(stage.hears(&mut receiver, "end of c", gone("c")).await, Gone::Vanished);
    // A list behind a new subscription misses nothing.
    let mut subscription = stage.subscribes("configmaps").await;
    assert_eq!(stage.server.objects().len(), 1);
    stage.server.write("configmaps", "d", "v");
    assert_eq!(subscription.next().await.map(|event| heard_of(&event)).as_deref(), Some("seen d"));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_does_not_take_holds_up_nobody_who_reads_along() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.desire(1, ObserveRules::default());
    let mut subscription = stage.subscribes("configmaps").await;
    // Nobody reads what is reported of objects. Most of them are as large as objects get.
    let mut heard = 0;
    for number in 0..100 {
        stage.server.write(
            "configmaps",
            &format!("o{number}"),
            &"x".repeat(if number < 60 { 350 << 10 } else { 1_000_000 }),
        );
        match subscription.next().await {
            Some(_) => heard += 1,
            None => break,
        }
    }
    assert!((20..90).contains(&heard), "it ends with the feed: {heard}");
    assert!(stage.subscribe("configmaps").is_none(), "a feed that waits is not live");
    stage.catches_up(&mut receiver).await;
    drop(stage.subscribes("configmaps").await);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_ends_what_reads_along_and_comes_back() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.serve("widgets", true);
    stage.server.write("widgets", "a", "v");
    stage.desire(1, ObserveRules::default());
    let subscription = stage.subscribes("widgets").await;
    stage.server.serve("widgets", false);
    stage.observer.kinds_moved.notify_one();
    assert_eq!(rest(subscription).await, ["deleted a"]);
    assert!(stage.subscribe("widgets").is_none());
    stage.server.serve("widgets", true);
    stage.server.write("widgets", "b", "v");
    stage.catches_up(&mut receiver).await;
    drop(stage.subscribes("widgets").await);
}

#[tokio::test(start_paused = true)]
async fn everything_is_stated_again_while_nobody_reads_along() {
    let mut stage = Stage::start();
    stage.server.write("configmaps", "a", "v");
    stage.desire(1, ObserveRules::default());
    let subscription = stage.subscribes("configmaps").await;
    let began = tokio::time::Instant::now();
    assert!(rest(subscription).await.is_empty());
    let lasted = began.elapsed();
    assert!(lasted > Duration::from_secs(5 * 3_600), "watches that end in order are one feed: {lasted:?}");
    drop(stage.subscribes("configmaps").await);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_objects_behind_a_gap_come_in_pages_as_the_server_takes_them() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    for number in 0..10_000 {
        stage.server.write("configmaps", &format!("o{number}"), &"a".repeat(3_000));
    }
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    stage.server.cut_off(true);
    for number in 0..10_000 {
        let name = format!("o{number}");
        if number < 7_000 {
            stage.server.write("configmaps", &name, &"b".repeat(3_000));
        } else {
            stage.server.delete("configmaps", &name);
        }
    }
    stage.server.forget();
    stage.server.cut_off(false);
    let is = stage.server.objects();
    let (mut most, mut batches) = (0, 0);
    eventually(DEADLINE, || {
        most = most.max(stage.observer.outbox.bytes());
        // As slowly as one batch a look.
        let Some(batch) = stage.observer.outbox.next(receiver.seen) else {
            return std::future::ready(receiver.compare(&is));
        };
        assert!(batch.observations.len() <= 200);
        batches += 1;
        receiver.take(batch);
        stage.observer.outbox.acknowledge(receiver.seen);
        std::future::ready(Err("there is more".to_owned()))
    })
    .await;
    assert!(most < 17 << 20 && batches > 100, "{most} bytes at once, {batches} batches");
    assert!((100..=500).contains(&stage.server.largest_page()), "{}", stage.server.largest_page());
    let gone = receiver.heard.iter().filter(|one| one.kind() == "object-gone").count();
    assert_eq!(gone, 3_000);
}
