//! Keys of the tables, in an order that serves their ranges.

use events::AgentId;
use events::observation::ObservationBatch;
use events::subject::partition_of_writer;
use uuid::Uuid;

use crate::model::Text;

/// How many partitions the log's streams have.
#[derive(Debug, Clone, Copy)]
pub struct Partitions(pub u16);

impl Partitions {
    /// The partition in which an agent's objects are.
    #[must_use]
    pub fn of(self, agent: AgentId) -> u16 {
        partition_of_writer(&ObservationBatch::agent_writer(agent), self.0)
    }

    /// All of them.
    pub fn all(self) -> impl Iterator<Item = u16> {
        0..self.0
    }
}

/// Before a UID that is a UUID as it is usually written, in its 16 bytes.
const UUID: u8 = 0;
/// Before any other UID, behind its length.
const TEXT: u8 = 1;

/// A UID in few bytes, so that none is the beginning of another.
pub(super) fn put_uid(out: &mut Vec<u8>, uid: &str) {
    if let Some(uuid) = usual_uuid(uid) {
        out.push(UUID);
        out.extend_from_slice(uuid.as_bytes());
        return;
    }
    out.push(TEXT);
    let length = u16::try_from(uid.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(uid.as_bytes());
}

/// The UUID that is written with these letters, and with no others.
fn usual_uuid(uid: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(uid).ok()?;
    (*uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *uid).then_some(uuid)
}

/// A UID that was written, and what stands behind it.
pub(super) fn split_uid(bytes: &[u8]) -> Option<(Text, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    if *kind == UUID {
        let (uuid, rest) = rest.split_first_chunk::<16>()?;
        let mut buffer = Uuid::encode_buffer();
        let uid = Uuid::from_bytes(*uuid).hyphenated().encode_lower(&mut buffer);
        return Some((Text::from(&*uid), rest));
    }
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (uid, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((Text::from(std::str::from_utf8(uid).ok()?), rest))
}

/// Agent and UID.
pub(super) fn object_key(agent: AgentId, uid: &str) -> Vec<u8> {
    let mut key = agent.0.as_bytes().to_vec();
    put_uid(&mut key, uid);
    key
}

/// Changes of an object up to that number.
pub(super) fn change_key(object: &[u8], number: u64) -> Vec<u8> {
    [object, &number.to_be_bytes()].concat()
}

/// The agent at the beginning of a key.
pub(super) fn agent_of(key: &[u8]) -> Option<AgentId> {
    let (agent, _) = key.split_first_chunk::<16>()?;
    Some(AgentId(Uuid::from_bytes(*agent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_read_as_it_was_written_and_is_the_beginning_of_no_other() {
        let usual = "0f6bb7c8-fd5d-4c6e-8d3a-0123456789ab";
        let upper = usual.to_uppercase();
        let of_kind = format!("{usual}/Pod.");
        let plain = usual.replace('-', "");
        let uids = [usual, upper.as_str(), of_kind.as_str(), plain.as_str(), "", "u", "u-1"];
        for uid in uids {
            let mut written = Vec::new();
            put_uid(&mut written, uid);
            let length = written.len();
            written.extend_from_slice(b"behind");
            assert_eq!(split_uid(&written), Some((Text::from(uid), b"behind".as_slice())));
            let others = uids.into_iter().filter(|other| *other != uid);
            for other in others {
                let mut longer = Vec::new();
                put_uid(&mut longer, other);
                assert!(!longer.starts_with(&written[..length]), "{uid} and {other}");
            }
            assert!((0..length).all(|cut| split_uid(&written[..cut]).is_none()), "{uid}");
        }
    }

    #[test]
    fn a_usual_uid_takes_few_bytes() {
        assert_eq!(object_key(AgentId(Uuid::from_u128(7)), &Uuid::from_u128(8).to_string()).len(), 33);
    }
}
