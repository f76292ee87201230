//! Which source an event of delivery is about.

use events::SourceId;
use events::delivery::DeliveryEvent;

pub(super) fn source_of(event: &DeliveryEvent) -> Option<SourceId> {
    Some(match event {
        DeliveryEvent::BundleDesired(event) => event.source,
        DeliveryEvent::BundleHeld(event) => event.source,
        DeliveryEvent::BundleConfirmed(event) => event.source,
        DeliveryEvent::SourceSuspended(event) => event.source,
        DeliveryEvent::SourceResumed(event) => event.source,
        DeliveryEvent::SourcePinned(event) => event.source,
        DeliveryEvent::SourceUnpinned(event) => event.source,
        DeliveryEvent::SourceRemoved(event) => event.source,
        DeliveryEvent::SyncRequested(event) => event.source,
        DeliveryEvent::SyncStarted(event) => event.source,
        DeliveryEvent::SyncFinished(event) => event.source,
        DeliveryEvent::ApplierNamed(_) => return None,
    })
}
