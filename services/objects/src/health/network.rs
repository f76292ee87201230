//! Services and Ingresses.

use super::view::View;
use super::{Health, HealthOptions};

pub(super) fn service(view: View<'_>, options: &HealthOptions) -> Health {
    if view.text("spec.type") != Some("LoadBalancer") || has_address(view) {
        return Health::healthy();
    }
    Health::progressing("the load balancer has no address").optional(options.load_balancer_optional)
}

pub(super) fn ingress(view: View<'_>, options: &HealthOptions) -> Health {
    if has_address(view) {
        return Health::healthy();
    }
    Health::progressing("no controller has given it an address").optional(options.ingress_optional)
}

fn has_address(view: View<'_>) -> bool {
    !view.list("status.loadBalancer.ingress").is_empty()
}
