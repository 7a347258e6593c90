//! Files of other programs, by way of the client and the program.

use std::{
    fs,
    io::{self, Read},
};

use seenset_client::{
    Error,
    v1::{FileFormat, ImportFilterRequest},
};

use crate::{
    run::{Run, run},
    support::Service,
};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// A file that cannot be read to its end.
struct Broken(u32);

impl Read for Broken {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::NotSeekable)?;
        bytes.fill(1);
        Ok(bytes.len())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_and_one_that_is_cut_short_are_told_of() {
    let service = Service::start().await;
    let client = service.client().await;
    let import = || ImportFilterRequest {
        name: "java".to_owned(),
        format: FileFormat::Guava.into(),
        ..ImportFilterRequest::default()
    };
    let made = client.import_filter(import(), &b"some bytes"[..]).await;
    assert_eq!(made.unwrap().name, "java");
    for pieces in [0, 1, 100] {
        let failed = client.import_filter(import(), Broken(pieces)).await;
        let failed = failed.unwrap_err();
        assert!(matches!(failed, Error::File { .. }), "{failed}");
        assert!(failed.changed_nothing());
    }

    let mut export = client.export_filter("java").await.unwrap();
    assert_eq!(export.next().await.unwrap(), Some(b"java".to_vec()));
    assert_eq!(export.next().await.unwrap(), None);
    let mut export = client.export_filter("short").await.unwrap();
    assert!(export.next().await.unwrap().is_some());
    let failed = export.next().await.unwrap_err();
    assert!(
        matches!(
            failed,
            Error::Incomplete {
                expected_bytes: 6,
                actual_bytes: 5
            }
        ),
        "{failed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_replaced_when_all_of_the_filter_has_come() {
    let service = Service::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("java.bloom");
    let path = file.to_str().unwrap();
    fs::write(&file, "before").unwrap();
    let files = || fs::read_dir(dir.path()).unwrap().count();

    let Run { code, stderr, .. } = run(&service, &words(&format!("filter export short {path}")));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("6 bytes and 5 came"), "{stderr}");
    assert_eq!(fs::read(&file).unwrap(), b"before");
    assert_eq!(files(), 1);

    let Run { code, stdout, .. } = run(&service, &words(&format!("filter export java {path}")));
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "exported\tjava\t4 bytes\n")
    );
    assert_eq!(fs::read(&file).unwrap(), b"java");
    assert_eq!(files(), 1);
    let Run { stdout, .. } = run(&service, &words("filter export java -"));
    assert_eq!(stdout, "java");

    let import = |file: &str| {
        let line = format!("filter import other {file} --format=guava");
        run(&service, &words(&line))
    };
    let Run { code, stdout, .. } = import(path);
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("other"), "{stdout}");
    let Run { code, stderr, .. } = import("/dev/null");
    assert_eq!(code, Some(2));
    assert!(stderr.contains("no file of a known length"), "{stderr}");
    assert_eq!(import(&format!("{path}.none")).code, Some(1));
}
