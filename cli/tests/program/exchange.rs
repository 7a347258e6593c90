//! Files of other programs, by way of the client and the program.

use std::{
    fs,
    io::{self, Read},
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    thread,
};

use seenset_client::{
    Error,
    v1::{FileFormat, ImportFilterRequest},
};

use crate::run::{Run, run, run_with_input};
use seenset_fake::Service;

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
    assert_eq!(import(&format!("{path}.none")).code, Some(1));
}

fn is_fifo(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().file_type().is_fifo()
}

/// Returns the lengths that an import announced and sent.
fn imported(output: &str) -> (u64, u64) {
    let filter: serde_json::Value = serde_json::from_str(output).unwrap();
    let length = |name: &str| filter.get(name).unwrap().as_u64().unwrap();
    (length("version"), length("memory_bytes"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_regular_file_is_written_to_and_read_from() {
    let service = Service::start().await;
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let path = fifo.to_str().unwrap();
    let reader = thread::spawn({
        let fifo = fifo.clone();
        move || fs::read_to_string(fifo).unwrap()
    });
    let export = format!("filter export java {path}");
    let Run { code, stdout, .. } = run(&service, &words(&export));
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "exported\tjava\t4 bytes\n")
    );
    assert_eq!(reader.join().unwrap(), "java");
    assert!(is_fifo(&fifo));

    // A file whose length is known only at its end, and that is longer than one message.
    let content = vec![7; 100_000];
    let writer = thread::spawn({
        let (fifo, content) = (fifo.clone(), content.clone());
        move || fs::write(fifo, content).unwrap()
    });
    let import = format!("filter import other {path} --format=guava --output=json");
    let Run { code, stdout, .. } = run(&service, &words(&import));
    writer.join().unwrap();
    assert_eq!((code, imported(&stdout)), (Some(0), (100_000, 100_000)));
    for input in ["-", "/dev/stdin"] {
        let import = format!("filter import other {input} --format=guava --output=json");
        let Run { code, stdout, .. } = run_with_input(&service, &words(&import), content.clone());
        assert_eq!((code, imported(&stdout)), (Some(0), (100_000, 100_000)));
    }

    // These names lead to standard output. /dev/stdout is not used, because root could replace it.
    let link = dir.path().join("link");
    symlink("/proc/self/fd/1", &link).unwrap();
    for target in ["-", "/dev/fd/1", link.to_str().unwrap()] {
        let export = format!("filter export java {target}");
        let Run {
            code,
            stdout,
            stderr,
        } = run(&service, &words(&export));
        assert_eq!((code, stdout.as_str()), (Some(0), "java"), "{target}");
        assert_eq!(stderr, "exported\tjava\t4 bytes\n", "{target}");
    }
    let export = format!("filter export java {}", dir.path().display());
    let Run { code, stderr, .. } = run(&service, &words(&export));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("Is a directory"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_followed_and_a_file_keeps_its_mode_and_owner() {
    let service = Service::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    fs::write(&file, "before, and longer").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    // Only root can give a file away.
    let is_root = fs::metadata(&file).unwrap().uid() == 0;
    if is_root {
        chown(&file, Some(1234), Some(2345)).unwrap();
    }
    let before = fs::metadata(&file).unwrap();
    symlink("file", &link).unwrap();
    let export = |path: &Path| {
        let line = format!("filter export java {}", path.display());
        let Run { code, stderr, .. } = run(&service, &words(&line));
        assert_eq!(code, Some(0), "{stderr}");
    };
    export(&link);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
    assert_eq!(fs::read(&file).unwrap(), b"java");
    let after = fs::metadata(&file).unwrap();
    let identity = |data: &fs::Metadata| (data.mode(), data.uid(), data.gid());
    assert_eq!(identity(&after), identity(&before));
    assert_ne!(after.ino(), before.ino(), "it was not replaced at once");

    // A file with another name is the same file under both.
    let hard = dir.path().join("hard");
    fs::hard_link(&file, &hard).unwrap();
    fs::write(&file, "before").unwrap();
    export(&file);
    assert_eq!(fs::read(&hard).unwrap(), b"java");

    // One link leads to the next, and the last to a file that is not there yet.
    let (dangling, deeper) = (dir.path().join("dangling"), dir.path().join("sub/new"));
    fs::create_dir(dir.path().join("sub")).unwrap();
    symlink(dir.path().join("sub/next"), &dangling).unwrap();
    symlink("../sub/new", dir.path().join("sub/next")).unwrap();
    export(&dangling);
    assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
    assert_eq!(fs::read(&deeper).unwrap(), b"java");
    assert_eq!(fs::read_dir(dir.path().join("sub")).unwrap().count(), 2);

    symlink("loop", dir.path().join("loop")).unwrap();
    let line = format!("filter export java {}/loop", dir.path().display());
    let Run { code, stderr, .. } = run(&service, &words(&line));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("symbolic links"), "{stderr}");
}

/// Runs the program as a user who is not root, because permissions apply to that user.
fn as_user(service: &Service, dir: &Path, line: &str) -> Run {
    let program = dir.join("seenset");
    if !program.exists() {
        // Another process copies it. If this one did, a process that another test forks meanwhile
        // could hold the copy open for writing, and a file open for writing cannot be executed.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_seenset"))
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
    }
    let mut command = Command::new(program);
    if fs::metadata(dir).unwrap().uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    let output = command
        .args(words(line))
        .env("SEENSET_SERVER", service.address.to_string())
        .output()
        .unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_directory_is_closed_is_written_in_place() {
    let service = Service::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let (file, sealed) = (dir.path().join("file"), dir.path().join("sealed"));
    fs::write(&file, "before, and longer").unwrap();
    fs::write(&sealed, "before").unwrap();
    symlink("file", dir.path().join("link")).unwrap();
    let line = |filter, name| format!("filter export {filter} {}/{name}", dir.path().display());
    // The program comes into the directory before it is closed.
    mode(dir.path(), 0o755);
    as_user(&service, dir.path(), "--version");
    mode(&file, 0o666);
    mode(&sealed, 0o444);
    mode(dir.path(), 0o555);

    let Run { code, stderr, .. } = as_user(&service, dir.path(), &line("java", "link"));
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(fs::read(&file).unwrap(), b"java");
    // If the end is missing, the data so far is there, and the exit code says that it is
    // incomplete.
    let Run { code, stderr, .. } = as_user(&service, dir.path(), &line("short", "file"));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("6 bytes and 5 came"), "{stderr}");
    let Run { code, .. } = as_user(&service, dir.path(), &line("java", "new"));
    assert_eq!(code, Some(1));
    // A protected file stays as it is, even if it could be replaced.
    mode(dir.path(), 0o777);
    let Run { code, stderr, .. } = as_user(&service, dir.path(), &line("java", "sealed"));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("Permission denied"), "{stderr}");
    assert_eq!(fs::read(&sealed).unwrap(), b"before");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_is_written_to_and_its_file_not_replaced() {
    let service = Service::start().await;
    let dir = tempfile::tempdir().unwrap();
    let shell = |line: &str| {
        let output = Command::new("sh")
            .args(["-c", line])
            .env("s", env!("CARGO_BIN_EXE_seenset"))
            .env("SEENSET_SERVER", service.address.to_string())
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let line = "exec 3<>three; \"$s\" filter export java /dev/fd/3 >/dev/null; cat <&3";
    assert_eq!(shell(line), "java");
    // This holds also if the file has no name any more. /proc has a name for it all the same.
    let line = "exec 3<>gone; rm gone; \"$s\" filter export java /dev/fd/3 >/dev/null; cat <&3; ls";
    assert_eq!(shell(line), "javathree\n");
    let line = "\"$s\" filter export java /dev/fd/1 >out; cat out";
    assert_eq!(shell(line), "java");
    let line = "\"$s\" filter export java out >>out; cat out";
    assert_eq!(shell(line), "javajava");
}
