//! What this service may do on NATS.

use events::AggregateKind::{Agent, Credential, Group, Job, Name, Organization, Project, User};
use events::Request as _;
use events::Stream;
use events::access::{Access, Keys};
use events::requests::authz::EnsureOwner;
use store::Projection as _;

use crate::model::Directory;

/// What it says and hears: its permissions on NATS are made of this.
pub const ACCESS: Access = Access {
    decides: &[Organization, Group, Project, User, Agent, Job, Credential, Name],
    appends: &[Stream::Refusals],
    keys: &[Keys::Organizations, Keys::Persons, Keys::Credentials, Keys::Root],
    projections: &[Directory::NAME],
    asks: &[EnsureOwner::NAME],
    makes_log: true,
    ..Access::of("authz")
};
