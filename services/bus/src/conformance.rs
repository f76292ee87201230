//! The laws of the bus as tests. A second implementation joins by one line:
//!
//! ```text
//! bus::conformance_suite!(nats, async |world: &World| { … (bus, what has to live as long) });
//! ```

#[cfg(test)]
mod faults;
pub mod notices;
pub mod requests;
pub mod streams;

use std::time::Duration;

use anyhow::{Result, anyhow};
use events::OrganizationId;
use events::request::RequestContext;
use world::World;

/// Beyond this a law is broken: it never decides who wins a race, it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits, but not for ever.
///
/// # Errors
/// When `what` does not happen.
pub async fn patiently<T>(world: &World, what: &str, future: impl Future<Output = T>) -> Result<T> {
    tokio::select! {
        biased;
        value = future => Ok(value),
        () = world.clock.sleep(PATIENCE) => Err(anyhow!("in vain: {what}")),
    }
}

/// A context with a deadline far away.
#[must_use]
pub fn patient_context(world: &World) -> RequestContext {
    let context = crate::context_for_service(world, "conformance", OrganizationId::SYSTEM);
    crate::within(context, Duration::from_secs(24 * 3600))
}

/// A name for subjects that no other test uses, also on a shared bus.
#[must_use]
pub fn fresh_name(world: &World, what: &str) -> String {
    format!("conformance.{what}-{}", world.new_uuid().simple())
}

/// One test for each law, in a module of that name. `$make` gives a bus of the world that it gets, and what has to live as long;
/// `in $run` instead runs a law in a world of its own.
#[macro_export]
macro_rules! conformance_suite {
    ($name:ident, in $run:expr) => { $crate::conformance_suite!(@module $name (in $run)); };
    ($name:ident, $make:expr) => { $crate::conformance_suite!(@module $name (on $make)); };
    (@module $name:ident $how:tt) => {
        mod $name {
            #[allow(unused_imports, reason = "what `make` needs is the caller's")]
            use super::*;

            $crate::conformance_suite!(@laws $how;
                requests: a_reply_comes_back,
                requests: the_context_arrives_as_it_was_sent,
                requests: nobody_there_is_told_at_once,
                requests: a_deadline_ends_a_request,
                requests: a_handler_that_dies_ends_at_the_deadline,
                requests: a_message_over_the_limit_is_refused,
                requests: requests_run_concurrently,
                requests: one_member_of_a_group_gets_a_request,
                requests: a_member_that_left_gets_no_more,
                requests: a_bad_subject_is_refused,
                requests: typed_requests_carry_answers_and_refusals,
                requests: requests_and_streams_are_served_together,
                notices: every_subscriber_gets_each_notice_once_and_in_order,
                notices: a_late_subscriber_gets_nothing_from_before,
                notices: other_subjects_are_not_heard,
                notices: a_slow_subscriber_loses_and_is_told,
                notices: a_slow_subscriber_harms_no_other,
                notices: a_notice_over_the_limit_is_refused,
                streams: bytes_arrive_in_order_and_complete,
                streams: nobody_there_is_told_at_once,
                streams: what_is_said_with_the_opening_is_read_first_and_needs_credit,
                streams: an_opening_may_be_all_that_is_said,
                streams: answers_of_any_length_come_back_to_openings_of_any_kind,
                streams: whoever_serves_hears_that_the_opener_is_gone,
                streams: more_than_the_window_does_not_go_with_an_opening,
                streams: a_writer_waits_for_credit,
                streams: a_slow_reader_stops_only_its_own_stream,
                streams: a_reset_reaches_the_other_side_with_its_reason,
                streams: a_dropped_writer_is_not_an_orderly_end,
                streams: a_dropped_reader_stops_the_writer,
                streams: an_idle_writer_hears_that_its_reader_is_gone,
                streams: each_direction_ends_by_itself,
            );
        }
    };
    (@laws $how:tt; $($group:ident: $law:ident,)*) => {
        $crate::conformance_suite!(@group $how; requests; [$(($group $law))*]);
        $crate::conformance_suite!(@group $how; notices; [$(($group $law))*]);
        $crate::conformance_suite!(@group $how; streams; [$(($group $law))*]);
    };
    (@group $how:tt; $wanted:ident; [$(($group:ident $law:ident))*]) => {
        mod $wanted {
            #[allow(unused_imports, reason = "what `make` needs is the caller's")]
            use super::*;
            $($crate::conformance_suite!(@law $how; $wanted $group $law);)*
        }
    };
    (@law $how:tt; requests requests $law:ident) => { $crate::conformance_suite!(@test $how; requests $law); };
    (@law $how:tt; notices notices $law:ident) => { $crate::conformance_suite!(@test $how; notices $law); };
    (@law $how:tt; streams streams $law:ident) => { $crate::conformance_suite!(@test $how; streams $law); };
    (@law $how:tt; $wanted:ident $group:ident $law:ident) => {};
    (@test (in $run:expr); $group:ident $law:ident) => {
        #[test]
        fn $law() {
            ($run)(|bus, world| ::std::boxed::Box::pin($crate::conformance::$group::$law(bus, world)));
        }
    };
    (@test (on $make:expr); $group:ident $law:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $law() {
            let world = ::world::World::real();
            let (bus, _kept) = ($make)(&world).await;
            let bus: ::std::sync::Arc<dyn $crate::Bus> = bus;
            $crate::conformance::$group::$law(bus, world).await.unwrap();
        }
    };
}
