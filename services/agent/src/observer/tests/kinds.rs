//! What feeds make of kinds that come, go, and are served in another version.

use super::*;

fn settled(one: &Observed) -> Option<Vec<String>> {
    match one {
        Observed::KindsSettled { silent } => Some(silent.clone()),
        _ => None,
    }
}

fn count(receiver: &Receiver, kind: &str) -> usize {
    receiver.heard.iter().filter(|one| one.kind() == kind).count()
}

async fn with_a_widget() -> (Stage, Receiver) {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.serve("widgets", true);
    stage.server.write("widgets", "a", "v");
    stage.server.write("secrets", "a", "v");
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    stage.hears(&mut receiver, "all kinds", settled).await;
    (stage, receiver)
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_went_while_nobody_observed_is_gone_once_all_kinds_are_told_of() {
    let (mut stage, mut receiver) = with_a_widget().await;
    stage.shared.holding.lose();
    stage.shows(Figures { objects: 2, feeds: 3, blind: 0 }).await;
    stage.server.serve("widgets", false);
    // A kind that cannot be seen is reported as blind: what was known of it stays.
    stage.server.forbid("secrets", true);
    stage.desire(2, ObserveRules::default());
    stage.shared.holding.hold(stage.shared.now() + YEARS);
    stage.catches_up(&mut receiver).await;
    let last = receiver.heard.iter().rposition(|one| settled(one).is_some());
    let blind = receiver.heard.iter().rposition(|one| one.kind() == "kind-blind");
    assert!(last > blind && blind.is_some(), "{:#?}", receiver.heard);
    tokio::time::sleep(Duration::from_secs(400)).await;
    receiver.read(&stage.observer.outbox);
    assert_eq!(count(&receiver, "kinds-settled"), 2, "once an epoch");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_preferred_in_another_version_is_told_anew_and_nothing_is_gone() {
    let (stage, mut receiver) = with_a_widget().await;
    stage.server.write("widgets", "b", "v");
    stage.catches_up(&mut receiver).await;
    stage.server.prefer("v2");
    stage.observer.kinds_moved.notify_one();
    stage.catches_up(&mut receiver).await;
    assert_eq!((count(&receiver, "object-gone"), count(&receiver, "kind-dropped")), (0, 0));
    stage.shows(Figures { objects: 3, feeds: 3, blind: 0 }).await;
}

#[tokio::test(start_paused = true)]
async fn one_incomplete_look_drops_no_kind() {
    let (stage, mut receiver) = with_a_widget().await;
    stage.server.hide("widgets");
    stage.observer.kinds_moved.notify_one();
    tokio::time::sleep(Duration::from_secs(60)).await;
    receiver.read(&stage.observer.outbox);
    assert_eq!((count(&receiver, "object-gone"), count(&receiver, "kind-dropped")), (0, 0));
    // One that stays away is gone.
    stage.server.serve("widgets", false);
    stage.observer.kinds_moved.notify_one();
    let dropped = |one: &Observed| match one {
        Observed::KindDropped { of, why } => Some((of.plural.clone(), *why)),
        _ => None,
    };
    let told = stage.hears(&mut receiver, "end", dropped).await;
    assert_eq!(told, ("widgets".to_owned(), Gone::KindGone));
    stage.catches_up(&mut receiver).await;
}
