//! Durable consumers of exported events on NATS, from which the programs of one organization fetch.
//!
//! Accounts on NATS are made before there are subscriptions, and its permissions know wildcards for whole tokens only. So an organization has a
//! fixed number of consumers, whose names are known beforehand, and a subscription takes a free one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::OrganizationId;

/// The name of a consumer: the organization's id and a number.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConsumerName {
    /// Whose.
    pub organization: OrganizationId,
    /// Its number, from 1.
    pub number: u8,
}

impl ConsumerName {
    /// How many consumers an organization has at most.
    pub const PER_ORGANIZATION: u8 = 8;

    /// All names of an organization.
    pub fn all(organization: OrganizationId) -> impl Iterator<Item = Self> {
        (1..=Self::PER_ORGANIZATION).map(move |number| Self { organization, number })
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.organization, self.number)
    }
}

/// A text is no name of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not the name of a consumer of exported events")]
pub struct ParseConsumerNameError;

impl FromStr for ConsumerName {
    type Err = ParseConsumerNameError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (organization, number) = text.rsplit_once('-').ok_or(ParseConsumerNameError)?;
        let name = Self {
            organization: organization.parse().map_err(|_| ParseConsumerNameError)?,
            number: number.parse().map_err(|_| ParseConsumerNameError)?,
        };
        // Another spelling of a name is another name on the servers.
        let is_one = (1..=Self::PER_ORGANIZATION).contains(&name.number) && name.to_string() == text;
        if is_one { Ok(name) } else { Err(ParseConsumerNameError) }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_the_names_that_accounts_know_are_names() {
        let organization = OrganizationId(Uuid::from_u128(7));
        for name in ConsumerName::all(organization) {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for wrong in [
            "",
            "1",
            "x-1",
            &format!("{organization}-0"),
            &format!("{organization}-9"),
            &format!("{organization}-01"),
        ] {
            assert_eq!(wrong.parse::<ConsumerName>(), Err(ParseConsumerNameError), "{wrong}");
        }
    }
}
