//! A small seeded generator, so that a failing run can be had again.

/// Numbers from a seed (xorshift64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero; small seeds would begin alike.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A seed that was not there before.
    #[must_use]
    pub fn fresh_seed() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        u64::from(now.unwrap_or_default().subsec_nanos()) | 1
    }

    /// From 0 to below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides.max(1)
    }

    /// One of them; `None` of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.roll(of.len() as u64)).unwrap_or(0))
    }
}
