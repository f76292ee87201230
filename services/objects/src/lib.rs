//! Kubernetes objects as plain values, for every part of Kasbah that has to understand them.
//!
//! Purpose: one place that knows how a manifest file is read ([`yaml`], [`manifest`]), which object is meant
//! ([`identity`]), when two contents are the same ([`digest`]), in which order kinds are applied and pruned
//! ([`order`]), what must not leave a cluster ([`redact`]), what differs and who changed it ([`diff`],
//! [`fields`]), whose an object is ([`ownership`]), which fields a manifest has no say in ([`controlled`]), how it
//! is doing ([`health`]), which kinds a configuration lets an agent touch ([`kinds`]), and how large it may be ([`size`]).
//!
//! Laws:
//! - Everything is pure: no input or output, no clock, no randomness, no task. The instant is a parameter.
//! - The same input gives the same bytes on every machine: maps are ordered, numbers have one spelling.
//! - What comes from a file or from a cluster is untrusted: sizes and depths are limited, and an error names the
//!   place.
//! - A wrong "healthy" is the worst answer: where a rule cannot tell, it says progressing or unknown.
//!
//! Deliberately absent: schemas of kinds (the API server validates), rendering (kustomize, Helm), hooks, talking
//! to a cluster.
#![warn(missing_docs)]

pub mod attributes;
pub mod controlled;
pub mod diff;
pub mod digest;
pub mod fields;
pub mod health;
pub mod identity;
pub mod kinds;
pub mod manifest;
pub mod narrowing;
pub mod order;
pub mod ownership;
pub mod pass;
pub mod redact;
pub mod size;
pub mod yaml;

pub use identity::Identity;
