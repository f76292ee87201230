//! The one real node's name and addresses.

use std::net::Ipv4Addr;

/// The node's name.
pub const NAME: &str = "knode1";
/// The node's address.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
/// This machine's address as the node and its pods see it.
pub const HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 254);
/// The addresses of pods.
pub const POD_RANGE: &str = "10.85.0.0/24";
/// The image that holds a pod's namespaces; only the node itself has it.
pub const PAUSE_IMAGE: &str = "node.local/pause:1";
