//! Subscriptions: where exported events are sent to.

use events::requests::subscriptions::{
    CreateSubscription, DeleteSubscription, ListDeadLetters, ListSubscriptions, PauseSubscription,
    ReplaySubscription, ResendDeadLetters, ResumeSubscription, RotateSubscriptionSecret, ShowSubscription,
};

use super::{DELETE, GET, POST};
use crate::route::Route;

/// The routes.
pub(super) fn all() -> Vec<Route> {
    vec![
        Route::ask::<ListSubscriptions>(
            GET,
            "/api/v1/subscriptions",
            "listSubscriptions",
            "Lists the subscriptions of your organization, and who follows its exported events over HTTP now",
        ),
        Route::ask::<CreateSubscription>(
            POST,
            "/api/v1/subscriptions",
            "createSubscription",
            "Has exported events sent to a webhook, or kept for a program that fetches them from NATS; the secret that signs what is sent is shown once",
        ),
        Route::ask::<ShowSubscription>(
            GET,
            "/api/v1/subscriptions/{subscription}",
            "showSubscription",
            "Shows a subscription by name or id, and how it stands",
        ),
        Route::ask::<DeleteSubscription>(
            DELETE,
            "/api/v1/subscriptions/{subscription}",
            "deleteSubscription",
            "Deletes a subscription",
        ),
        Route::ask::<ReplaySubscription>(
            POST,
            "/api/v1/subscriptions/{subscription}/replay",
            "replaySubscription",
            "Sends events again, from a moment or behind an event; a parked subscription goes on",
        ),
        Route::ask::<PauseSubscription>(
            POST,
            "/api/v1/subscriptions/{subscription}/pause",
            "pauseSubscription",
            "Sends nothing until the subscription is resumed; it stays where it is",
        ),
        Route::ask::<ResumeSubscription>(
            POST,
            "/api/v1/subscriptions/{subscription}/resume",
            "resumeSubscription",
            "Lets a paused or parked subscription go on from where it is",
        ),
        Route::ask::<RotateSubscriptionSecret>(
            POST,
            "/api/v1/subscriptions/{subscription}/secrets",
            "rotateSubscriptionSecret",
            "Makes another secret; the former one signs, too, for a day",
        ),
    ]
    .into_iter()
    .chain(dead_letters())
    .collect()
}

fn dead_letters() -> [Route; 2] {
    [
        Route::ask::<ListDeadLetters>(
            GET,
            "/api/v1/subscriptions/{subscription}/dead-letters",
            "listDeadLetters",
            "Lists the events that the receiver refused",
        ),
        Route::ask::<ResendDeadLetters>(
            POST,
            "/api/v1/subscriptions/{subscription}/dead-letters/resend",
            "resendDeadLetters",
            "Sends dead letters again, once each",
        ),
    ]
}
