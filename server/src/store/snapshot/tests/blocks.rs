//! Tests that blocks of zeros are not stored, and are read as zeros.

use super::*;

/// The words of one shard of 256 KiB and a bit, which has a page of 64 bytes at its end.
const BITS: u64 = (256 << 13) + 512;

/// Returns a filter of one shard with some words set, its file, and the words.
fn sparse(at: &[usize]) -> (SimulatedDisk, DataDirectory, String, Vec<u64>) {
    let disk = SimulatedDisk::default();
    let directory = directory(&disk);
    let mut header = header(&directory, Layout::Blocked, BITS);
    header.number = directory.new_number();
    let mut stored = vec![0; header.spec.body.shape().shard_words()];
    at.iter().for_each(|&word| stored[word] = 1 << (word % 64));
    let written = directory.write_snapshot(&header, &[0], |_, words| {
        words.copy_from_slice(&stored);
        Ok(ShardState {
            version: 1,
            keys_added: 1,
            bits_set: at.len() as u64,
            cleared: 0,
        })
    });
    let files = SnapshotFiles::default().with(&written.unwrap());
    directory
        .set_filter(&header.name, header.filter, &files, 0, None)
        .unwrap();
    let number = files.numbers().next().unwrap();
    let file = names::snapshot(&header.name, number);
    (disk, directory, file, stored)
}

fn words(directory: &DataDirectory, before: u64) -> Result<Vec<u64>, StoreError> {
    let reader = directory.read_filter(&"urls".parse().unwrap())?.unwrap();
    let mut words = vec![before; reader.header().spec.body.shape().shard_words()];
    reader.read_shard(0, &mut words, &mut Err)?;
    Ok(words)
}

#[test]
fn few_bits_take_few_blocks() {
    let last = (BITS / 64) as usize - 1;
    for (at, blocks) in [
        (&[0][..], 1),
        (&[511, 512], 2),
        (&[8 * 512, 16 * 512, 63 * 512], 3),
        // The last page has one block, of 64 bytes.
        (&[0, last], 1),
        (
            &Vec::from_iter((0..=64).map(|block| (512 * block).min(last))),
            64,
        ),
    ] {
        let (disk, directory, file, stored) = sparse(at);
        let bytes = disk.contents(&file).unwrap();
        let least = blocks * 4096 + 384;
        // The header, the table and the block at the end.
        assert!(
            (least..least + 1300).contains(&bytes.len()),
            "{at:?}: {}",
            bytes.len()
        );
        // The former contents of the memory do not matter.
        for before in [0, u64::MAX] {
            assert_eq!(words(&directory, before).unwrap(), stored, "{at:?}");
        }
    }
}

#[test]
fn damage_of_a_sparse_file_is_noticed() {
    let (disk, directory, file, _) = sparse(&[3, 20 * 512 + 5]);
    let good = disk.contents(&file).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        disk.put(&file, bytes);
        let error = words(&directory, 0).expect_err(what).to_string();
        assert!(error.contains(&file), "{what}: {error}");
    };
    let table = 384 + 2 * 4096;
    let places = (0..400)
        .chain((400..table).step_by(97))
        .chain(table..good.len());
    for place in places {
        let mut bytes = good.clone();
        bytes[place] ^= 1 << (place % 8);
        refused(&bytes, &format!("byte {place} changed"));
    }
    for length in (0..good.len()).step_by(61) {
        refused(&good[..length], &format!("cut to {length} bytes"));
    }
    refused(&[good.as_slice(), b"x"].concat(), "one byte more");
    disk.put(&file, &good);
    words(&directory, 0).unwrap();
}

/// Numbers that no seenset writes, with right checksums.
#[test]
fn blocks_that_there_are_not_are_refused() {
    let (disk, directory, file, _) = sparse(&[3, 20 * 512 + 5]);
    let good = disk.contents(&file).unwrap();
    let table = 384 + 2 * 4096;
    let blocks = table + 40;
    // The bits of four pages with 16 blocks each, and of one page with one block.
    for (at, value, expected) in [
        (blocks, 0x0003_u16, "length of the file"),
        (blocks, 0x0002, "checksum of page 0 of shard 0"),
        (blocks, 0x0000, "shard table"),
        (blocks + 8, 0x0002, "blocks of page 4 of shard 0"),
        (blocks + 10, 0x0001, "blocks of shard 0"),
    ] {
        let mut bytes = good.clone();
        bytes[at..][..2].copy_from_slice(&value.to_le_bytes());
        let end = bytes.len() - 8;
        let sum = checksum(&bytes[table..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&sum);
        disk.put(&file, &bytes);
        let error = words(&directory, 0).expect_err(expected).to_string();
        assert!(error.contains(expected), "{value:#x} at {at}: {error}");
    }
}
