//! What this service may do on NATS.

use events::access::{Access, Keys, Use};
use events::requests::authz::{Admit, Decide, SignPass};
use events::requests::delivery::{DesiredChanged, NameApplier, ShowDesired, ShowNext};
use events::requests::gateway::{ForwardedRequest, RedeemTicket};
use events::{Notice as _, Request as _, Stream};
use store::Projection as _;

use crate::tunnels::{ObjectCursors, ObservationCursors, Standing};

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    asks: &[
        Admit::NAME,
        Decide::NAME,
        SignPass::NAME,
        ShowDesired::NAME,
        ShowNext::NAME,
        NameApplier::NAME,
        ForwardedRequest::NAME,
        RedeemTicket::NAME,
    ],
    hears: &[DesiredChanged::NAME],
    shares_work: true,
    appends: &[Stream::Observations, Stream::Objects, Stream::Audit, Stream::Recordings],
    reads: &[Stream::Observations, Stream::Objects],
    blobs: Use::Writes,
    keys: &[Keys::CertificateAuthority, Keys::TunnelTickets, Keys::Organizations],
    projections: &[ObservationCursors::NAME, ObjectCursors::NAME, Standing::NAME],
    ..Access::of("tunnel-gateway")
};
