//! Numbers and texts in few bytes: small numbers in one byte, texts behind their length.

use bytes::Bytes;

use crate::delta::Damaged;

/// Seven bits a byte, the lowest first; the eighth says that more follow.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

/// Small numbers of either sign are short.
pub(super) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

pub(super) fn put_size(out: &mut Vec<u8>, size: usize) {
    put_number(out, u64::try_from(size).unwrap_or(u64::MAX));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_size(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// What was written, read from its beginning.
pub(super) struct Input {
    rest: Bytes,
}

impl Input {
    pub(super) const fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.rest
    }

    pub(super) fn rest(self) -> Bytes {
        self.rest
    }

    pub(super) fn take(&mut self, count: usize) -> Result<Bytes, Damaged> {
        if count > self.rest.len() {
            return Err(Damaged);
        }
        Ok(self.rest.split_to(count))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damaged> {
        self.take(1)?.first().copied().ok_or(Damaged)
    }

    pub(super) fn number(&mut self) -> Result<u64, Damaged> {
        let (mut number, mut bytes) = (0_u64, 0_usize);
        for byte in self.rest.iter().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * bytes);
            bytes = bytes.saturating_add(1);
            if byte & 0x80 == 0 {
                self.take(bytes)?;
                return Ok(number);
            }
        }
        Err(Damaged)
    }

    pub(super) fn size(&mut self) -> Result<usize, Damaged> {
        usize::try_from(self.number()?).map_err(|_| Damaged)
    }

    pub(super) fn signed(&mut self) -> Result<i64, Damaged> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Damaged> {
        let size = self.size()?;
        self.take(size)
    }

    pub(super) fn text(&mut self) -> Result<String, Damaged> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| Damaged)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_again(number: u64, signed: i64, bytes: Vec<u8>, text: String) {
            let mut out = Vec::new();
            put_number(&mut out, number);
            put_signed(&mut out, signed);
            put_bytes(&mut out, &bytes);
            put_bytes(&mut out, text.as_bytes());
            let mut input = Input::new(out.into());
            prop_assert_eq!(input.number(), Ok(number));
            prop_assert_eq!(input.signed(), Ok(signed));
            prop_assert_eq!(input.bytes().unwrap(), bytes);
            prop_assert_eq!(input.text().unwrap(), text);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut input = Input::new(bytes.into());
            while input.bytes().is_ok() && input.signed().is_ok() {}
        }
    }

    #[test]
    fn small_numbers_take_one_byte() {
        let mut out = Vec::new();
        put_number(&mut out, 127);
        put_signed(&mut out, -64);
        assert_eq!(out.len(), 2);
    }
}
