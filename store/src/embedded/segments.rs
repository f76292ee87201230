//! The files of one chain: `0000000001.seg`, `0000000002.seg` and so on, each beginning with a header.
//!
//! A segment comes into being whole (header and anchor, by rename), is written at its end only, and is cut to its last frame
//! before the next one is made, so that only the last segment of a chain may end in zeros or in a torn frame.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use world::Disk;
use world::disk::DiskFile;

use super::frame::Place;

/// Where the first frame of a segment begins.
pub(super) const FIRST: u64 = 16;

/// Files of one chain that stay open: a process may have few, and a chain any number of segments.
const OPEN: usize = 16;

const MAGIC: [u8; 8] = *b"KASBAHSG";

/// A place in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Cursor {
    pub(super) segment: u32,
    pub(super) offset: u64,
}

impl Cursor {
    /// Where a chain begins.
    pub(super) const START: Self = Self { segment: 1, offset: FIRST };

    pub(super) fn plus(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// The files of one chain.
pub(super) struct Segments {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    pub(super) salt: u64,
    /// Those that were used last, the newest at the end.
    open: Mutex<VecDeque<(u32, Arc<dyn DiskFile>)>>,
    /// The first that is kept; those before it have left.
    first: AtomicU32,
}

impl Segments {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: PathBuf, salt: u64) -> io::Result<Self> {
        disk.create_folder(&folder)?;
        Ok(Self { disk, folder, salt, open: Mutex::default(), first: AtomicU32::new(1) })
    }

    /// The first that is kept.
    pub(super) fn first(&self) -> u32 {
        self.first.load(Ordering::Acquire)
    }

    /// Where the chain begins.
    pub(super) fn begin(&self) -> Cursor {
        Cursor { segment: self.first(), ..Cursor::START }
    }

    /// Removes the segments before `first`, of which whoever follows the chain was told before.
    pub(super) fn remove_before(&self, first: u32) -> io::Result<()> {
        self.first.store(first, Ordering::Release);
        for number in self.numbers()?.into_iter().take_while(|number| *number < first) {
            self.open.lock().retain(|(open, _)| *open != number);
            self.disk.remove(&self.folder.join(Self::name(number)))?;
        }
        Ok(())
    }

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        self.numbers()?.into_iter().map(|number| self.file(number)?.length()).sum()
    }

    /// The file's name, for people.
    pub(super) fn name(number: u32) -> String {
        format!("{number:010}.seg")
    }

    /// The name with its folder's, such as `decisions/0000000001.seg`.
    pub(super) fn display_name(&self, number: u32) -> String {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{folder}/{}", Self::name(number))
    }

    /// Numbers of the segments that there are, in order.
    pub(super) fn numbers(&self) -> io::Result<Vec<u32>> {
        let names = self.disk.list(&self.folder)?;
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.to_str()?.strip_suffix(".seg")?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes a segment that begins with these bytes behind its header.
    pub(super) fn create(&self, number: u32, anchor: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.folder.join(Self::name(number));
        if self.disk.list(&self.folder)?.iter().any(|name| name.to_str() == Some(&Self::name(number))) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let mut bytes = self.header(number).to_vec();
        bytes.extend_from_slice(anchor);
        self.disk.replace(&path, &bytes, true)?;
        self.file(number)
    }

    /// The open file of a segment.
    pub(super) fn file(&self, number: u32) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.used(number) {
            return Ok(file);
        }
        let file = self.disk.open(&self.folder.join(Self::name(number)), false)?;
        let mut open = self.open.lock();
        open.retain(|(other, _)| *other != number);
        open.push_back((number, Arc::clone(&file)));
        while open.len() > OPEN {
            open.pop_front();
        }
        Ok(file)
    }

    fn used(&self, number: u32) -> Option<Arc<dyn DiskFile>> {
        let mut open = self.open.lock();
        let place = open.iter().position(|(other, _)| *other == number)?;
        let (number, file) = open.remove(place)?;
        open.push_back((number, Arc::clone(&file)));
        Some(file)
    }

    /// Whether a file begins with the header of this segment of this log.
    pub(super) fn header_fits(&self, number: u32, file: &dyn DiskFile) -> io::Result<bool> {
        let mut found = [0_u8; FIRST as usize];
        let length = read_full(file, &mut found, 0)?;
        Ok(length == found.len() && found == self.header(number))
    }

    pub(super) const fn place(&self, at: Cursor) -> Place {
        Place { salt: self.salt, segment: at.segment, offset: at.offset }
    }

    fn header(&self, number: u32) -> [u8; FIRST as usize] {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.salt.to_le_bytes());
        hasher.update(&number.to_le_bytes());
        let mut header = [0_u8; FIRST as usize];
        let parts: [&[u8]; 3] = [&MAGIC, &number.to_le_bytes(), &hasher.finalize().to_le_bytes()];
        for (to, from) in header.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        header
    }
}

/// Reads until `buffer` is full or the file ends.
pub(super) fn read_full(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let read = file.read_at(rest, offset + filled as u64)?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    Ok(filled)
}
