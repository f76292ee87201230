//! What is wrong on purpose is found.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use simulation::{Flaw, Setting, run};

/// Seeds that may be needed. Seldom does a leader change just while something is stored, or is an agent pushed to by a newer commit just
/// while two of its instances believe that they apply.
const SEEDS: u64 = 400;

/// `from`: a seed that found the flaw once. Most seeds before it only wait in vain for what the flaw has lost, which takes seconds each.
fn is_found(flaw: Flaw, from: u64, said: &[&str]) {
    let found = (from..=SEEDS).chain(1..from).find_map(|seed| {
        let failure = run(Setting { flaw: Some(flaw), ..Setting::of(seed) }).failure?;
        println!("seed {seed}: {failure}");
        said.iter().any(|text| failure.contains(text)).then_some(failure)
    });
    assert!(found.is_some(), "{flaw:?} is not found in {SEEDS} seeds");
}

#[test]
fn a_log_that_does_not_look_at_versions_is_found() {
    is_found(Flaw::ForgetsExpectations, 2, &["version"]);
}

#[test]
fn a_log_that_acknowledges_before_it_has_written_is_found() {
    is_found(Flaw::AcknowledgesEarly, 266, &["was acknowledged and is not there"]);
}

#[test]
fn an_agent_that_goes_on_in_an_epoch_that_is_over_is_found() {
    is_found(Flaw::IgnoresEpochs, 37, &["is written in epoch"]);
}

#[test]
fn somebody_who_answers_for_receivers_of_webhooks_is_found() {
    is_found(Flaw::AnswersForReceivers, 1, &["prompt has not got export"]);
}

#[test]
fn a_receiver_that_holds_up_others_is_found() {
    is_found(Flaw::SharesTheWay, 1, &["prompt has not got export"]);
}

#[test]
fn somebody_beside_authz_who_signs_passes_for_whoever_asks_is_found() {
    is_found(Flaw::SignsForAnybody, 6, &["somebody who is never let in"]);
}
