//! Standard streams that are closed, read-only or full, or that are also the input.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use seenset_fake::Service;

/// Runs a command line of the shell, in a directory, where `$s` is the program.
fn shell(service: &Service, directory: &Path, line: &str) -> Output {
    Command::new("sh")
        .args(["-c", line])
        .env("s", env!("CARGO_BIN_EXE_seenset"))
        .env("SEENSET_SERVER", service.address.to_string())
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A failure of a command line with an exit code, and a part of its message.
#[track_caller]
fn fails(service: &Service, directory: &Path, line: &str, code: i32, message: &str) {
    let output = shell(service, directory, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {stderr}");
    assert!(stderr.contains(message), "{line}: {stderr}");
}

/// Down to the fewest with which a program can load its libraries.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_files_that_can_be_open_are_an_error() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    for limit in [4, 6, 8, 12, 31] {
        let line = format!("ulimit -n {limit}; exec \"$s\" health");
        let message = format!("the limit of open files is {limit}");
        fails(&service, directory.path(), &line, 1, &message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_output_ends_every_command_before_it_does_anything() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    fs::write(directory.join("f"), "a\nb\n").unwrap();
    for command in [
        "dedup f",
        "load f",
        "match f",
        "add a",
        "query a",
        "query-and-add a",
        "remove a",
        "store",
        "explain a",
        "filter create a -n 100",
        "filter get a",
        "filter list",
        "filter delete a",
        "filter rebuild a f",
        "filter export java -",
        "filter import java f --format guava",
        "bench --duration 1s",
        "health",
        "plan -n 100",
        "--help",
        "help load",
        "--version",
    ] {
        let line = format!("\"$s\" {command} >&-");
        let message = "seenset: standard output is closed: nothing was done";
        fails(&service, directory, &line, 1, message);
        let line = format!("\"$s\" {command} 1<f");
        let message = "seenset: standard output is not open for writing: nothing was done";
        fails(&service, directory, &line, 1, message);
    }
    let calls = service
        .state
        .calls
        .load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!((calls, service.state.key_count()), (0, 0));
    assert!(service.state.filters.lock().unwrap().is_empty());
    // To discard it is another thing.
    let output = shell(&service, directory, "\"$s\" dedup f >/dev/null");
    assert_eq!(
        (output.status.code(), service.state.key_count()),
        (Some(0), 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_input_is_no_empty_one() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    fs::write(directory.join("f"), "a\nb\n").unwrap();
    for command in [
        "dedup",
        "dedup f -",
        "load -",
        "load /dev/stdin",
        "match",
        "filter rebuild f -",
        "filter import f - --format guava",
    ] {
        service.state.filters.lock().unwrap().insert("f".to_owned());
        let line = format!("\"$s\" {command} <&-");
        fails(&service, directory, &line, 1, "standard input is closed");
        let line = format!("\"$s\" {command} 0>g");
        let message = "standard input is not open for reading";
        fails(&service, directory, &line, 1, message);
        let line = format!("\"$s\" {command} </");
        fails(&service, directory, &line, 1, "s a directory");
    }
    assert_eq!(service.state.key_count(), 0);
    // A command that does not read standard input can have it closed. An empty input is empty.
    let output = shell(&service, directory, "\"$s\" dedup f <&-");
    assert_eq!(output.stdout, b"a\nb\n");
    let output = shell(&service, directory, "\"$s\" dedup </dev/null");
    assert_eq!(output.status.code(), Some(0));
    // Nobody reads the messages, but the exit code and the output stay the same.
    let output = shell(&service, directory, "\"$s\" dedup f - 2>&- <f");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b""[..]));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_full_output_is_an_error_of_every_command() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    fs::write(directory.join("f"), "a\nb\n").unwrap();
    service
        .state
        .filters
        .lock()
        .unwrap()
        .insert("java".to_owned());
    for command in [
        "dedup f",
        "load f",
        "match f",
        "match --count f",
        "add a",
        "query a",
        "query-and-add a",
        "filter create a -n 100",
        "filter get a",
        "filter list",
        "filter export java -",
        "filter export java /dev/fd/3 3>/dev/full",
        "plan -n 100",
        "--help",
        "help load",
        "--version",
    ] {
        let line = format!("\"$s\" {command} >/dev/full");
        fails(&service, directory, &line, 1, "No space left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_is_the_output_is_refused() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    let file = directory.join("f");
    let content = "a\nb\n";
    fs::write(&file, content).unwrap();
    fs::hard_link(&file, directory.join("hard")).unwrap();
    std::os::unix::fs::symlink("f", directory.join("soft")).unwrap();
    for line in [
        "match -v f >>f",
        "match -v <f >>f",
        "match --count f >>f",
        "dedup f >>f",
        "dedup - <f >>f",
        "dedup soft >>f",
        "dedup f >>hard",
        "dedup f 1<>f",
        "dedup <f 1<>f",
        "dedup /dev/stdin <f >>f",
        "dedup /dev/fd/3 3<f >>f",
        "load f >>soft",
        "load f >>f",
        "filter rebuild f f >>f",
        "filter import f f --format guava >>f",
        "filter import f - --format guava <f >>f",
    ] {
        service.state.filters.lock().unwrap().insert("f".to_owned());
        let message = "is the input and standard output as well";
        fails(&service, directory, &format!("\"$s\" {line}"), 2, message);
        assert_eq!(fs::read_to_string(&file).unwrap(), content, "{line}");
    }
    // Messages are lines too.
    let output = shell(&service, directory, "\"$s\" load f 2>>f");
    assert_eq!(output.status.code(), Some(2));
    let said = fs::read_to_string(&file).unwrap();
    assert!(
        said.contains("is the input and standard error as well"),
        "{said}"
    );
    assert_eq!(service.state.key_count(), 0);

    // Files that only look like the output are read: other files, pipes, devices.
    fs::write(&file, content).unwrap();
    for (line, expected) in [
        ("\"$s\" dedup f >>g; cat g", content),
        ("cat f | \"$s\" match | cat", content),
        ("\"$s\" dedup </dev/null >/dev/null", ""),
        ("\"$s\" load - </dev/null 1<>/dev/null 2>&1", ""),
    ] {
        let output = shell(&service, directory, line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            expected,
            "{line}"
        );
    }
}
