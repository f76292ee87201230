//! Headers of SPDY/3.1: names and values, compressed with all that went before on the connection.
//!
//! Source: draft-mbelshe-httpbis-spdy-00, sections 2.6.10 and 2.6.10.1.

use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

use super::channels::Unreadable;

/// Largest headers of one frame, in bytes.
const MAXIMUM_HEADERS: usize = 16 * 1024;
/// What compression is primed with begins with these words, each with its length in front of it.
const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|accep\
    t-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|conten\
    t-language|content-length|content-location|content-md5|content-range|content-type|date|etag|ex\
    pect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|l\
    ast-modified|location|max-forwards|pragma|proxy-authenticate|proxy-authorization|range|referer\
    |retry-after|server|te|trailer|transfer-encoding|upgrade|user-agent|vary|via|warning|www-authe\
    nticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-cookie|keep-alive|origin";
/// And ends with this.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorize\
    d403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, G\
    MTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/p\
    lain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf\
    -,*,enq=0.";

/// Reads the headers of one direction.
pub(super) struct Headers {
    inflate: Inflate,
}

impl Default for Headers {
    fn default() -> Self {
        Self { inflate: Inflate::new(true, 15) }
    }
}

impl Headers {
    /// The value of a header in the next block, if it is there.
    pub(super) fn value(&mut self, block: &[u8], name: &str) -> Result<Option<String>, Unreadable> {
        let text = self.inflated(block)?;
        let mut rest = text.as_slice();
        let count = take_number(&mut rest)?;
        let mut found = None;
        for _ in 0..count {
            let (known, value) = (take_text(&mut rest)?, take_text(&mut rest)?);
            if known == name.as_bytes() {
                if found.is_some() {
                    return Err(Unreadable("a header is duplicated in one frame"));
                }
                let first = value.split(|byte| *byte == 0).next().unwrap_or_default();
                found = Some(String::from_utf8_lossy(first).into_owned());
            }
        }
        // Whoever reads on in what is compressed would take it for the beginning of the next block.
        if !rest.is_empty() {
            return Err(Unreadable("there is data after the headers of a frame"));
        }
        Ok(found)
    }

    fn inflated(&mut self, block: &[u8]) -> Result<Vec<u8>, Unreadable> {
        const BROKEN: Unreadable = Unreadable("headers are not compressed as in SPDY/3.1");
        let mut text = vec![0; MAXIMUM_HEADERS];
        let (mut read, mut written) = (0, 0);
        loop {
            let (before, wrote) = (self.inflate.total_in(), self.inflate.total_out());
            let input = block.get(read..).unwrap_or_default();
            let output = text.get_mut(written..).unwrap_or_default();
            let status = self.inflate.decompress(input, output, InflateFlush::SyncFlush);
            read += usize::try_from(self.inflate.total_in() - before).unwrap_or(usize::MAX);
            written += usize::try_from(self.inflate.total_out() - wrote).unwrap_or(usize::MAX);
            match status {
                Err(InflateError::NeedDict { .. }) => {
                    self.inflate.set_dictionary(&dictionary()).map_err(|_| BROKEN)?;
                }
                Ok(Status::Ok | Status::BufError) if written == MAXIMUM_HEADERS => {
                    return Err(Unreadable("headers of a frame are too large"));
                }
                Ok(Status::Ok | Status::BufError) if read == block.len() => {
                    text.truncate(written);
                    return Ok(text);
                }
                Ok(Status::Ok) => {}
                Ok(Status::BufError | Status::StreamEnd) | Err(_) => return Err(BROKEN),
            }
        }
    }
}

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS.split('|') {
        bytes.extend_from_slice(&u32::try_from(word.len()).unwrap_or_default().to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

fn take_number(rest: &mut &[u8]) -> Result<u32, Unreadable> {
    let (number, behind) = rest.split_first_chunk::<4>().ok_or(CUT_OFF)?;
    *rest = behind;
    Ok(u32::from_be_bytes(*number))
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Unreadable> {
    let length = usize::try_from(take_number(rest)?).map_err(|_| CUT_OFF)?;
    let (text, behind) = rest.split_at_checked(length).ok_or(CUT_OFF)?;
    *rest = behind;
    Ok(text)
}

const CUT_OFF: Unreadable = Unreadable("the headers of a frame are cut off");

#[cfg(test)]
pub(super) mod tests {
    use zlib_rs::{Deflate, DeflateFlush};

    use super::*;

    /// Compresses headers as a client does.
    pub(in super::super) struct Compressed(Deflate);

    impl Default for Compressed {
        fn default() -> Self {
            let mut deflate = Deflate::new(6, true, 15);
            deflate.set_dictionary(&dictionary()).unwrap();
            Self(deflate)
        }
    }

    impl Compressed {
        pub(in super::super) fn block(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
            let number = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
            let mut text = number(headers.len()).to_vec();
            for part in headers.iter().flat_map(|(name, value)| [name, value]) {
                text.extend(number(part.len()));
                text.extend(part.as_bytes());
            }
            self.block_of(&text)
        }

        fn block_of(&mut self, text: &[u8]) -> Vec<u8> {
            let mut block = vec![0; text.len() + 1024];
            let before = self.0.total_out();
            self.0.compress(text, &mut block, DeflateFlush::SyncFlush).unwrap();
            block.truncate(usize::try_from(self.0.total_out() - before).unwrap());
            block
        }
    }

    #[test]
    fn the_dictionary_is_the_one_of_the_draft() {
        let dictionary = dictionary();
        assert_eq!(dictionary.len(), 1423);
        let (low, high) = dictionary.iter().fold((1_u32, 0_u32), |(low, high), byte| {
            let low = (low + u32::from(*byte)) % 65_521;
            (low, (high + low) % 65_521)
        });
        assert_eq!((high << 16) | low, 0xe3c6_a7c2, "the Adler-32 by which streams name it");
    }

    #[test]
    fn values_are_found_block_after_block() {
        let (mut written, mut read) = (Compressed::default(), Headers::default());
        for value in ["error", "stdin", "stdout", "resize"] {
            let block = written.block(&[("date", "today"), ("streamtype", value)]);
            assert_eq!(read.value(&block, "streamtype").unwrap().as_deref(), Some(value));
        }
        assert_eq!(read.value(&written.block(&[("a", "b")]), "streamtype").unwrap(), None);
    }

    #[test]
    fn what_is_no_block_or_hides_something_is_refused() {
        let twice = Compressed::default().block(&[("streamtype", "resize"), ("streamtype", "stdin")]);
        assert!(Headers::default().value(&twice, "streamtype").is_err());
        let mut behind = Compressed::default();
        let block = behind.block_of(&[&1_u32.to_be_bytes()[..], &[0; 8], b"more"].concat());
        assert!(Headers::default().value(&block, "streamtype").is_err(), "the next block would begin there");
        let large = Compressed::default().block(&[("a", &"x".repeat(MAXIMUM_HEADERS))]);
        assert!(Headers::default().value(&large, "streamtype").is_err());
        let fine = Compressed::default().block(&[("streamtype", "stdin")]);
        for end in 0..fine.len() - 6 {
            assert!(Headers::default().value(&fine[..end], "streamtype").is_err(), "{end}");
        }
        assert!(Headers::default().value(b"GET / HTTP/1.1", "streamtype").is_err());
    }
}
