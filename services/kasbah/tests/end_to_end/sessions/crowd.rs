//! Many commands at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use testkit::tests_are_long;

use super::{Ground, There};

/// So many, or with `KASBAH_LONG_TESTS` set a thousand, which holds up every test beside it.
const COMMANDS: [usize; 2] = [100, 1000];
const WORKERS: usize = 10;

/// Many commands in the pod, ten at a time, from each gateway as many; none may fail.
pub(super) async fn runs_many_commands(ground: &Ground) {
    let next = AtomicUsize::new(0);
    let commands = COMMANDS[usize::from(tests_are_long())];
    let work = |worker: usize| {
        let person = &ground.people[worker % ground.people.len()];
        let there = There { person, namespace: &ground.scene.namespace };
        let next = &next;
        async move {
            let mut failed = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed).to_string();
                if number.parse::<usize>().unwrap() >= commands {
                    return failed;
                }
                let arguments = ["-n", there.namespace, "exec", "web", "--", "echo", &number];
                match there.person.kubectl(&arguments).await {
                    Ok(said) if said.trim() == number => {}
                    Ok(said) => failed.push(format!("{number} said {said:?}")),
                    Err(error) => failed.push(format!("{number}: {error:#}")),
                }
            }
        }
    };
    let failed: Vec<String> = join_all((0..WORKERS).map(work)).await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {commands} failed: {failed:#?}", failed.len());
}
