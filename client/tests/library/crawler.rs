//! The example crawler over a site of our own: every page exactly once, whatever the
//! number of workers.

use std::{
    collections::BTreeMap,
    env, fs,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use seenset_fake::Service;

const PAGES: usize = 400;

/// A site that counts how often each of its paths is asked for.
struct Site {
    address: String,
    hits: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Site {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let hits = Arc::new(Mutex::new(BTreeMap::new()));
        let counted = Arc::clone(&hits);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&counted)));
            }
        });
        Self { address, hits }
    }
}

async fn serve(stream: TcpStream, hits: Arc<Mutex<BTreeMap<String, u32>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut path = None;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if path.is_none() {
                path = line.split(' ').nth(1).map(str::to_owned);
            }
            if line == "\r\n" {
                break;
            }
        }
        let path = path.unwrap();
        *hits.lock().unwrap().entry(path.clone()).or_default() += 1;
        if stream.write_all(answer(&path).as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(path: &str) -> String {
    let (status, header, body) = match path.strip_prefix("/page/") {
        Some(page) => (
            "200 OK",
            "content-type: Text/HTML; charset=utf-8",
            html(page),
        ),
        None if path == "/moved" => ("301 Moved", "location: /page/7#there", String::new()),
        None if path == "/style.css" => (
            "200 OK",
            "content-type: text/css",
            "<a href=/page/not-html>".to_owned(),
        ),
        None => ("404 Not Found", "content-type: text/html", html("0")),
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Pages with links forwards, backwards, with fragments, and to targets that are not to be fetched.
fn html(page: &str) -> String {
    let page: usize = page.parse().unwrap();
    let (left, right) = ((2 * page + 1) % PAGES, (2 * page + 2) % PAGES);
    let other = (page * 7) % PAGES;
    format!(
        "<p><a href='/page/{left}'>l</a> <A HREF=\"{right}#part\">r</A> <a href={other}></a>\
         <a href='#top'></a> <a name=x></a> <a href='mailto:a@b'></a> <a href='/moved'></a>\
         <a href='/missing'></a> <a href='/style.css'></a>\
         <a href='http://other.invalid/page/1'></a> <!-- <a href='/page/comment'> -->"
    )
}

fn crawler() -> PathBuf {
    // Cargo puts examples beside the directory of the test programs.
    let tests = env::current_exe().unwrap();
    let path = tests.ancestors().nth(2).unwrap().join("examples/crawler");
    assert!(
        path.exists(),
        "build it first: cargo build --example crawler"
    );
    path
}

fn crawl(site: &Site, args: &[&str]) -> BTreeMap<String, f64> {
    let output = Command::new(crawler())
        .arg(format!("http://{}/page/0#start", site.address))
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("/missing: 404 Not Found"), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let pairs = stdout.lines().map(|line| line.split_once(' ').unwrap());
    pairs
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_share_nothing_fetch_every_page_exactly_once() {
    let service = Service::start().await;
    let directory = TempDir::new().unwrap();
    let hrefs = directory.path().join("hrefs");

    let site = Site::start().await;
    let server = format!("--server={}", service.address);
    let hrefs_arg = format!("--hrefs={}", hrefs.display());
    let totals = crawl(&site, &["--workers=8", &server, &hrefs_arg]);
    let hits = site.hits.lock().unwrap().clone();
    let again: Vec<_> = hits.iter().filter(|(_, count)| **count != 1).collect();
    assert!(again.is_empty(), "not fetched once: {again:?}");
    assert_eq!(hits.len(), PAGES + 3);

    assert_eq!(totals["pages_fetched"] as usize, PAGES + 1);
    assert_eq!(totals["redirects"] as usize, 1);
    assert_eq!(totals["errors"] as usize, 1);
    // Seven links on each page lead to this host, and so does the redirect.
    let links = PAGES * 7 + 1;
    assert_eq!(totals["links_found"] as usize, links);
    assert_eq!(totals["duplicates_avoided"] as usize, links - (PAGES + 2));
    assert_eq!(service.state.key_count(), PAGES + 3);

    let hrefs = fs::read_to_string(hrefs).unwrap();
    assert_eq!(hrefs.lines().count(), links + PAGES);
    assert!(hrefs.contains("\nhttp://other.invalid/page/1\n"));
    assert!(!hrefs.contains('#') && !hrefs.contains("comment"));

    let reference = Site::start().await;
    let exact = crawl(&reference, &["--exact"]);
    assert_eq!(*reference.hits.lock().unwrap(), hits);
    for name in [
        "pages_fetched",
        "errors",
        "links_found",
        "duplicates_avoided",
    ] {
        assert_eq!(exact[name], totals[name], "{name}");
    }
}

/// A site that is down is a failure, and so is a second crawl with the same filter.
#[tokio::test(flavor = "multi_thread")]
async fn a_crawl_without_a_page_fails() {
    let service = Service::start().await;
    let server = format!("--server={}", service.address);
    for expected in ["not one page was fetched", "make a filter for this crawl"] {
        let output = Command::new(crawler())
            .args(["http://127.0.0.1:1/", &server])
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
