//! Tests that the simulated disk is as bad as a real one can be, and no worse.

use super::*;

fn written(disk: &SimulatedDisk, name: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = disk.create(name).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn found_after_cuts(disk: &SimulatedDisk, name: &str) -> Vec<Option<Vec<u8>>> {
    let mut found: Vec<_> = (0..200)
        .map(|seed| disk.cut(&mut Rng::with_seed(seed)).contents(name))
        .collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn a_cut_keeps_what_was_synced_and_no_more_for_certain() {
    let disk = SimulatedDisk::default();
    let file = written(&disk, "file", b"old");
    file.sync().unwrap();
    // The bytes are there, but not the name.
    assert_eq!(found_after_cuts(&disk, "file"), [None, Some(b"old".into())]);
    disk.sync().unwrap();
    assert_eq!(found_after_cuts(&disk, "file"), [Some(b"old".into())]);

    file.write_all_at(b"new", 0).unwrap();
    let either = [Some(b"new".into()), Some(b"old".into())];
    assert_eq!(found_after_cuts(&disk, "file"), either);
    file.sync().unwrap();
    assert_eq!(found_after_cuts(&disk, "file"), [Some(b"new".into())]);

    disk.rename("file", "other").unwrap();
    assert_eq!(
        found_after_cuts(&disk, "other"),
        [None, Some(b"new".into())]
    );
    assert_eq!(disk.kill().contents("other"), Some(b"new".into()));
    assert_eq!(disk.kill().contents("file"), None);
}

#[test]
fn a_cut_tears_writes_and_reorders_them() {
    let disk = SimulatedDisk::default();
    let file = written(&disk, "file", &[0; 4 * SECTOR_BYTES]);
    file.sync().unwrap();
    disk.sync().unwrap();
    file.write_all_at(&[1; 2 * SECTOR_BYTES], 0).unwrap();
    file.write_all_at(&[2; 2 * SECTOR_BYTES], 2 * SECTOR_BYTES as u64)
        .unwrap();
    let found = found_after_cuts(&disk, "file");
    let sectors = found.iter().flatten().map(|bytes| {
        let sectors = bytes.chunks(SECTOR_BYTES);
        sectors.map(|sector| sector[0]).collect::<Vec<_>>()
    });
    let sectors: Vec<_> = sectors.collect();
    for expected in [[0, 0, 0, 0], [1, 1, 2, 2], [0, 0, 2, 2], [0, 1, 0, 0]] {
        assert!(sectors.contains(&expected.to_vec()), "{expected:?}");
    }
}

#[test]
fn a_sync_that_failed_is_not_made_good_by_the_next() {
    let disk = SimulatedDisk::default();
    let file = written(&disk, "file", b"old");
    file.sync().unwrap();
    disk.sync().unwrap();
    file.write_all_at(b"new", 0).unwrap();
    disk.fail(disk.calls(), 1, Fault::Error(io::ErrorKind::Other));
    file.sync().unwrap_err();
    file.sync().unwrap();
    file.write_all_at(b"more", 3).unwrap();
    assert!(found_after_cuts(&disk, "file").contains(&Some(b"old".into())));
}

#[test]
fn faults_come_when_they_are_due() {
    let disk = SimulatedDisk::default();
    let file = written(&disk, "file", b"");
    disk.fail(disk.calls() + 1, 1, Fault::Short);
    assert_eq!(file.write_at(b"1234", 0).unwrap(), 4);
    assert_eq!(file.write_at(b"1234", 4).unwrap(), 2);
    disk.fail(disk.calls(), 2, Fault::Error(io::ErrorKind::Interrupted));
    file.write_all_at(b"34", 6).unwrap();
    assert_eq!(disk.contents("file").unwrap(), b"12341234");
    disk.fail(
        disk.calls(),
        u64::MAX,
        Fault::Error(io::ErrorKind::Interrupted),
    );
    let interrupted = file.write_all_at(b"56", 8).unwrap_err();
    assert_eq!(interrupted.kind(), io::ErrorKind::Interrupted);
    disk.heal();
    disk.limit(Some(9));
    let full = file.write_at(b"56", 8).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    disk.fail(disk.calls(), 1, Fault::PowerCut);
    file.sync().unwrap_err();
    disk.names().unwrap_err();
}
