//! Upcasters: old shapes of events brought to today's.
//!
//! An upcaster takes the data of version n of one type and returns that of n + 1; steps are chained until the newest
//! version is reached. Golden files in `tests/golden` hold every version that was ever released.

use std::borrow::Cow;

use crate::catalogue::{DecodeError, EventBody};

/// One step: the data of version `from` of `event_type` becomes that of `from + 1`.
struct Upcaster {
    event_type: &'static str,
    from: u16,
    step: fn(&[u8]) -> Result<Vec<u8>, DecodeError>,
}

/// Every step that was ever needed, oldest first.
const UPCASTERS: &[Upcaster] = &[
    // Version 2 may name a group that owns the agent. Agents of before belong to their projects.
    Upcaster { event_type: "kasbah.agent.registered", from: 1, step: |data| Ok(data.to_vec()) },
    // Version 2 may have a consumer instead of a webhook.
    Upcaster { event_type: "kasbah.subscription.created", from: 1, step: |data| Ok(data.to_vec()) },
];

/// The data of `body` in the shape of version `newest` of its type.
pub(crate) fn current(body: &EventBody, newest: u16) -> Result<Cow<'_, [u8]>, DecodeError> {
    upcast(UPCASTERS, body, newest)
}

fn upcast<'a>(steps: &[Upcaster], body: &'a EventBody, newest: u16) -> Result<Cow<'a, [u8]>, DecodeError> {
    if body.schema_version > newest || body.schema_version == 0 {
        return Err(DecodeError::UnknownVersion {
            event_type: body.event_type.clone(),
            found: body.schema_version,
            known: newest,
        });
    }
    let mut data = Cow::Borrowed(body.data.as_slice());
    for version in body.schema_version..newest {
        let step = steps
            .iter()
            .find(|upcaster| upcaster.event_type == body.event_type && upcaster.from == version)
            .ok_or_else(|| DecodeError::Malformed {
                detail: format!("no upcaster of {} from version {version}", body.event_type),
            })?;
        data = Cow::Owned((step.step)(&data)?);
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct First {
        name: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Third {
        names: Vec<String>,
        count: u32,
    }

    #[derive(Serialize, Deserialize)]
    struct Second {
        names: Vec<String>,
    }

    const STEPS: &[Upcaster] = &[
        Upcaster {
            event_type: "kasbah.thing.happened",
            from: 1,
            step: |data| {
                let old: First = crate::decode(data)?;
                crate::encode(&Second { names: vec![old.name] })
                    .map_err(|error| DecodeError::Malformed { detail: error.detail })
            },
        },
        Upcaster {
            event_type: "kasbah.thing.happened",
            from: 2,
            step: |data| {
                let old: Second = crate::decode(data)?;
                let count = u32::try_from(old.names.len()).unwrap_or(u32::MAX);
                crate::encode(&Third { names: old.names, count })
                    .map_err(|error| DecodeError::Malformed { detail: error.detail })
            },
        },
    ];

    fn body(schema_version: u16) -> EventBody {
        EventBody {
            event_type: "kasbah.thing.happened".to_owned(),
            schema_version,
            data: crate::encode(&First { name: "a".to_owned() }).unwrap(),
        }
    }

    #[test]
    fn steps_are_chained_up_to_the_newest_version() {
        let first = body(1);
        let data = upcast(STEPS, &first, 3).unwrap();
        assert_eq!(crate::decode::<Third>(&data).unwrap(), Third { names: vec!["a".to_owned()], count: 1 });
    }

    #[test]
    fn a_newer_version_than_known_is_refused_by_name() {
        let error = upcast(STEPS, &body(4), 3).unwrap_err();
        assert_eq!(
            error,
            DecodeError::UnknownVersion {
                event_type: "kasbah.thing.happened".to_owned(),
                found: 4,
                known: 3
            }
        );
    }
}
