//! The bytes of the manifest.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use bytemuck::{Pod, Zeroable};
use xxhash_rust::xxh3::xxh3_64;

use super::{FORMAT, Manifest, StoredFilter};
use crate::store::{FilterId, FilterName, MAX_NUMBER, StoreError, format};

const MAGIC: [u8; 8] = *b"SEENMANI";

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    format: [u8; 4],
    head_bytes: [u8; 4],
    file_bytes: [u8; 8],
    next_number: [u8; 8],
    requests_from: [u8; 8],
    filters: [u8; 8],
    removed: [u8; 8],
    zeros: [u8; 8],
}

/// The entry of a filter. The numbers of its files follow.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Entry {
    id: [u8; 8],
    /// 0 for no filter.
    rebuilds: [u8; 8],
    log_from: [u8; 8],
    files: [u8; 8],
    name: [u8; FilterName::MAX_BYTES],
}

impl Manifest {
    pub fn encode(&self) -> Vec<u8> {
        let head = Head {
            magic: MAGIC,
            format: FORMAT.to_le_bytes(),
            head_bytes: (size_of::<Head>() as u32).to_le_bytes(),
            file_bytes: [0; 8],
            next_number: self.next_number.to_le_bytes(),
            requests_from: self.requests_from.to_le_bytes(),
            filters: (self.filters.len() as u64).to_le_bytes(),
            removed: (self.removed.len() as u64).to_le_bytes(),
            zeros: [0; 8],
        };
        let mut entries = Vec::new();
        for (name, stored) in &self.filters {
            let mut entry = Entry::zeroed();
            for (to, from) in entry.name.iter_mut().zip(name.as_str().bytes()) {
                *to = from;
            }
            entry.id = stored.id.0.to_le_bytes();
            entry.rebuilds = stored.rebuilds.map_or(0, |FilterId(id)| id).to_le_bytes();
            entry.log_from = stored.log_from.to_le_bytes();
            entry.files = (stored.files.len() as u64).to_le_bytes();
            entries.extend_from_slice(bytemuck::bytes_of(&entry));
            entries.extend(stored.files.iter().flat_map(|file| file.to_le_bytes()));
        }
        entries.extend(self.removed.iter().flat_map(|file| file.to_le_bytes()));
        let bytes = size_of::<Head>() + entries.len() + 8;
        let head = Head {
            file_bytes: (bytes as u64).to_le_bytes(),
            ..head
        };
        let mut bytes = bytemuck::bytes_of(&head).to_vec();
        bytes.extend(entries);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes and verifies a manifest.
    ///
    /// # Errors
    ///
    /// [`StoreError::NewerFormat`], or [`StoreError::Damaged`] with the field.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Self, StoreError> {
        let damaged = |what: &str, expected: String, found: String| StoreError::Damaged {
            path: path.to_owned(),
            what: what.to_owned(),
            expected,
            found,
        };
        let too_short = || {
            let least = size_of::<Head>() + 8;
            let expected = format!("at least {least} bytes");
            damaged(
                "length of the file",
                expected,
                format!("{} bytes", bytes.len()),
            )
        };
        let (covered, stored) = bytes.split_last_chunk().ok_or_else(too_short)?;
        let (head, left) = covered
            .split_at_checked(size_of::<Head>())
            .ok_or_else(too_short)?;
        let head: Head = bytemuck::pod_read_unaligned(head);
        if head.magic != MAGIC {
            let text = |magic: [u8; 8]| magic.escape_ascii().to_string();
            return Err(damaged("magic", text(MAGIC), text(head.magic)));
        }
        format::check(path, 1..=FORMAT, u32::from_le_bytes(head.format))?;
        let (computed, stored) = (xxh3_64(covered), u64::from_le_bytes(*stored));
        if computed != stored {
            let hex = |checksum: u64| format!("{checksum:016x}");
            return Err(damaged("checksum", hex(computed), hex(stored)));
        }
        // The checksum is right, so these bytes were written. The rest checks that this program
        // understands them.
        let (next_number, requests_from) = (
            u64::from_le_bytes(head.next_number),
            u64::from_le_bytes(head.requests_from),
        );
        for (what, number) in [
            ("next number", next_number),
            ("first segment with requests", requests_from),
        ] {
            if number > MAX_NUMBER {
                let expected = format!("at most {MAX_NUMBER}");
                return Err(damaged(what, expected, number.to_string()));
            }
        }
        let removed = u64::from_le_bytes(head.removed);
        let entries = left.len() as u64;
        let of_removed = removed
            .checked_mul(8)
            .filter(|&bytes| bytes <= entries)
            .and_then(|bytes| left.split_at_checked((entries - bytes) as usize));
        let Some((mut left, removed)) = of_removed else {
            let expected = format!("at most {}", entries / 8);
            return Err(damaged(
                "number of removed files",
                expected,
                removed.to_string(),
            ));
        };
        let (mut filters, mut numbers) = (BTreeMap::new(), BTreeSet::new());
        while !left.is_empty() {
            let Some((name, stored)) = decode_entry(&mut left) else {
                let expected = "a filter's entry".to_owned();
                return Err(damaged(
                    "entries",
                    expected,
                    format!("{} bytes", left.len()),
                ));
            };
            for &number in stored.files.iter().chain([&stored.id.0]) {
                let is_given = (1..next_number).contains(&number);
                if !is_given || !numbers.insert(number) {
                    let what = format!("numbers of the filter {name}");
                    let expected = format!("numbers from 1 on, below {next_number}, each once");
                    return Err(damaged(&what, expected, number.to_string()));
                }
            }
            if let Some(FilterId(of)) = stored.rebuilds
                && (of >= next_number || of == stored.id.0)
            {
                let what = format!("filter that {name} rebuilds");
                let expected = format!("another, with an id below {next_number}");
                return Err(damaged(&what, expected, of.to_string()));
            }
            if filters.contains_key(&name) {
                let expected = "each name once".to_owned();
                return Err(damaged("names of the filters", expected, name.to_string()));
            }
            filters.insert(name, stored);
        }
        let listed = removed.as_chunks().0.iter().copied();
        let mut removed = BTreeSet::new();
        for number in listed.map(u64::from_le_bytes) {
            let is_known = numbers.contains(&number) || !removed.insert(number);
            if number >= next_number || is_known {
                let expected =
                    format!("numbers below {next_number}, each once, that no filter has");
                return Err(damaged("removed files", expected, number.to_string()));
            }
        }
        let known = [
            (
                "length of the header",
                size_of::<Head>() as u64,
                u32::from_le_bytes(head.head_bytes).into(),
            ),
            (
                "length of the file",
                bytes.len() as u64,
                u64::from_le_bytes(head.file_bytes),
            ),
            (
                "number of filters",
                filters.len() as u64,
                u64::from_le_bytes(head.filters),
            ),
        ];
        for (what, expected, found) in known {
            if expected != found {
                return Err(damaged(what, expected.to_string(), found.to_string()));
            }
        }
        Ok(Self {
            next_number,
            requests_from,
            filters,
            removed,
        })
    }
}

fn decode_entry(left: &mut &[u8]) -> Option<(FilterName, StoredFilter)> {
    let (entry, rest) = left.split_at_checked(size_of::<Entry>())?;
    let entry: Entry = bytemuck::pod_read_unaligned(entry);
    let count = usize::try_from(u64::from_le_bytes(entry.files)).ok()?;
    let (files, rest) = rest.split_at_checked(count.checked_mul(8)?)?;
    let files = files.as_chunks().0.iter().copied().map(u64::from_le_bytes);
    let name = str::from_utf8(&entry.name).ok()?.trim_end_matches('\0');
    let name = name.parse().ok()?;
    let (log_from, rebuilds) = (
        u64::from_le_bytes(entry.log_from),
        u64::from_le_bytes(entry.rebuilds),
    );
    let stored = StoredFilter {
        id: FilterId(u64::from_le_bytes(entry.id)),
        log_from: (log_from <= MAX_NUMBER).then_some(log_from)?,
        rebuilds: (rebuilds > 0).then_some(FilterId(rebuilds)),
        files: files.collect(),
    };
    *left = rest;
    Some((name, stored))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    fn example() -> Manifest {
        let stored = |id, files: &[u64]| StoredFilter {
            id: FilterId(id),
            log_from: id % 3,
            rebuilds: (id == 3).then_some(FilterId(1)),
            files: files.to_vec(),
        };
        let filters = [
            ("..".parse().unwrap(), stored(3, &[4, 7, 9])),
            ("default".parse().unwrap(), stored(1, &[2])),
            ("x".repeat(128).parse().unwrap(), stored(10, &[11])),
        ];
        Manifest {
            next_number: 12,
            requests_from: 3,
            filters: filters.into(),
            removed: [5, 8].into(),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for manifest in [Manifest::default(), example()] {
            let bytes = manifest.encode();
            let read = Manifest::decode(&bytes, Path::new("MANIFEST")).unwrap();
            assert_eq!(read, manifest);
        }
    }

    #[test]
    fn damage_anywhere_is_found() {
        let good = example().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = Manifest::decode(&bad, Path::new("MANIFEST")).unwrap_err();
            assert!(error.to_string().contains("MANIFEST"), "{error}");
        }
        for bytes in 0..good.len() {
            Manifest::decode(&good[..bytes], Path::new("MANIFEST")).unwrap_err();
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut bytes = example().encode();
        bytes[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        let file = Path::new("data/MANIFEST");
        let error = Manifest::decode(&bytes, file).unwrap_err();
        error.assert_is_of_newer_format(file, FORMAT);
    }

    /// Two filters with one name, and a header that counts them as one.
    #[test]
    fn a_name_that_comes_twice_is_refused() {
        let manifest = Manifest {
            removed: [].into(),
            ..example()
        };
        let mut bytes = manifest.encode();
        bytes.truncate(bytes.len() - 8);
        let first = size_of::<Head>() + offset_of!(Entry, name);
        let second = first + size_of::<Entry>() + 3 * 8;
        bytes.copy_within(first..first + FilterName::MAX_BYTES, second);
        let count = offset_of!(Head, filters);
        bytes[count..count + 8].copy_from_slice(&2_u64.to_le_bytes());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        let error = Manifest::decode(&bytes, Path::new("MANIFEST")).unwrap_err();
        assert!(
            error.to_string().contains("names of the filters"),
            "{error}"
        );
    }

    /// Bad numbers with the right checksum.
    #[test]
    fn well_formed_nonsense_is_refused() {
        let manifest = example();
        let bytes = manifest.encode().len();
        for (at, value) in [
            (offset_of!(Head, format), 0_u64),
            (offset_of!(Head, file_bytes), 1),
            (offset_of!(Head, filters), 4),
            (size_of::<Head>() + offset_of!(Entry, files), 1 << 40),
            (size_of::<Head>() + offset_of!(Entry, files), 2),
            // Numbers that the server counts on from.
            (offset_of!(Head, next_number), u64::MAX),
            (offset_of!(Head, requests_from), u64::MAX),
            (size_of::<Head>() + offset_of!(Entry, log_from), u64::MAX),
            // A number twice, one that is never given, and one that has not been given yet.
            (size_of::<Head>() + offset_of!(Entry, id), 4),
            (size_of::<Head>() + offset_of!(Entry, id), 0),
            (size_of::<Head>() + offset_of!(Entry, id), 12),
            (size_of::<Head>() + size_of::<Entry>(), 0),
            (size_of::<Head>() + size_of::<Entry>(), 12),
            // A filter that rebuilds itself, and one that rebuilds a filter that does not exist
            // yet.
            (size_of::<Head>() + offset_of!(Entry, rebuilds), 3),
            (size_of::<Head>() + offset_of!(Entry, rebuilds), 12),
            // Removed files: more than there is room for, one that a filter has, one that is listed
            // twice, and one not given yet.
            (offset_of!(Head, removed), u64::MAX),
            (offset_of!(Head, removed), 1 << 61),
            (bytes - 16, 2),
            (bytes - 16, 5),
            (bytes - 16, 12),
        ] {
            let mut bytes = manifest.encode();
            bytes.truncate(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            bytes.extend(xxh3_64(&bytes).to_le_bytes());
            let error = Manifest::decode(&bytes, Path::new("MANIFEST")).unwrap_err();
            assert!(error.to_string().contains("is damaged"), "{at}: {error}");
        }
    }
}
