//! Files of other programs over the wire, and clients that break off.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::stream::{self, Stream};
use seenset_proto::v1::{
    CreateFilterRequest, DeleteFilterRequest, ExportFilterRequest, FileFormat, Filter, FilterSpec,
    GetFilterRequest, ImportFilterRequest, Layout, QueryBatchRequest,
};
use seenset_server::config::Config;
use seenset_server::server::Server;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::common::{config, dedup, filters, spec, start, stop};

const GUAVA: &[u8] = include_bytes!("../../../filter/tests/exchange/guava-mitz-64.bin");
const REDISBLOOM: &[u8] = include_bytes!("../../../filter/tests/exchange/redisbloom-chain.dump");

fn head(name: &str, format: FileFormat, size_bytes: usize) -> ImportFilterRequest {
    ImportFilterRequest {
        name: name.to_owned(),
        format: format.into(),
        size_bytes: size_bytes as u64,
        ..ImportFilterRequest::default()
    }
}

fn data(data: &[u8]) -> ImportFilterRequest {
    ImportFilterRequest {
        data: data.to_vec(),
        ..ImportFilterRequest::default()
    }
}

async fn import(server: &Server, messages: Vec<ImportFilterRequest>) -> Result<Filter, Status> {
    let messages = stream::iter(messages);
    let imported = filters(server).await.import_filter(messages).await?;
    Ok(imported.into_inner().filter.unwrap())
}

async fn export(server: &Server, name: &str) -> Result<Vec<u8>, Status> {
    let name = name.to_owned();
    let request = ExportFilterRequest { name };
    let mut pieces = filters(server)
        .await
        .export_filter(request)
        .await?
        .into_inner();
    let (mut file, mut size_bytes) = (Vec::new(), None);
    while let Some(piece) = pieces.message().await? {
        assert_eq!(size_bytes.is_some(), piece.size_bytes == 0);
        size_bytes = size_bytes.or(Some(piece.size_bytes));
        file.extend(piece.data);
    }
    assert_eq!(size_bytes, Some(file.len() as u64));
    Ok(file)
}

/// A stream of messages that may still come.
struct Coming(mpsc::Receiver<ImportFilterRequest>);

impl Stream for Coming {
    type Item = ImportFilterRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

async fn is_there(server: &Server, name: &str) -> bool {
    let name = name.to_owned();
    let mut admin = filters(server).await;
    admin.get_filter(GetFilterRequest { name }).await.is_ok()
}

#[tokio::test]
async fn files_come_and_go_in_pieces_of_any_size() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    for (size, name) in [(1, "bytes"), (7, "odd"), (GUAVA.len(), "whole")] {
        let first = head(name, FileFormat::Guava, GUAVA.len());
        let messages = GUAVA.chunks(size).map(data);
        let filter = import(&server, [first].into_iter().chain(messages).collect());
        let filter = filter.await.unwrap();
        let spec = filter.spec.unwrap();
        assert_eq!((spec.layout(), spec.hash_count), (Layout::Guava, 7));
        assert_eq!(export(&server, name).await.unwrap(), GUAVA);
    }
    // The first message can contain data.
    let messages = vec![ImportFilterRequest {
        capacity: 77,
        data: REDISBLOOM.to_vec(),
        ..head("redis", FileFormat::Redisbloom, REDISBLOOM.len())
    }];
    let filter = import(&server, messages).await.unwrap();
    assert_eq!(filter.spec.unwrap().capacity, 77);
    let keys: Vec<String> = (0..40)
        .map(|i| format!("https://example.com/{i}"))
        .collect();
    for filter in ["bytes", "redis"] {
        let request = QueryBatchRequest {
            filter: filter.to_owned(),
            keys: keys.clone(),
            ..QueryBatchRequest::default()
        };
        let answer = dedup(&server).await.query_batch(request).await.unwrap();
        assert_eq!(answer.into_inner().seen, [true; 40]);
    }
    let refused = export(&server, "redis").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("guava-mitz-32"), "{refused}");
    assert_eq!(
        export(&server, "none").await.unwrap_err().code(),
        Code::NotFound
    );
    stop(server).await;
}

#[tokio::test]
async fn bad_imports_are_told_apart_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(Config {
        max_memory: "1GiB".parse().unwrap(),
        ..config(dir.path())
    })
    .await;
    let first = |size| head("java", FileFormat::Guava, size);
    let whole = || first(GUAVA.len());
    let enormous = [1, 7, 0x7f, 0xff, 0xff, 0xff];
    let named = |name: &str| ImportFilterRequest {
        name: name.to_owned(),
        ..whole()
    };
    for (messages, code, said) in [
        (vec![], Code::InvalidArgument, "first must give"),
        (
            vec![head("java", FileFormat::Unspecified, 6)],
            Code::InvalidArgument,
            "format is 0",
        ),
        (vec![named(""), data(GUAVA)], Code::InvalidArgument, "name"),
        (
            vec![named("default"), data(GUAVA)],
            Code::AlreadyExists,
            "default",
        ),
        (vec![whole()], Code::InvalidArgument, "cannot read"),
        (
            vec![whole(), data(&[])],
            Code::InvalidArgument,
            "data is empty",
        ),
        (
            vec![whole(), data(&GUAVA[1..])],
            Code::InvalidArgument,
            "strategy is 7",
        ),
        (
            vec![whole(), data(GUAVA), data(&[1])],
            Code::InvalidArgument,
            "size_bytes",
        ),
        (
            vec![first(6), data(&enormous)],
            Code::InvalidArgument,
            "file length",
        ),
        (
            vec![first((1 << 34) - 2), data(&enormous)],
            Code::ResourceExhausted,
            "--max-memory",
        ),
        (
            vec![whole(), data(&[0; 70_000])],
            Code::ResourceExhausted,
            "",
        ),
    ] {
        let refused = import(&server, messages).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(said), "{refused}");
        assert!(!is_there(&server, "java").await, "{refused}");
    }
    // A spec that no new filter can have.
    for (layout, said) in [
        (Layout::Redisbloom, "import a dump"),
        (Layout::Guava, "word_count"),
    ] {
        let spec = FilterSpec {
            layout: layout.into(),
            ..spec(1 << 50, 0.01)
        };
        let request = CreateFilterRequest {
            name: "java".to_owned(),
            spec: Some(spec),
        };
        let refused = filters(&server).await.create_filter(request).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(said), "{refused}");
    }
    import(&server, vec![whole(), data(GUAVA)]).await.unwrap();
    stop(server).await;
}

/// The server has as many imports as it allows at one time. Each of them lacks its last byte.
#[tokio::test]
async fn a_client_that_breaks_off_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(config(dir.path())).await;
    let begin = async |number: usize| {
        let (sender, receiver) = mpsc::channel(4);
        let first = head(&format!("java-{number}"), FileFormat::Guava, GUAVA.len());
        for message in [first, data(&GUAVA[..GUAVA.len() - 1])] {
            sender.send(message).await.unwrap();
        }
        let mut admin = filters(&server).await;
        let messages = Coming(receiver);
        let call = tokio::spawn(async move { admin.import_filter(messages).await });
        (sender, call)
    };
    let mut calls = Vec::new();
    for number in 0..8 {
        calls.push(begin(number).await);
    }
    let one_more = || vec![head("more", FileFormat::Guava, GUAVA.len()), data(GUAVA)];
    // Each import gets its place, or loses it to the additional import and begins again.
    let refused = loop {
        let imported = import(&server, one_more()).await;
        let mut have_begun = true;
        for (number, call) in calls.iter_mut().enumerate() {
            if call.1.is_finished() {
                (*call, have_begun) = (begin(number).await, false);
            }
        }
        match imported {
            Err(refused) if have_begun => break refused,
            Err(_) => {}
            Ok(_) => {
                let name = "more".to_owned();
                let request = DeleteFilterRequest { name };
                filters(&server).await.delete_filter(request).await.unwrap();
            }
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("imports are under way"),
        "{refused}"
    );
    for (_, call) in &calls[..7] {
        call.abort();
    }
    while let Err(refused) = import(&server, one_more()).await {
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for number in 0..8 {
        assert!(!is_there(&server, &format!("java-{number}")).await);
    }
    // The last import is still there when the server stops. It does not hold up the stop.
    let (_sender, call) = calls.pop().unwrap();
    stop(server).await;
    let ended = call.await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");

    let server = start(Config {
        layout: "guava".parse().unwrap(),
        ..config(dir.path())
    })
    .await;
    assert!(is_there(&server, "more").await && !is_there(&server, "java-7").await);
    stop(server).await;
}
