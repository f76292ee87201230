//! What feeds make of limits, lost rights and an API server in trouble.

use super::*;

fn is_listed(plural: &str) -> impl Fn(&Observed) -> Option<()> {
    move |one: &Observed| matches!(one, Observed::KindListed { of, .. } if of.plural == plural).then_some(())
}

fn count(receiver: &Receiver, kind: &str) -> usize {
    receiver.heard.iter().filter(|one| one.kind() == kind).count()
}

/// Where in what was heard the first one is of which this is so.
fn place(receiver: &Receiver, is_so: impl Fn(&Observed) -> bool) -> usize {
    receiver.heard.iter().position(is_so).unwrap_or_else(|| panic!("not in {:#?}", receiver.heard))
}

#[tokio::test(start_paused = true)]
async fn events_over_their_rate_are_not_taken_for_gone() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.serve("events", true);
    stage.desire(1, ObserveRules::default());
    stage.hears(&mut receiver, "list", is_listed("events")).await;
    for number in 0..15 {
        stage.server.happens(&format!("e{number}"), "a", 1);
    }
    eventually(DEADLINE, || {
        receiver.read(&stage.observer.outbox);
        let told = receiver.objects().len();
        std::future::ready(if told == 10 { Ok(()) } else { Err(told) })
    })
    .await;
    for number in 0..15 {
        stage.server.happens(&format!("e{number}"), "a", 2);
    }
    let heard = receiver.heard.len();
    stage.server.forget();
    stage.server.cut(false);
    eventually(DEADLINE, || {
        receiver.read(&stage.observer.outbox);
        let again = receiver.heard[heard..].iter().find_map(is_listed("events"));
        std::future::ready(again.ok_or("no second list"))
    })
    .await;
    assert_eq!(count(&receiver, "object-gone"), 0, "{:#?}", receiver.heard);
    let is = stage.server.objects();
    let told = receiver.objects();
    assert!(told.len() >= 10, "{told:#?}");
    assert!(told.iter().all(|(key, digest)| is.get(key) == Some(digest)), "each is told as it is now");
}

/// All kinds everywhere, and the namespace `shop` by name.
fn shop_by_name() -> ObserveRules {
    let mut shop = pattern("ConfigMap");
    "shop".clone_into(&mut shop.namespace);
    ObserveRules { include: vec![pattern("*"), shop], exclude: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn who_loses_the_right_to_all_namespaces_sees_those_that_are_named_and_nothing_is_gone() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("secrets", "a", "v");
    stage.desire(1, shop_by_name());
    stage.catches_up(&mut receiver).await;
    stage.server.narrow("secrets", true);
    stage.server.cut(false);
    let blind = |one: &Observed| {
        matches!(one, Observed::KindBlind { of, .. } if of.plural == "secrets" && of.namespace.is_empty())
            .then_some(())
    };
    stage.hears(&mut receiver, "blindness", blind).await;
    stage.server.write("secrets", "b", "v");
    stage.catches_up(&mut receiver).await;
    // It may after all.
    stage.server.narrow("secrets", false);
    let heard = receiver.heard.len();
    eventually(DEADLINE, || {
        receiver.read(&stage.observer.outbox);
        let all = receiver.heard[heard..].iter().any(|one| {
            matches!(one, Observed::KindListed { of, .. } if of.plural == "secrets" && of.namespace.is_empty())
        });
        std::future::ready(if all { Ok(()) } else { Err("not listed") })
    })
    .await;
    stage.catches_up(&mut receiver).await;
    assert_eq!((count(&receiver, "object-gone"), count(&receiver, "kind-dropped")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn rights_that_come_while_a_request_is_refused_are_not_missed() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("secrets", "a", "v");
    stage.server.forbid("secrets", true);
    let observer = Arc::clone(&stage.observer);
    stage.server.when_forbidden(move || observer.rights_moved.send_replace(()));
    let began = tokio::time::Instant::now();
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_in_trouble_costs_no_list_and_no_gap() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("configmaps", "a", "v");
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    stage.hears(&mut receiver, "list", is_listed("secrets")).await;
    stage.hears(&mut receiver, "list", is_listed("configmaps")).await;
    let lists = stage.server.lists();
    stage.server.trouble(&[429, 503, 500, 504, 503, 500, 429, 503]);
    stage.server.cut(false);
    stage.server.write("configmaps", "a", "w");
    stage.catches_up(&mut receiver).await;
    assert_eq!((stage.server.lists(), count(&receiver, "objects-gap")), (lists, 0));
    stage.shows(Figures { objects: 1, feeds: 2, blind: 0 }).await;
    receiver.read(&stage.observer.outbox);
    let (blind, listed) = (count(&receiver, "kind-blind"), count(&receiver, "kind-listed"));
    assert!(blind > 0 && listed == blind + 2, "what was blind is told to see again: {blind}, {listed}");
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_told_before_what_follows_it() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("configmaps", "a", "v");
    stage.desire(1, ObserveRules::default());
    stage.catches_up(&mut receiver).await;
    stage.hears(&mut receiver, "list", is_listed("configmaps")).await;
    stage.server.cut_off(true);
    stage.server.write("configmaps", "b", "v");
    stage.server.forget();
    stage.server.cut_off(false);
    stage.catches_up(&mut receiver).await;
    let gap =
        place(&receiver, |one| matches!(one, Observed::ObjectsGap { of, .. } if of.plural == "configmaps"));
    let new =
        place(&receiver, |one| matches!(one, Observed::ObjectSeen { object } if object.identity.name == "b"));
    assert!(gap < new, "{:#?}", receiver.heard);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_refused_for_good_is_none_and_any_other_failure_is_one() {
    let (mut stage, mut receiver) = (Stage::start(), Receiver::default());
    stage.server.write("configmaps", "a", &"x".repeat(500 << 10));
    stage.desire(1, ObserveRules::default());
    let digest = eventually(DEADLINE, || {
        let batch = stage.observer.outbox.next(receiver.seen);
        let told = batch.into_iter().flat_map(|batch| batch.observations).find_map(|one| match one.what {
            Observed::ObjectSeen { object } => Some(object.digest),
            _ => None,
        });
        std::future::ready(told.ok_or("nothing is reported"))
    })
    .await;
    let body = stage.observer.body(&digest).await.unwrap().expect("it is as it was");
    assert_eq!(Sha256::of(body.as_bytes()), digest);
    for (code, is_for_good) in [(403, true), (404, true), (401, false), (429, false), (503, false)] {
        stage.server.refuse(Some(code));
        let asked = stage.observer.body(&digest).await;
        assert_eq!(asked.ok(), is_for_good.then_some(None), "{code}");
    }
    stage.server.refuse(None);
    stage.catches_up(&mut receiver).await;
    assert_eq!(stage.observer.body(&digest).await, Ok(None), "it is durable");
}

#[tokio::test(start_paused = true)]
async fn the_first_list_is_a_stream_where_there_is_one_and_pages_where_it_breaks_off() {
    for (most, streamed, listed) in [(1_000, 2, 0), (20, 1, 1)] {
        let mut stage = Stage::start();
        for number in 0..60 {
            stage.server.write("configmaps", &format!("map-{number}"), "content");
        }
        stage.server.write("secrets", "only", "content");
        stage.server.stream(most);
        stage.desire(1, ObserveRules::default());
        let mut receiver = Receiver::default();
        stage.catches_up(&mut receiver).await;
        assert_eq!((stage.server.streamed(), stage.server.lists()), (streamed, listed), "{most}");
        // What happens from there on is followed, and what was streamed counts as listed.
        stage.server.write("configmaps", "map-1", "other");
        stage.server.delete("configmaps", "map-2");
        stage.catches_up(&mut receiver).await;
        let is_listed = |word: &Observed| matches!(word, Observed::KindListed { of, objects, .. } if of.kind == "ConfigMap" && *objects == 60);
        stage.hears(&mut receiver, "end of the list", |word| is_listed(word).then_some(())).await;
        // A list behind a gap is one in pages, as the gap names its version.
        let before = stage.server.lists();
        stage.server.forget();
        stage.server.cut(true);
        stage.server.write("configmaps", "map-3", "other");
        stage.catches_up(&mut receiver).await;
        assert!(stage.server.lists() > before);
        assert_eq!(stage.server.streamed(), streamed);
    }
}
