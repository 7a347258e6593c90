//! Captures the log in tests.

#![allow(clippy::unwrap_used, reason = "a test that fails says so")]

use std::{
    io::{self, Write},
    sync::Arc,
};

use parking_lot::Mutex;

/// Returns the lines that are logged while `log` runs.
pub(crate) fn lines(log: impl FnOnce()) -> Vec<String> {
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, log);
    let text = String::from_utf8(written.0.lock().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}
