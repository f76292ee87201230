//! The embedded store under what happens to files, disks and processes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod crash;
mod damage;
mod faulty_disk;
mod full_disk;
mod handles;
mod horizon;
mod index;
mod opening;
mod support;
