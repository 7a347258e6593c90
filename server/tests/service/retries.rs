//! Promise 3 over TCP: a call that is repeated with its `request_id` gets its first answer, in any
//! form.

use std::path::Path;

use seenset_proto::v1::{
    AddBatchRequest, AddRequest, GetFilterRequest, QueryAndAddBatchRequest, QueryAndAddRequest,
    QueryAndAddStreamRequest, QueryBatchRequest, StoreRequest,
    dedup_service_client::DedupServiceClient,
};
use tokio_stream::StreamExt;
use tonic::{Code, Status, transport::Channel};

use crate::common::program::{Program, Signal};

/// Each mode answers in its own way. Calls for one key have two ways, because `snapshot` has no log
/// to wait for.
const DURABILITIES: [&str; 3] = ["always", "interval", "snapshot"];

/// The forms of the rpc that reports which keys it has added first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A call for each key.
    Single,
    /// A call for each group of keys.
    Batch,
    /// A stream of all groups.
    Stream,
}

const FORMS: [Form; 3] = [Form::Single, Form::Batch, Form::Stream];

fn start(data_dir: &Path, durability: &str) -> Program {
    // So exact that no key is seen by accident.
    let exact = [
        "--capacity=100000",
        "--false-positive-rate=1e-9",
        "--store-interval=0",
    ];
    let durability = format!("--durability={durability}");
    Program::start(data_dir, &[&exact[..], &[&durability]].concat())
}

fn kill(mut program: Program) {
    program.signal(Signal::KILL);
    assert_eq!(program.exit_code(), None);
}

/// A caller with one connection.
struct Caller(DedupServiceClient<Channel>);

impl Caller {
    async fn of(program: &Program) -> Self {
        let (dedup, _) = program.connect().await;
        Self(dedup)
    }

    /// Requests keys in groups, all under one id, and returns which of them have been seen.
    async fn ask(&mut self, form: Form, id: &str, groups: &[&[&str]]) -> Result<Vec<bool>, Status> {
        let Self(dedup) = self;
        let groups = groups.iter().map(|keys| crate::keys(keys));
        let request_id = crate::key(id);
        let mut seen = Vec::new();
        match form {
            Form::Single => {
                for key in groups.flatten() {
                    let request = QueryAndAddRequest {
                        key,
                        request_id: request_id.clone(),
                        ..Default::default()
                    };
                    let answer = dedup.query_and_add(request).await?;
                    seen.extend(answer.into_inner().seen);
                }
            }
            Form::Batch => {
                for keys in groups {
                    let request = QueryAndAddBatchRequest {
                        keys,
                        request_id: request_id.clone(),
                        ..Default::default()
                    };
                    let answer = dedup.query_and_add_batch(request).await?;
                    seen.extend(answer.into_inner().seen);
                }
            }
            Form::Stream => {
                let requests: Vec<_> = groups
                    .map(|keys| QueryAndAddStreamRequest {
                        keys,
                        request_id: request_id.clone(),
                        ..Default::default()
                    })
                    .collect();
                let answers = dedup.query_and_add_stream(tokio_stream::iter(requests));
                let mut answers = answers.await?.into_inner();
                while let Some(answer) = answers.next().await {
                    seen.extend(answer?.seen);
                }
            }
        }
        Ok(seen)
    }

    /// Adds keys, one by one or all at once.
    async fn add(&mut self, at_once: bool, id: &str, keys: &[&str]) -> Result<(), Status> {
        let Self(dedup) = self;
        let request_id = crate::key(id);
        if at_once {
            let request = AddBatchRequest {
                keys: crate::keys(keys),
                request_id,
                ..Default::default()
            };
            dedup.add_batch(request).await?;
            return Ok(());
        }
        for key in crate::keys(keys) {
            let request = AddRequest {
                key,
                request_id: request_id.clone(),
                ..Default::default()
            };
            dedup.add(request).await?;
        }
        Ok(())
    }

    async fn query(&mut self, keys: &[&str]) -> Vec<bool> {
        let Self(dedup) = self;
        let request = QueryBatchRequest {
            keys: crate::keys(keys),
            ..Default::default()
        };
        dedup.query_batch(request).await.unwrap().into_inner().seen
    }

    async fn store(&mut self) {
        let Self(dedup) = self;
        dedup.store(StoreRequest::default()).await.unwrap();
    }
}

/// Returns keys for one form. The second key belongs to another caller. The last is so long that no
/// call with it can wait to be answered late.
fn keys_of(form: Form) -> [String; 4] {
    let long = "x".repeat(2000);
    ["a", "old", "b", &long].map(|key| format!("{form:?} {key}"))
}

/// Repeats the call that was made in one form in all forms, unchanged and regrouped. Other callers
/// then request its keys.
async fn assert_remembered(caller: &mut Caller, form: Form, when: &str) {
    let (id, keys) = (format!("{form:?}"), keys_of(form));
    let [a, old, b, long] = keys.each_ref().map(String::as_str);
    let groupings: [&[&[&str]]; 4] = [
        &[&[a, old, b, long]],
        &[&[a], &[old], &[b], &[long]],
        &[&[long, b], &[old, a]],
        // A repeated answer can be repeated again.
        &[&[old], &[b, a, long], &[a, b]],
    ];
    for again in FORMS {
        for grouping in groupings {
            let keys = grouping.concat();
            let parts = grouping.len();
            let case = format!("{form:?} by {again:?} {parts} parts, {when}");
            let first: Vec<bool> = keys.iter().map(|&key| key == old).collect();
            let seen = caller.ask(again, &id, grouping).await.unwrap();
            assert_eq!(seen, first, "{case}");
            for other in ["", "other", &format!("{id} "), &id[1..]] {
                let seen = caller.ask(again, other, grouping).await.unwrap();
                assert!(seen.iter().all(|&seen| seen), "{other:?}: {case}");
            }
        }
    }
}

#[tokio::test]
async fn a_repeated_call_gets_its_first_answer_in_whichever_form_also_from_the_next_server() {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().unwrap();
        let program = start(dir.path(), durability);
        let mut caller = Caller::of(&program).await;
        for form in FORMS {
            let (id, keys) = (format!("{form:?}"), keys_of(form));
            let [a, old, b, long] = keys.each_ref().map(String::as_str);
            let seen = caller.ask(form, "before", &[&[old]]).await.unwrap();
            assert_eq!(seen, [false]);
            let seen = caller.ask(form, &id, &[&[a, old, b, long]]).await.unwrap();
            assert_eq!(seen, [false, true, false, false], "{form:?}, {durability}");
            assert_remembered(&mut caller, form, durability).await;
        }
        if durability == "snapshot" {
            // After this the keys are stored, but not which requests have added them first.
            caller.store().await;
            kill(program);
            let program = start(dir.path(), durability);
            let mut caller = Caller::of(&program).await;
            for form in FORMS {
                let (id, keys) = (format!("{form:?}"), keys_of(form));
                let keys = keys.each_ref().map(String::as_str);
                assert_eq!(caller.ask(form, &id, &[&keys]).await.unwrap(), [true; 4]);
            }
            continue;
        }
        kill(program);
        let program = start(dir.path(), durability);
        let mut caller = Caller::of(&program).await;
        for form in FORMS {
            assert_remembered(&mut caller, form, &format!("{durability}, killed")).await;
        }
        caller.store().await;
        kill(program);
        let program = start(dir.path(), durability);
        let mut caller = Caller::of(&program).await;
        for form in FORMS {
            assert_remembered(&mut caller, form, &format!("{durability}, stored, killed")).await;
        }
    }
}

/// Each message of a stream is a call of its own. Ids are not mixed up, not even if a batch is so
/// large that another thread answers it.
#[tokio::test]
async fn each_message_of_a_stream_has_the_answers_of_its_own_id() {
    let names = |letter: &str, count| {
        let names = (0..count).map(|number| format!("{letter}{number}"));
        names.collect::<Vec<String>>()
    };
    let (small, large, nameless) = (names("s", 3), names("l", 20_000), names("n", 3));
    let message = |id: &str, keys: &[String]| QueryAndAddStreamRequest {
        keys: keys.to_vec(),
        request_id: crate::key(id),
        ..Default::default()
    };
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().unwrap();
        let program = start(dir.path(), durability);
        let (mut dedup, _) = program.connect().await;
        for (ids, expected) in [
            (["small", "large", ""], [false, false, false]),
            (["small", "large", ""], [false, false, true]),
            (["large", "small", "small"], [true; 3]),
            (["", "", "large"], [true; 3]),
            (["", "large", ""], [true, false, true]),
        ] {
            let groups = [&small, &large, &nameless];
            let messages: Vec<_> = ids
                .iter()
                .zip(groups)
                .map(|(id, keys)| message(id, keys))
                .collect();
            let answers = dedup.query_and_add_stream(tokio_stream::iter(messages));
            let answers: Vec<_> = answers.await.unwrap().into_inner().collect().await;
            assert_eq!(answers.len(), groups.len());
            for ((answer, keys), expected) in answers.into_iter().zip(groups).zip(expected) {
                let seen = answer.unwrap().seen;
                assert_eq!(seen.len(), keys.len());
                let case = format!("{} as one of {ids:?}, {durability}", keys[0]);
                assert!(seen.iter().all(|&seen| seen == expected), "{case}");
            }
        }
    }
}

/// A repeated add changes nothing, and is acknowledged like the first time. It has added nothing
/// first: all callers see its keys.
#[tokio::test]
async fn a_repeated_add_is_acknowledged_and_wins_nothing() {
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().unwrap();
        let mut program = start(dir.path(), durability);
        let mut caller = Caller::of(&program).await;
        assert_eq!(
            caller.ask(Form::Single, "won", &[&["won"]]).await.unwrap(),
            [false]
        );
        for round in 0..3 {
            for (at_once, id, keys) in [
                (false, "add", ["a", "b"]),
                (true, "add batch", ["c", "d"]),
                // The same ids, with the other form of the call.
                (true, "add", ["b", "a"]),
                (false, "add batch", ["d", "c"]),
                // The call that has added the key first keeps this answer.
                (round % 2 == 0, "won", ["won", "a"]),
            ] {
                caller.add(at_once, id, &keys).await.unwrap();
                assert_eq!(caller.query(&keys).await, [true; 2]);
                for form in FORMS {
                    let seen = caller.ask(form, id, &[&keys]).await.unwrap();
                    assert_eq!(
                        seen,
                        [id != "won", true],
                        "{id:?} by {form:?}, {durability}"
                    );
                }
            }
            let (_, mut filters) = program.connect().await;
            let shown = filters.get_filter(GetFilterRequest::default()).await;
            assert_eq!(shown.unwrap().into_inner().filter.unwrap().keys_added, 5);
            if durability != "snapshot" {
                kill(program);
                program = start(dir.path(), durability);
                caller = Caller::of(&program).await;
            }
        }
    }
}

/// Every rpc that has an id reads it, even if it has no other effect there.
#[tokio::test]
async fn an_id_that_is_too_long_is_refused_by_each_rpc_and_adds_nothing() {
    let (longest, long) = ("i".repeat(128), "i".repeat(129));
    for durability in DURABILITIES {
        let dir = tempfile::tempdir().unwrap();
        let program = start(dir.path(), durability);
        let mut caller = Caller::of(&program).await;
        let keys = ["a", "b"];
        let mut refused = Vec::new();
        for form in FORMS {
            refused.push((
                format!("{form:?}"),
                caller.ask(form, &long, &[&keys]).await.map(drop),
            ));
        }
        refused.push((crate::key("Add"), caller.add(false, &long, &keys).await));
        refused.push((crate::key("AddBatch"), caller.add(true, &long, &keys).await));
        for (rpc, refused) in refused {
            let status = refused.expect_err(&rpc);
            assert_eq!(status.code(), Code::InvalidArgument, "{rpc}, {durability}");
            let message = status.message();
            assert!(message.contains("request_id has 129 bytes"), "{message}");
            assert!(message.contains("at most 128"), "{message}");
        }
        assert_eq!(caller.query(&keys).await, [false; 2]);

        for form in FORMS {
            let seen = caller.ask(form, &longest, &[&keys]).await.unwrap();
            assert_eq!(seen, [false; 2], "{form:?}, {durability}");
        }
        caller.add(false, &longest, &keys).await.unwrap();
        caller.add(true, &longest, &keys).await.unwrap();
    }
}
