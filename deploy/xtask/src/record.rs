//! What was acknowledged to whoever asked for it, kept by the one who asked, and what of it is not there.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::client::Client;

/// Kept outside of Kasbah, so that Kasbah cannot forget it.
#[derive(Debug, Default)]
pub struct Record {
    /// Groups by id, whose creation was acknowledged.
    groups: BTreeMap<String, String>,
    /// Commits whose push was acknowledged, oldest first.
    pushed: Vec<String>,
    /// Commands that ended without an acknowledgement: what became of them is nobody's claim.
    pub unacknowledged: usize,
}

impl Record {
    /// Asks for a group, and notes what was answered.
    pub fn create_group(&mut self, asked: Result<Value>, name: &str) {
        match asked.as_ref().ok().and_then(|group| group.get("id")?.as_str()) {
            Some(id) => drop(self.groups.insert(id.to_owned(), name.to_owned())),
            None => self.unacknowledged += 1,
        }
    }

    /// Notes what became of a push.
    pub fn push(&mut self, pushed: Result<String>) {
        match pushed {
            Ok(commit) => self.pushed.push(commit),
            Err(_) => self.unacknowledged += 1,
        }
    }

    /// Takes what another noted beside this.
    pub fn add(&mut self, other: Self) {
        self.groups.extend(other.groups);
        self.pushed.extend(other.pushed);
        self.unacknowledged += other.unacknowledged;
    }

    /// How much was acknowledged: pushes and commands.
    pub fn acknowledged(&self) -> (usize, usize) {
        (self.pushed.len(), self.groups.len())
    }

    /// The commit that everything has to be at in the end.
    pub fn last_push(&self) -> Option<&str> {
        self.pushed.last().map(String::as_str)
    }

    /// What was acknowledged and is not there.
    ///
    /// # Errors
    /// When Kasbah cannot be asked.
    pub fn lost(&self, client: &Client) -> Result<Vec<String>> {
        let listed = client.json(&["group", "list"])?;
        let listed = listed.as_array().context("no list of groups")?;
        let there = |id: &str| listed.iter().any(|group| group.get("id").and_then(Value::as_str) == Some(id));
        let lost = self.groups.iter().filter(|(id, _)| !there(id));
        Ok(lost.map(|(id, name)| format!("group {name} ({id}), whose creation was acknowledged")).collect())
    }
}
