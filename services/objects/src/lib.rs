//! Kubernetes objects as plain values, for every crate that reads them.
//!
//! Purpose: one crate for reading manifest files ([`yaml`], [`manifest`]), identities of objects ([`identity`]), equality of
//! contents ([`digest`]), the order in which kinds are applied and pruned ([`order`]), data that must not leave a cluster ([`redact`]), what is reported of a live object ([`observed`]),
//! differences and the clients that caused them ([`diff`], [`fields`]), owners ([`ownership`]), fields that manifests do not control
//! ([`controlled`]), health ([`health`]) and expressions that judge it ([`expression`]), patches that people apply by name ([`action`]), the kinds that a configuration permits ([`kinds`]), and sizes ([`size`]).
//!
//! Laws:
//! - Everything is pure: no input or output, no clock, no randomness, no task. The current time is a parameter.
//! - The same input gives the same bytes on every machine: maps are ordered, and numbers have one format.
//! - Input from a file or a cluster is untrusted: sizes and depths are limited, and an error names the place.
//! - A wrong "healthy" is the worst answer: a rule that cannot decide reports progressing or unknown.
//!
//! Deliberately absent: schemas of kinds (the API server validates), rendering (kustomize, Helm), hooks, communication
//! with a cluster.
#![warn(missing_docs)]

pub mod action;
pub mod attributes;
pub mod controlled;
pub mod diff;
pub mod digest;
pub mod expression;
pub mod fields;
pub mod health;
pub mod identity;
pub mod kinds;
pub mod manifest;
pub mod narrowing;
pub mod observed;
pub mod order;
pub mod ownership;
pub mod pass;
pub mod redact;
pub mod size;
pub mod yaml;

pub use identity::Identity;
