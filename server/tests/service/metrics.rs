//! The metrics of the server, as a monitoring system reads them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use seenset_proto::v1::{Filter, OnFull};
use seenset_server::{
    config::Config,
    server::{self, Server},
};

use crate::{
    common::{config, dedup, filters, spec, start, stop},
    scaling::{create, get, query_and_add, scaling, thousand},
};

fn with_metrics(dir: &std::path::Path) -> Config {
    Config {
        metrics_listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..config(dir)
    }
}

/// Sends a request unchanged and returns the answer.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

async fn request(server: &Server, method: &str, path: &str) -> String {
    let address = server.metrics_addr().unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    let asked = tokio::task::spawn_blocking(move || ask(address, &request));
    asked.await.unwrap()
}

/// Returns the value of a metric of a filter.
fn value(text: &str, name: &str, filter: &str) -> f64 {
    let start = format!("seenset_filter_{name}{{filter=\"{filter}\"}} ");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    let value = lines
        .next()
        .unwrap_or_else(|| panic!("no {name} of {filter}: {text}"));
    assert_eq!(lines.next(), None, "{name} of {filter} twice");
    value.parse().unwrap()
}

/// The metrics show, without a query for each filter, that one takes keys past its capacity.
#[tokio::test]
async fn a_filter_that_degrades_says_so_in_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(with_metrics(dir.path())).await;
    let (mut dedup, mut filters) = (dedup(&server).await, filters(&server).await);
    let asked = scaling(OnFull::Degrade, 0, 0);
    create(&mut filters, "pages", asked).await.unwrap();
    let other = spec(1000, 0.25);
    create(&mut filters, "other", other).await.unwrap();
    for (thousands, is_full) in [(1, false), (6, true)] {
        for number in 0..thousands {
            let answer = query_and_add(&mut dedup, "pages", thousand(number)).await;
            answer.unwrap();
        }
        let Filter {
            spec,
            memory_bytes,
            keys_added,
            fill_ratio,
            predicted_false_positive_rate,
            version,
            layers,
            ..
        } = get(&mut filters, "pages").await;
        let spec = spec.unwrap();
        let text = request(&server, "GET", "/metrics").await;
        let of_pages = |name| value(&text, name, "pages");
        let is_past = predicted_false_positive_rate > spec.false_positive_rate;
        assert_eq!(is_past, is_full);
        for (name, expected) in [
            ("false_positive_rate", spec.false_positive_rate),
            (
                "predicted_false_positive_rate",
                predicted_false_positive_rate,
            ),
            ("fill_ratio", fill_ratio),
            ("capacity_keys", layers.unwrap().max_capacity as f64),
            ("keys_added", keys_added as f64),
            ("is_full", f64::from(u8::from(is_full))),
            ("memory_bytes", memory_bytes as f64),
            ("version", version as f64),
        ] {
            assert_eq!(of_pages(name), expected, "{name}");
        }
        assert_eq!(value(&text, "false_positive_rate", "other"), 0.25);
        assert_eq!(value(&text, "keys_added", "other"), 0.0);
    }
    let text = request(&server, "GET", "/metrics").await;
    let [queries, hits] = ["queries_total", "hits_total"].map(|name| value(&text, name, "pages"));
    assert_eq!(queries, 7000.0);
    assert!(hits >= 1000.0, "{hits}");
    assert!(
        text.contains("content-type: text/plain; version=0.0.4"),
        "{text}"
    );
    assert!(
        text.contains("# TYPE seenset_filter_queries_total counter"),
        "{text}"
    );
    stop(server).await;
}

#[tokio::test]
async fn nothing_else_is_at_that_port() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = server::bind(with_metrics(dir.path())).await.unwrap();
    let address = server.metrics_addr().unwrap();
    let early = request(&server, "GET", "/metrics").await;
    assert!(early.starts_with("HTTP/1.1 503 "), "{early}");
    assert!(early.contains("is restoring its filters"), "{early}");
    server.recover().await.unwrap();
    for (method, path, expected) in [
        ("GET", "/metrics", "200"),
        ("HEAD", "/metrics", "200"),
        ("GET", "/metrics?a=b", "200"),
        ("GET", "/", "404"),
        ("POST", "/metrics", "405"),
    ] {
        let answer = request(&server, method, path).await;
        let status = format!("HTTP/1.1 {expected} ");
        assert!(answer.starts_with(&status), "{method} {path}: {answer}");
        assert_eq!(
            answer.contains("seenset_filter_is_full"),
            expected == "200" && method == "GET"
        );
    }
    let wrong = tokio::task::spawn_blocking(move || ask(address, "GET\r\n\r\n"));
    let wrong = wrong.await.unwrap();
    assert!(wrong.starts_with("HTTP/1.1 400 "), "{wrong}");
    // An open connection does not hold up the stop, nor does it keep the server's resources.
    let idle = TcpStream::connect(address).unwrap();
    stop(server).await;
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
    let server = start(config(dir.path())).await;
    assert_eq!(server.metrics_addr(), None);
    stop(server).await;
}

/// A client that creates filters without end does not make the metrics grow without end.
#[tokio::test]
async fn of_many_filters_the_largest_have_metrics_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(with_metrics(dir.path())).await;
    let mut filters = filters(&server).await;
    for number in 0..205 {
        // The last one is the largest.
        let capacity = if number == 204 { 1_000_000 } else { 10 };
        let name = format!("f{number:03}");
        create(&mut filters, &name, spec(capacity, 0.25))
            .await
            .unwrap();
    }
    let text = request(&server, "GET", "/metrics").await;
    // The count includes the default filter.
    assert!(text.contains("\nseenset_filters 206.0\n"), "{text}");
    let lines = text.lines();
    let apart = lines.filter(|line| line.starts_with("seenset_filter_version{"));
    assert_eq!(apart.count(), 200);
    value(&text, "memory_bytes", "f204");
    value(&text, "memory_bytes", "f000");
    assert!(!text.contains("f203"), "{text}");
}
