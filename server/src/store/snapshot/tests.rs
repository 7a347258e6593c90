//! Tests that a filter is read as it was stored, and that a damaged one is not read at all.

mod ages;
mod arrays;
mod blocks;
mod layers;
mod shards;

use std::{io, ops::Range, sync::Arc, time::SystemTime};

use fastrand::Rng;

use super::{header::at, *};
use crate::{
    filter::{
        hash::{HashFunction, Secret},
        profile::KeyProfile,
        shape::MAX_SHARD_BYTES,
        spec::{BodySpec, FilterSpec, Kind, Layout, SpecRequest},
    },
    store::{
        DataDirectory, Disk, FilterId, FilterName, StoreError,
        disk::simulated::{Fault, SimulatedDisk},
        names,
    },
};

/// The bytes of a header that its checksum covers.
const COVERED: Range<usize> = 0..at::CHECKSUM;

fn directory(disk: &SimulatedDisk) -> DataDirectory {
    DataDirectory::on(Arc::new(disk.clone())).unwrap()
}

/// Returns the header of a filter in no more shards than its bits need.
fn header(directory: &DataDirectory, layout: Layout, bit_count: u64) -> SnapshotHeader {
    let shard_count = bit_count.div_ceil(MAX_SHARD_BYTES * 8);
    let request = SpecRequest {
        layout,
        bit_count: Some(bit_count),
        false_positive_rate: None,
        hash_function: HashFunction::Xxh3_128,
        ..SpecRequest::new(1000, 0.5)
    };
    let spec = request.resolve().unwrap();
    SnapshotHeader {
        filter: FilterId(directory.new_number()),
        number: 0,
        name: "urls".parse().unwrap(),
        spec: in_shards(spec, shard_count),
        secret: Secret::new([7; 16]),
        version: 42,
        create_time: SystemTime::UNIX_EPOCH,
        store_time: SystemTime::now(),
    }
}

/// Returns the same spec with another number of shards.
pub fn in_shards(mut spec: FilterSpec, shard_count: u64) -> FilterSpec {
    let (BodySpec::Blocked(dimensions) | BodySpec::Classic(dimensions)) = &mut spec.body else {
        panic!("{spec:?}");
    };
    let shard_bits = dimensions.bit_count().div_ceil(shard_count);
    dimensions.shard_count = shard_count;
    dimensions.shard_bits = shard_bits.next_multiple_of(512);
    spec
}

/// Stores some shards of a filter, all full of one word.
fn store(
    directory: &DataDirectory,
    header: &SnapshotHeader,
    files: &SnapshotFiles,
    shards: &[usize],
    word: u64,
) -> Result<SnapshotFiles, StoreError> {
    let header = SnapshotHeader {
        number: directory.new_number(),
        ..header.clone()
    };
    let written = directory.write_snapshot(&header, shards, |_, words| {
        words.fill(word);
        Ok(ShardState {
            version: word,
            keys_added: u64::from(word > 0),
            bits_set: u64::from(word.count_ones()) * words.len() as u64,
            cleared: 0,
        })
    })?;
    let files = files.with(&written);
    directory.set_filter(&header.name, header.filter, &files, 0, None)?;
    Ok(files)
}

/// Returns the word that each shard is full of; 0 for a shard without bits.
fn read(directory: &DataDirectory, name: &str) -> Result<Option<Vec<u64>>, StoreError> {
    let Some(reader) = directory.read_filter(&name.parse::<FilterName>().unwrap())? else {
        return Ok(None);
    };
    let mut found = vec![0; reader.header().spec.body.shape().shard_count()];
    let mut words = vec![0; reader.header().spec.body.shape().shard_words()];
    for shard in reader.shards() {
        let state = reader.read_shard(shard, &mut words, &mut Err)?;
        assert!(words.iter().all(|&word| word == words[0]));
        assert_eq!((state.version, state.keys_added), (words[0], 1));
        found[shard] = words[0];
    }
    Ok(Some(found))
}

#[test]
fn the_newest_copy_of_each_shard_is_read() {
    for layout in Layout::OWN {
        let disk = SimulatedDisk::default();
        let directory = directory(&disk);
        let header = header(&directory, layout, 100_000_000);
        let stored = |files: &SnapshotFiles, shards: &[usize], word| {
            store(&directory, &header, files, shards, word).unwrap()
        };
        assert_eq!(read(&directory, "urls").unwrap(), None);
        let files = stored(&SnapshotFiles::default(), &[], 1);
        assert_eq!(read(&directory, "urls").unwrap(), Some(vec![0; 3]));
        let files = stored(&files, &[0, 1, 2], 1);
        // The empty file is dropped: it has no shards.
        assert_eq!(files.numbers().count(), 1);
        let files = stored(&files, &[1], 2);
        assert_eq!(read(&directory, "urls").unwrap(), Some(vec![1, 2, 1]));
        let files = stored(&files, &[1, 2], 3);
        let expected = Some(vec![1, 3, 3]);
        assert_eq!(read(&directory, "urls").unwrap(), expected);
        assert_eq!(files.numbers().count(), 2);

        // Reads it like the next start: the needed files exist, and no others.
        let again = super::tests::directory(&disk);
        assert_eq!(again.filters().len(), 1);
        assert_eq!(read(&again, "urls").unwrap(), expected);
        let names = disk.names().unwrap();
        assert_eq!(names.len(), 3, "{names:?}");
        let reader = again.read_filter(&header.name).unwrap().unwrap();
        store(&again, &header, &reader.files(), &[0], 4).unwrap();
        assert_eq!(read(&again, "urls").unwrap(), Some(vec![4, 3, 3]));

        again.remove_filter(&header.name).unwrap();
        assert_eq!(read(&again, "urls").unwrap(), None);
        assert_eq!(disk.names().unwrap(), ["MANIFEST"]);
    }
}

/// Returns a filter of one small shard, and its file.
fn victim(key_profile: Option<KeyProfile>) -> (SimulatedDisk, DataDirectory, String, Vec<u8>) {
    victim_of(Kind::Plain, key_profile)
}

fn victim_of(
    kind: Kind,
    key_profile: Option<KeyProfile>,
) -> (SimulatedDisk, DataDirectory, String, Vec<u8>) {
    victim_with(&spec_of(kind, Layout::Blocked, key_profile))
}

fn spec_of(kind: Kind, layout: Layout, key_profile: Option<KeyProfile>) -> FilterSpec {
    let plain = header(&directory(&SimulatedDisk::default()), layout, 1024).spec;
    let body = match (kind, &plain.body) {
        (Kind::Counting, BodySpec::Blocked(dimensions)) => BodySpec::Counting(*dimensions),
        (Kind::Aging(aging), BodySpec::Blocked(dimensions)) => BodySpec::Aging(*dimensions, aging),
        (Kind::Scaling(_), _) => layers::spec(kind).body,
        (_, body) => body.clone(),
    };
    FilterSpec {
        key_profile,
        body,
        ..plain
    }
}

/// Returns one spec of each kind and each layout, with a profile or without. The shards are small.
pub(in crate::store) fn specs() -> [FilterSpec; 9] {
    [
        spec_of(Kind::Plain, Layout::Blocked, None),
        spec_of(Kind::Plain, Layout::Blocked, profile()),
        spec_of(Kind::Plain, Layout::Classic, None),
        arrays::guava(),
        arrays::of_guava(Layout::GuavaMitz32),
        arrays::chain(),
        spec_of(Kind::Counting, Layout::Blocked, None),
        spec_of(ages::kind(), Layout::Blocked, None),
        spec_of(layers::kind(), Layout::Blocked, profile()),
    ]
}

fn victim_with(spec: &FilterSpec) -> (SimulatedDisk, DataDirectory, String, Vec<u8>) {
    let disk = SimulatedDisk::default();
    let directory = directory(&disk);
    let mut header = header(&directory, Layout::Blocked, 1024);
    header.spec = spec.clone();
    let files = store(&directory, &header, &SnapshotFiles::default(), &[0], 1).unwrap();
    let number = files.numbers().next().unwrap();
    let file = names::snapshot(&header.name, number);
    let good = disk.contents(&file).unwrap();
    (disk, directory, file, good)
}

fn profile() -> Option<KeyProfile> {
    let names = ["utm_*", "sid"].map(str::to_owned);
    Some(KeyProfile::new(KeyProfile::NAME, true, &names).unwrap())
}

/// The end of the extension of a file with [`profile`]: after its name, two numbers, two names with
/// their lengths, and the checksum.
const EXTENSION_END: usize = 384 + 32 + 4 + 4 + (4 + 3) + (4 + 5) + 8;

fn refusal(directory: &DataDirectory, file: &str, what: &str) -> String {
    let message = read(directory, "urls").expect_err(what).to_string();
    assert!(message.contains(file), "{what}: {message}");
    message
}

/// Every single byte counts. A change of any byte is noticed, and so is a cut at any place. The
/// error names the file.
#[test]
fn damage_anywhere_is_noticed() {
    for spec in specs() {
        damage_is_noticed(victim_with(&spec));
    }
}

fn damage_is_noticed(victim: (SimulatedDisk, DataDirectory, String, Vec<u8>)) {
    let (disk, directory, file, good) = victim;
    let refused = |bytes: &[u8], what: &str| {
        disk.put(&file, bytes);
        refusal(&directory, &file, what);
    };
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused(&bytes, &format!("bit {bit} changed"));
    }
    for position in 0..good.len() {
        let mut bytes = good.clone();
        // A different byte with the same number of set bits.
        bytes[position] = good[position].rotate_left(1);
        if bytes != good {
            refused(&bytes, &format!("byte {position} rotated"));
        }
    }
    for length in 0..good.len() {
        refused(&good[..length], &format!("cut to {length} bytes"));
    }
    refused(&[good.as_slice(), b"x"].concat(), "one byte more");
    disk.put(&file, &good);
    read(&directory, "urls").unwrap();
}

/// Numbers that no seenset writes, with right checksums: from a faulty program, or from somebody
/// who tests what a snapshot can make the server do.
#[test]
fn well_formed_nonsense_is_refused_by_name() {
    let (disk, directory, file, good) = victim(None);
    let nan = f64::NAN.to_bits();
    let (one, much) = (1.0_f64.to_bits(), u64::MAX);
    let table = 384 + 128;
    let cases: &[(usize, &[u8], &str)] = &[
        (
            at::FORMAT,
            &0_u32.to_le_bytes(),
            "format: expected 1, found 0",
        ),
        (
            at::FILE_BYTES,
            &much.to_le_bytes(),
            "expected 18446744073709551615",
        ),
        (
            at::VERSION,
            &much.to_le_bytes(),
            "version: expected at most",
        ),
        (
            at::CAPACITY,
            &0_u64.to_le_bytes(),
            "capacity: expected at least 1",
        ),
        (at::RATE, &nan.to_le_bytes(), "rate: expected above 0"),
        (at::RATE, &one.to_le_bytes(), "rate: expected above 0"),
        (at::RATE, &0_u64.to_le_bytes(), "rate: expected above 0"),
        (
            at::NUMBERS,
            &0_u64.to_le_bytes(),
            "bit_count: expected 1 to",
        ),
        (at::NUMBERS, &much.to_le_bytes(), "bit_count: expected 1 to"),
        (
            at::NUMBERS,
            &2_u64.to_le_bytes(),
            "shard count: expected one",
        ),
        (
            at::NUMBERS + 8,
            &0_u64.to_le_bytes(),
            "bit_count: expected 1 to",
        ),
        (
            at::NUMBERS + 8,
            &much.to_le_bytes(),
            "bit_count: expected 1 to",
        ),
        (
            at::NUMBERS + 8,
            &1025_u64.to_le_bytes(),
            "bits per shard: expected 1536, found 1025",
        ),
        (
            at::NUMBERS + 8,
            &2048_u64.to_le_bytes(),
            "length of the file: expected 704 bytes, found 576",
        ),
        (
            at::NUMBERS + 16,
            &0_u64.to_le_bytes(),
            "hash_count: expected 1 to 64",
        ),
        (
            at::NUMBERS + 16,
            &65_u64.to_le_bytes(),
            "hash_count: expected 1 to 64",
        ),
        (
            at::NUMBERS + 24,
            &1_u64.to_le_bytes(),
            "numbers of the body: expected 0",
        ),
        (
            at::BODY,
            &0_u32.to_le_bytes(),
            "body: expected 1 to 10, found 0",
        ),
        (
            at::BODY,
            &11_u32.to_le_bytes(),
            "body: expected 1 to 10, found 11",
        ),
        (
            at::HASH_FUNCTION,
            b"md5\0",
            "hash function: expected a known one",
        ),
        (at::NAME, b"../x", "filter name: expected a filter name"),
        (
            at::NAME,
            b"urlz",
            "expected urls, after the file, found urlz",
        ),
        (
            at::FILTER,
            &9_u64.to_le_bytes(),
            "checksum of page 0 of shard 0",
        ),
        (
            at::NUMBER,
            &9_u64.to_le_bytes(),
            "checksum of page 0 of shard 0",
        ),
        (
            at::TABLE_BYTES,
            &much.to_le_bytes(),
            "length of the file: expected at",
        ),
        (
            at::TABLE_BYTES,
            &8_u64.to_le_bytes(),
            "checksum of the shard table",
        ),
        (table, &1_u64.to_le_bytes(), "shard number: expected 0 to 0"),
        (table + 8, &much.to_le_bytes(), "version of shard 0"),
        (table + 16, &17_u64.to_le_bytes(), "counts of shard 0"),
        (table + 24, &much.to_le_bytes(), "counts of shard 0"),
        (table + 24, &15_u64.to_le_bytes(), "expected 15, found 16"),
        (table + 24, &0_u64.to_le_bytes(), "counts of shard 0"),
        (
            table + 32,
            &1_u64.to_le_bytes(),
            "epoch of shard 0: expected at most 0",
        ),
    ];
    for (offset, value, expected) in cases {
        let mut bytes = good.clone();
        bytes[*offset..][..value.len()].copy_from_slice(value);
        for covered in [COVERED, table..good.len() - 8] {
            let sum = checksum(&bytes[covered.clone()]).to_le_bytes();
            bytes[covered.end..][..8].copy_from_slice(&sum);
        }
        disk.put(&file, &bytes);
        let message = match *offset {
            // The identity of the file is compared before its pages are read.
            at::FILTER | at::NUMBER => {
                let message = refusal(&directory, &file, expected);
                assert!(message.contains("identity"), "{message}");
                continue;
            }
            _ => refusal(&directory, &file, expected),
        };
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

/// Numbers in an extension that no seenset writes, with right checksums.
#[test]
fn well_formed_nonsense_in_an_extension_is_refused_by_name() {
    let (disk, directory, file, good) = victim(profile());
    let much = u32::MAX.to_le_bytes();
    let long = |bytes: u64| bytes.to_le_bytes();
    // The length of an extension with the most layers and the longest profile.
    let longest = 5696;
    let cases: &[(usize, &[u8], &str)] = &[
        (
            at::EXTENSION_BYTES,
            &long(0),
            "length of the file: expected",
        ),
        (at::EXTENSION_BYTES, &long(63), "checksum of the extension"),
        (at::EXTENSION_BYTES, &long(65), "checksum of the extension"),
        (at::EXTENSION_BYTES, &long(7), "checksum of the extension"),
        (
            at::EXTENSION_BYTES,
            &long(longest),
            "length of the file: expected at least",
        ),
        (
            at::EXTENSION_BYTES,
            &long(longest + 1),
            "length of the extension: expected at most 5696 bytes, found 5697",
        ),
        (
            at::EXTENSION_BYTES,
            &long(u64::MAX),
            "length of the extension: expected at most",
        ),
        (
            384,
            b"url-v2",
            "key profile: expected a known one, found name is \"url-v2\"",
        ),
        (384, b"\xff", "key profile: expected a known one"),
        (
            416,
            &2_u32.to_le_bytes(),
            "flags of the key profile: expected 0 or 1, found 2",
        ),
        (
            420,
            &1_u32.to_le_bytes(),
            "extension: expected one key profile",
        ),
        (
            420,
            &3_u32.to_le_bytes(),
            "extension: expected one key profile",
        ),
        (420, &much, "extension: expected one key profile"),
        (
            424,
            &2_u32.to_le_bytes(),
            "extension: expected one key profile",
        ),
        (424, &much, "extension: expected one key profile"),
        (428, b"a=b", "drop_parameters has \"a=b\""),
    ];
    for (offset, value, expected) in cases {
        let mut bytes = good.clone();
        bytes[*offset..][..value.len()].copy_from_slice(value);
        for covered in [COVERED, 384..EXTENSION_END - 8] {
            let sum = checksum(&bytes[covered.clone()]).to_le_bytes();
            bytes[covered.end..][..8].copy_from_slice(&sum);
        }
        disk.put(&file, &bytes);
        let message = refusal(&directory, &file, expected);
        assert!(message.contains(expected), "{message}, not {expected}");
    }
}

/// The header that docs/format.md describes.
#[test]
fn the_fields_of_a_header_have_their_places() {
    use at::{
        BODY, CAPACITY, CHECKSUM, CREATE_TIME, EXTENSION_BYTES, FILE_BYTES, FILTER, HASH_FUNCTION,
        NAME, NUMBER, NUMBERS, RATE, TABLE_BYTES, VERSION, ZEROS,
    };
    assert_eq!([at::FORMAT, FILE_BYTES, EXTENSION_BYTES], [8, 16, 24]);
    assert_eq!([TABLE_BYTES, FILTER, NUMBER, VERSION], [32, 40, 48, 56]);
    assert_eq!([CREATE_TIME, NAME, CAPACITY, RATE], [64, 80, 208, 216]);
    assert_eq!([HASH_FUNCTION, BODY, NUMBERS], [224, 272, 280]);
    assert_eq!([ZEROS, CHECKSUM, SnapshotHeader::BYTES], [328, 376, 384]);
}

#[test]
fn a_profile_is_read_as_it_was_written_and_makes_the_only_difference() {
    let (_, directory, _, plain) = victim(None);
    let read = |directory: &DataDirectory| {
        let reader = directory.read_filter(&"urls".parse().unwrap()).unwrap();
        reader.unwrap().header().spec.key_profile.clone()
    };
    assert_eq!(read(&directory), None);
    let (_, directory, _, with) = victim(profile());
    assert_eq!(read(&directory), profile());
    assert_eq!(plain[384..], with[EXTENSION_END..]);
    let names: Vec<String> = (0..64).map(|i| format!("{i:064}")).collect();
    let largest = KeyProfile::new(KeyProfile::NAME, true, &names).unwrap();
    let (_, directory, _, with) = victim(Some(largest.clone()));
    assert_eq!(read(&directory), Some(largest));
    assert_eq!(with.len(), plain.len() + 4400);
}

/// The files of one filter must agree on the key profile.
#[test]
fn another_profile_in_one_of_the_files_is_refused() {
    let disk = SimulatedDisk::default();
    let directory = directory(&disk);
    let mut header = header(&directory, Layout::Blocked, 100_000_000);
    header.spec.key_profile = profile();
    let files = store(&directory, &header, &SnapshotFiles::default(), &[0, 1], 1).unwrap();
    let files = store(&directory, &header, &files, &[1], 1).unwrap();
    read(&directory, "urls").unwrap();
    header.spec.key_profile = None;
    store(&directory, &header, &files, &[0], 1).unwrap();
    let message = refusal(&directory, "urls", "another profile");
    assert!(message.contains("spec and secret"), "{message}");
}

#[test]
fn a_newer_format_is_named() {
    let (disk, directory, file, mut bytes) = victim(None);
    bytes[at::FORMAT..][..4].copy_from_slice(&(FORMAT + 1).to_le_bytes());
    disk.put(&file, &bytes);
    let error = read(&directory, "urls").unwrap_err();
    error.assert_is_of_newer_format(&disk.path().join(&file), FORMAT);
}

/// Files, and pages in files, that are whole but in the wrong place.
#[test]
fn what_is_in_the_place_of_another_is_found() {
    let disk = SimulatedDisk::default();
    let directory = directory(&disk);
    let urls = header(&directory, Layout::Blocked, 100_000_000);
    let files = store(&directory, &urls, &SnapshotFiles::default(), &[0, 1, 2], 1).unwrap();
    let files = store(&directory, &urls, &files, &[0, 1], 1).unwrap();
    let other = SnapshotHeader {
        name: "other".parse().unwrap(),
        ..header(&directory, Layout::Blocked, 100_000_000)
    };
    let others = store(&directory, &other, &SnapshotFiles::default(), &[0, 1, 2], 1).unwrap();
    let names: Vec<String> = files
        .numbers()
        .map(|number| names::snapshot(&urls.name, number))
        .chain(
            others
                .numbers()
                .map(|number| names::snapshot(&other.name, number)),
        )
        .collect();
    let good: Vec<Vec<u8>> = names
        .iter()
        .map(|name| disk.contents(name).unwrap())
        .collect();
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        disk.put(&names[first], &good[second]);
        disk.put(&names[second], &good[first]);
        refusal(&directory, "urls", "swapped files");
        disk.put(&names[first], &good[first]);
        disk.put(&names[second], &good[second]);
    }
    read(&directory, "urls").unwrap();

    // The newest file's shards are equal, and so are the pages of a shard.
    let shard_bytes = (urls.spec.body.shape().shard_bits() / 8) as usize;
    let page_bytes = 64 << 10;
    let table = |file: &[u8]| file.len() - 8 - 2 * (32 + 8 * shard_bytes.div_ceil(page_bytes));
    let row = 32 + 8 * shard_bytes.div_ceil(page_bytes);
    let newest = good[1].clone();
    let sums = |file: &[u8], shard: usize, page: usize| {
        let at = table(file) + shard * row + 32 + page * 8;
        at..at + 8
    };
    let places = [
        sums(&newest, 0, 0),
        sums(&newest, 0, 1),
        sums(&newest, 1, 0),
    ];
    for pair in [(0, 1), (0, 2), (1, 2)] {
        let (one, another) = (places[pair.0].clone(), places[pair.1].clone());
        assert_ne!(newest[one], newest[another], "equal pages, equal checksums");
    }
}

/// A well-formed header that asks for 128 TiB. The length of the file shows the error before
/// anything is allocated.
#[test]
fn a_huge_claim_allocates_nothing() {
    let (disk, directory, file, _) = victim(None);
    let mut header = header(&directory, Layout::Blocked, 1024);
    if let BodySpec::Blocked(dimensions) = &mut header.spec.body {
        dimensions.shard_bits = 1 << 50;
    }
    for table_bytes in [1 << 60, u64::MAX, 0] {
        disk.put(&file, &header.encode(384, table_bytes, 0));
        refusal(&directory, &file, "a huge claim");
    }
}

/// Stores filters, changes and removes them, until a call fails. Returns, for each filter, the
/// words that its shards can be full of.
fn work(
    disk: &SimulatedDisk,
    shards: usize,
    chance: &mut Rng,
) -> Vec<(String, Vec<Option<Vec<u64>>>)> {
    let names = ["a", "b"];
    let mut may_be: Vec<_> = names.map(|name| (name.to_owned(), vec![None])).into();
    let Ok(directory) = DataDirectory::on(Arc::new(disk.clone())) else {
        return may_be;
    };
    let bit_count = if shards == 1 {
        1000
    } else {
        25_000_000 * shards as u64
    };
    let mut filters = [const { None }; 2];
    // A fault is tried at each call of each change: the time grows with the square of `changes`.
    let changes = if shards == 1 { 11 } else { 6 };
    for word in 1..=changes {
        let which = chance.u64(..2) as usize;
        let (filter, may_be) = (&mut filters[which], &mut may_be[which].1);
        let before = may_be.pop().unwrap();
        let (after, done) = match (&mut *filter, chance.u64(..4)) {
            (Some((header, _)), 0) => {
                let header: &SnapshotHeader = header;
                (None, directory.remove_filter(&header.name))
            }
            (filter, _) => {
                let (header, files) = filter.get_or_insert_with(|| {
                    let header = SnapshotHeader {
                        name: names[which].parse().unwrap(),
                        ..header(&directory, Layout::Blocked, bit_count)
                    };
                    (header, SnapshotFiles::default())
                });
                let first = chance.u64(..shards as u64) as usize;
                let some: Vec<usize> = (first..shards).collect();
                let mut words = before.clone().unwrap_or(vec![0; shards]);
                some.iter().for_each(|&shard| words[shard] = word);
                let done = store(&directory, header, files, &some, word);
                (Some(words), done.map(|now| *files = now))
            }
        };
        if after.is_none() {
            *filter = None;
        }
        if done.is_err() {
            *may_be = vec![before, after];
            break;
        }
        *may_be = vec![after];
    }
    may_be
}

/// After any failure at any call and any power cut, each filter is found in the last stored state,
/// or in the state that was being stored when the call failed.
#[test]
fn a_filter_is_as_before_or_as_after() {
    let mut cases = 0;
    for seed in 0..20 {
        // Several shards have some MiB each. They come last, for a bug shows sooner with one.
        let shards = if seed == 19 { 3 } else { 1 };
        let disk = SimulatedDisk::default();
        work(&disk, shards, &mut Rng::with_seed(seed));
        for call in 0..disk.calls() {
            let faults = [
                Fault::PowerCut,
                Fault::Error(io::ErrorKind::Other),
                Fault::Error(io::ErrorKind::StorageFull),
                Fault::Short,
            ];
            for fault in faults.into_iter().take(if shards > 1 { 1 } else { 4 }) {
                let (disk, mut chance) = (SimulatedDisk::default(), Rng::with_seed(seed));
                disk.fail(call, 1, fault);
                let may_be = work(&disk, shards, &mut chance);
                for found in [disk.cut(&mut chance), disk.kill()] {
                    let directory = directory(&found);
                    for (name, may_be) in &may_be {
                        let found = read(&directory, name).unwrap();
                        let case = format!("seed {seed}, call {call}, {fault:?}: {found:?}");
                        assert!(may_be.contains(&found), "{case}, not one of {may_be:?}");
                    }
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 2000, "{cases}");
}
