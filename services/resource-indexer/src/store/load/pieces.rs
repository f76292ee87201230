//! Where the lists of a record stand in what is written: a record is an array of its fields, and so are its facts.

/// Fields of a record before its facts, and of the facts before the labels, behind which the links follow.
const BEFORE_FACTS: usize = 6;
const BEFORE_LABELS: usize = 2;

/// A record in pieces, as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pieces<'a> {
    pub(super) before: &'a [u8],
    pub(super) labels: &'a [u8],
    /// They follow the labels.
    pub(super) links: &'a [u8],
    pub(super) behind: &'a [u8],
}

impl<'a> Pieces<'a> {
    pub(super) fn of(record: &'a [u8]) -> Option<Self> {
        let facts = behind(behind_head(record)?, BEFORE_FACTS)?;
        let from_labels = behind(behind_head(facts)?, BEFORE_LABELS)?;
        let from_links = behind(from_labels, 1)?;
        let behind = behind(from_links, 1)?;
        let until = |whole: &'a [u8], rest: &[u8]| whole.get(..whole.len().checked_sub(rest.len())?);
        let [before, labels, links] =
            [(record, from_labels), (from_labels, from_links), (from_links, behind)]
                .map(|(whole, rest)| until(whole, rest));
        Some(Self { before: before?, labels: labels?, links: links?, behind })
    }
}

/// What is behind the head of an array.
fn behind_head(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first()?;
    match head {
        0x90..=0x9f => Some(rest),
        0xdc => rest.get(2..),
        _ => None,
    }
}

/// What is behind so many values of MessagePack.
fn behind(mut bytes: &[u8], values: usize) -> Option<&[u8]> {
    let mut left = values;
    while left > 0 {
        let (head, rest) = bytes.split_first()?;
        let head = *head;
        let low = |mask: u8| usize::from(head & mask);
        // Bytes of its length where it has one, bytes besides, values in it for each that is counted.
        let (of_length, besides, inside) = match head {
            0x80..=0x8f => (0, 0, 2 * low(0x0f)),
            0x90..=0x9f => (0, 0, low(0x0f)),
            0xa0..=0xbf => (0, low(0x1f), 0),
            0xc4 | 0xd9 => (1, 0, 0),
            0xc5 | 0xda => (2, 0, 0),
            0xc6 | 0xdb => (4, 0, 0),
            0xc7 => (1, 1, 0),
            0xc8 => (2, 1, 0),
            0xc9 => (4, 1, 0),
            0xcc | 0xd0 => (0, 1, 0),
            0xcd | 0xd1 => (0, 2, 0),
            0xca | 0xce | 0xd2 => (0, 4, 0),
            0xcb | 0xcf | 0xd3 => (0, 8, 0),
            0xd4..=0xd8 => (0, (1_usize << (head & 0x0f).saturating_sub(4)).saturating_add(1), 0),
            0xdc => (2, 0, 1),
            0xdd => (4, 0, 1),
            0xde => (2, 0, 2),
            0xdf => (4, 0, 2),
            0x00..=0x7f | 0xc0..=0xc3 | 0xe0..=0xff => (0, 0, 0),
        };
        let (length, rest) = rest.split_at_checked(of_length)?;
        let length = length.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte));
        let (bytes_inside, values_inside) = match (of_length, inside) {
            (0, inside) => (0, inside),
            (_, 0) => (length, 0),
            (_, each) => (0, length.checked_mul(each)?),
        };
        bytes = rest.get(bytes_inside.checked_add(besides)?..)?;
        left = left.checked_sub(1)?.checked_add(values_inside)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;

    #[derive(Debug, Clone, Serialize)]
    enum Any {
        None,
        Truth(bool),
        Number(i64),
        Real(f64),
        Text(String),
        Bytes(Vec<u8>),
        List(Vec<Any>),
        Pairs(std::collections::BTreeMap<String, Any>),
    }

    fn any_value() -> impl Strategy<Value = Any> {
        let leaf = prop_oneof![
            Just(Any::None),
            any::<bool>().prop_map(Any::Truth),
            any::<i64>().prop_map(Any::Number),
            (-200_i64..70_000).prop_map(Any::Number),
            any::<f64>().prop_map(Any::Real),
            ".{0,40}".prop_map(Any::Text),
            "[a-z]{250,300}".prop_map(Any::Text),
            proptest::collection::vec(proptest::num::u8::ANY, 0..300).prop_map(Any::Bytes),
        ];
        leaf.prop_recursive(3, 60, 20, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..20).prop_map(Any::List),
                proptest::collection::btree_map("[a-z]{1,5}", inner, 0..20).prop_map(Any::Pairs),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_behind_any_value_is_found(value in any_value(), behind_it: Vec<u8>) {
            let mut bytes = rmp_serde::to_vec(&value).unwrap();
            let length = bytes.len();
            bytes.extend_from_slice(&behind_it);
            prop_assert_eq!(behind(&bytes, 1), Some(&behind_it[..]));
            prop_assert!((0..length).all(|cut| behind(&bytes[..cut], 1).is_none()));
        }

        #[test]
        fn any_bytes_are_split_or_refused(bytes: Vec<u8>) {
            if let Some(Pieces { before, labels, links, behind }) = Pieces::of(&bytes) {
                prop_assert_eq!([before, labels, links, behind].concat(), bytes);
            }
        }
    }
}
