//! What each replica of a service answers to another one.

use serde::{Deserialize, Serialize};

use crate::request::request;

/// Which replicas of the service live? Asked by one that joins them, under the subject `presence.<service>`. Only services may ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListReplicas {}
request!(ListReplicas => Vec<uuid::Uuid>, "presence.list-replicas");
