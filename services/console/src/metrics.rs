//! What is counted.

use axum::http::{Method, StatusCode};

chassis::metrics! {
    /// The console's metrics.
    pub struct Counts in "kasbah_console" {
        /// Answered requests; a streaming answer counts when it starts
        pub(crate) requests: Counter {
            method: "the method of HTTP, or `other`",
            route: "the path with its parameters' names, such as `/hooks/v1/{project}`, or `none`",
            status: "the status of HTTP, or its class, such as `4xx`",
        },
        /// Time until an answer starts
        pub(crate) request_seconds: Seconds {
            method: "the method of HTTP, or `other`",
            route: "the path with its parameters' names, or `none`",
        },
        /// Pushes announced by webhooks
        pub(crate) pushes: Counter,
        /// Webhooks about jobs and deployments of CI systems
        pub(crate) deployment_reports: Counter,
    }
}

/// A method as a label: whoever asks may make up others.
pub(crate) fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        _ => "other",
    }
}

/// A status as a label.
pub(crate) fn status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200 => "200",
        201 => "201",
        202 => "202",
        204 => "204",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        408 => "408",
        409 => "409",
        410 => "410",
        413 => "413",
        422 => "422",
        429 => "429",
        500 => "500",
        503 => "503",
        code if code < 200 => "1xx",
        code if code < 300 => "2xx",
        code if code < 400 => "3xx",
        code if code < 500 => "4xx",
        _ => "5xx",
    }
}
