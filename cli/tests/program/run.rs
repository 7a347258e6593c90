//! The program `seenset`, run as a user runs it.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
};

use seenset_fake::Service;

pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn command(service: &Service, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seenset"));
    command
        .args(args)
        .env("SEENSET_SERVER", service.address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn run_with_input(service: &Service, args: &[&str], input: impl Into<Vec<u8>>) -> Run {
    let mut child = command(service, args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.into();
    // Whether it is all taken is up to the program.
    let writing = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub fn run(service: &Service, args: &[&str]) -> Run {
    run_with_input(service, args, "")
}
