//! A quick hash for the sets in which texts and lists are looked up: each object that is loaded has tens of them.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes with secret numbers of its own, so that nobody can choose texts that collide.
#[derive(Debug, Clone)]
pub struct Quick {
    start: u64,
    factor: u64,
}

impl Default for Quick {
    fn default() -> Self {
        let random = RandomState::new();
        // An even factor would lose a bit each time.
        Self { start: random.hash_one(0_u8), factor: random.hash_one(1_u8) | 1 }
    }
}

impl BuildHasher for Quick {
    type Hasher = QuickHasher;

    fn build_hasher(&self) -> QuickHasher {
        QuickHasher { state: self.start, factor: self.factor }
    }
}

/// See [`Quick`].
#[derive(Debug)]
pub struct QuickHasher {
    state: u64,
    factor: u64,
}

impl QuickHasher {
    /// Each bit of the product's halves depends on many of both factors.
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.state ^ word).wrapping_mul(u128::from(self.factor)).to_le_bytes();
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = product;
        let (low, high) = ([a, b, c, d, e, f, g, h], [i, j, k, l, m, n, o, p]);
        self.state = u64::from_le_bytes(low) ^ u64::from_le_bytes(high);
    }
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let number = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
        let last = match (bytes.last_chunk::<8>(), rest) {
            (_, []) => return,
            (Some(last), _) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
            (None, [a]) => u64::from(*a),
            (None, [a, b]) => number([*a, *b, 0, 0]),
            (None, [a, b, c]) => number([*a, *b, *c, 0]),
            (None, [a, b, c, d, behind @ ..]) => {
                let last = behind.iter().rev().fold(0, |last, byte| (last << 8) | u64::from(*byte));
                number([*a, *b, *c, *d]) | (last << 32)
            }
        };
        // Zeros at the end count.
        self.mix(last | (u64::try_from(rest.len()).unwrap_or(0) << 56));
    }

    /// Behind each text is such a byte: it is mixed with what follows.
    fn write_u8(&mut self, number: u8) {
        self.state = self.state.rotate_left(8) ^ u64::from(number);
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(u64::try_from(number).unwrap_or(u64::MAX));
    }

    fn finish(&self) -> u64 {
        let mut last = Self { state: self.state.rotate_left(32), factor: self.factor };
        last.mix(0);
        last.state
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn texts_that_are_nearly_alike_have_other_hashes_in_all_of_their_bits() {
        let quick = Quick::default();
        let texts: Vec<String> = (0..10_000).map(|number| format!("app-{number:05}-6bb7c8fd5d")).collect();
        let hashes: Vec<u64> = texts.iter().map(|text| quick.hash_one(text)).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), texts.len());
        for shift in [0, 16, 32, 56] {
            let mut counts = [0_usize; 256];
            for hash in &hashes {
                counts[usize::from(hash.to_le_bytes()[shift / 8])] += 1;
            }
            assert!(counts.iter().all(|count| (5..100).contains(count)), "{shift}: {counts:?}");
        }
    }

    #[test]
    fn what_is_split_otherwise_or_ends_with_zeros_has_another_hash() {
        let quick = Quick::default();
        let alike =
            [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), ("abc\0", ""), ("abc\0\0\0\0\0", "")];
        let hashes: HashSet<u64> = alike.iter().map(|texts| quick.hash_one(texts)).collect();
        assert_eq!(hashes.len(), alike.len());
        assert_eq!(quick.hash_one("a"), quick.clone().hash_one(String::from("a")));
    }
}
