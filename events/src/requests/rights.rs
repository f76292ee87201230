//! What somebody may list in a cluster by the cluster's own authorization.
//!
//! resource-indexer asks; the gateway that has a tunnel of the agent passes it on as it is, and the agent asks its API server as the one
//! whom the pass names (Kubernetes: `SelfSubjectAccessReview`, `SelfSubjectRulesReview`).

use serde::{Deserialize, Serialize};

use crate::object::is_empty;
use crate::pass::SignedPass;
use crate::request::request;
use crate::root::RootLink;

/// Which of these kinds the holder of a pass may list in a cluster: everywhere, else in which of these namespaces. Only services may ask;
/// sent under [`crate::subject::Subject::agent_request`], and to the agent in the same form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewRights {
    /// A pass for this question ([`crate::pass::Purpose::Review`]).
    pub pass: SignedPass,
    /// How agents that pin an earlier root come to the one that signed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<RootLink>,
    /// Which kinds; at most [`ReviewRights::KINDS`].
    pub kinds: Vec<ReviewedKind>,
    /// Which namespaces; at most [`ReviewRights::NAMESPACES`].
    pub namespaces: Vec<String>,
}
request!(ReviewRights => ReviewedRights, "tunnel-gateway.review-rights");

impl ReviewRights {
    /// Most kinds of one question: each is a request to the API server, and in an answer at most as many numbers a namespace.
    pub const KINDS: usize = 500;
    /// Most namespaces of one question: each is a request to the API server, for users who may not list everywhere.
    pub const NAMESPACES: usize = 1_000;
    /// Largest question, in bytes.
    pub const BYTES: usize = 512 * 1024;
    /// Most reasons of an answer.
    pub const REASONS: usize = 10;
}

/// A kind, as paths of the API name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReviewedKind {
    /// API group, empty for the core group.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub group: String,
    /// Such as `pods`.
    pub resource: String,
    /// Its objects are in namespaces.
    pub namespaced: bool,
}

/// The answer to [`ReviewRights`]. What is not in it may not be listed, or it is not known whether it may.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReviewedRights {
    /// Kinds that may be listed in all namespaces, or that are in none: their places in the question.
    pub everywhere: Vec<u32>,
    /// What else may be listed; each namespace is there once at most.
    pub somewhere: Vec<ReviewedNamespaces>,
    /// Why it is not known of some kinds or namespaces, for people; at most [`ReviewRights::REASONS`]. Empty where all is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// Namespaces in which the same may be listed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReviewedNamespaces {
    /// The namespaces.
    pub namespaces: Vec<String>,
    /// The kinds: their places in the question. Of `namespaces` it means that each of these may be read by its name.
    pub kinds: Vec<u32>,
}
