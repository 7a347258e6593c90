//! A small real crawler. Its workers share nothing but the service, and fetch every page of a site
//! exactly once.
//!
//! ```text
//! cargo run --release --example crawler -- http://127.0.0.1:8000/ --workers 8
//! ```
//!
//! A coordinator hands out URLs. Each worker has its own HTTP client and its own connection to the
//! service. A worker keeps those links of a page that are new to the service, with one call for the
//! page. If several workers find a link at the same time, one of them gets it. The crawl is over
//! when no URL is outstanding.
//!
//! It is an example: it knows no `robots.txt` and does not limit its rate, so use it only on your
//! own hosts.

use std::{
    collections::{HashSet, VecDeque},
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use scraper::{Html, Selector};
use seenset_client::{Client, KeyBatch};
use tokio::{sync::mpsc, task::JoinSet};
use url::Url;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The maximum number of bytes that are read of one page.
const MAX_PAGE_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of links in each call. A page with more links takes several calls.
const BATCH_KEYS: usize = 10_000;

/// Fetches every page of a site that links lead to, each exactly once.
#[derive(Debug, Parser)]
struct Args {
    /// The URL to start from. Links to the same scheme, host and port are followed.
    start: Url,
    /// The address of the seenset server.
    #[arg(long, env = "SEENSET_SERVER", default_value = "http://127.0.0.1:9090")]
    server: String,
    /// The name of the filter for the URLs. Each crawl needs its own filter. An empty name means
    /// the filter named default.
    #[arg(long, default_value = "")]
    filter: String,
    /// The number of pages that are fetched at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Keep the URLs in a set of this process, with one worker and without the service. The result
    /// is the reference to compare with.
    #[arg(long)]
    exact: bool,
    /// Write each href found to this file, absolute and without fragment, one on each line.
    #[arg(long, value_name = "FILE")]
    hrefs: Option<PathBuf>,
}

/// The totals of a crawl; printed as lines of a name and a number.
#[derive(Debug, Default)]
struct Totals {
    /// The number of pages that were answered with success.
    pages_fetched: u64,
    /// The number of redirects. The target of a redirect counts as a link found.
    redirects: u64,
    /// The number of fetches that failed.
    errors: u64,
    /// The number of links to the same host, including duplicates.
    links_found: u64,
    /// The number of links that were not fetched, because a worker has fetched the page already or
    /// will fetch it.
    duplicates_avoided: u64,
}

/// The set that decides whether a URL is new.
enum Seen {
    Service(Client),
    Exact(HashSet<String>),
}

impl Seen {
    /// Returns the URLs that are new and that this worker has to fetch.
    async fn win(&mut self, urls: Vec<Url>) -> Result<Vec<Url>, Error> {
        match self {
            Self::Exact(set) => Ok(urls
                .into_iter()
                .filter(|url| set.insert(url.to_string()))
                .collect()),
            Self::Service(client) => {
                let mut won = Vec::new();
                for urls in urls.chunks(BATCH_KEYS) {
                    let keys: KeyBatch = urls.iter().map(Url::as_str).collect();
                    let seen = client.query_and_add_batch(keys).await?;
                    let new = urls.iter().zip(seen).filter(|(_, seen)| !seen);
                    won.extend(new.map(|(url, _)| url.clone()));
                }
                Ok(won)
            }
        }
    }
}

/// The outcome for one URL.
enum Outcome {
    Page,
    Redirect,
    Failed,
}

/// A worker's message to the coordinator: done with one URL, ready for the next.
struct Done {
    worker: usize,
    outcome: Outcome,
    /// The number of links to the same host, including duplicates.
    links: u64,
    won: Vec<Url>,
    /// Every link, for `--hrefs`.
    hrefs: Vec<Url>,
}

struct Worker {
    id: usize,
    http: reqwest::Client,
    seen: Seen,
    origin: url::Origin,
}

impl Worker {
    async fn new(args: &Args, id: usize) -> Result<Self, Error> {
        let seen = if args.exact {
            Seen::Exact(HashSet::new())
        } else {
            Seen::Service(Client::connect(&args.server).await?.filter(&args.filter))
        };
        let http = reqwest::Client::builder()
            // The target of a redirect may have been fetched already: the worker queries it like
            // any other link.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(60))
            .build()?;
        Ok(Self {
            id,
            http,
            seen,
            origin: args.start.origin(),
        })
    }

    /// Fetches the URLs that it is given until there are no more.
    async fn run(
        mut self,
        mut urls: mpsc::Receiver<Url>,
        done: mpsc::Sender<Done>,
    ) -> Result<(), Error> {
        while let Some(url) = urls.recv().await {
            // A page that cannot be fetched is a fact about the site. A service that cannot be
            // reached ends the crawl.
            let (outcome, hrefs) = match self.fetch(&url).await {
                Ok(fetched) => fetched,
                Err(error) => {
                    note(&format!("{url}: {error}"));
                    (Outcome::Failed, Vec::new())
                }
            };
            let same_host = hrefs.iter().filter(|href| href.origin() == self.origin);
            let links: Vec<Url> = same_host.cloned().collect();
            let message = Done {
                worker: self.id,
                outcome,
                links: links.len() as u64,
                won: self.seen.win(links).await?,
                hrefs,
            };
            if done.send(message).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Fetches one URL and finds its links.
    async fn fetch(&self, url: &Url) -> Result<(Outcome, Vec<Url>), Error> {
        let mut response = self.http.get(url.clone()).send().await?;
        let status = response.status();
        let header = |name| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        if status.is_redirection() {
            let target = header(LOCATION).and_then(|target| link(url, &target));
            return Ok((Outcome::Redirect, target.into_iter().collect()));
        }
        if !status.is_success() {
            return Err(status.to_string().into());
        }
        let content_type = header(CONTENT_TYPE).unwrap_or_default();
        let is_html = ["text/html", "application/xhtml+xml"]
            .iter()
            .any(|html| content_type.to_ascii_lowercase().starts_with(html));
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > MAX_PAGE_BYTES {
                return Err(format!("longer than {MAX_PAGE_BYTES} bytes").into());
            }
            body.extend_from_slice(&chunk);
        }
        if !is_html {
            return Ok((Outcome::Page, Vec::new()));
        }
        Ok((Outcome::Page, links(url, &String::from_utf8_lossy(&body))))
    }
}

/// Returns the links of a page, absolute, in order.
fn links(page: &Url, html: &str) -> Vec<Url> {
    let document = Html::parse_document(html);
    let select = |selector: &str| {
        let selector = Selector::parse(selector).expect("a constant that parses");
        let elements = document.select(&selector);
        let hrefs = elements.filter_map(|element| element.attr("href"));
        hrefs.map(str::to_owned).collect::<Vec<_>>()
    };
    let base = select("base[href]")
        .first()
        .and_then(|base| page.join(base).ok())
        .unwrap_or_else(|| page.clone());
    let hrefs = select("a[href]");
    hrefs.iter().filter_map(|href| link(&base, href)).collect()
}

/// Returns the target of a link, without the fragment; `None` if it is no web page.
fn link(base: &Url, href: &str) -> Option<Url> {
    let mut url = base.join(href).ok()?;
    url.set_fragment(None);
    matches!(url.scheme(), "http" | "https").then_some(url)
}

/// Hands out URLs until none is outstanding.
#[expect(
    clippy::indexing_slicing,
    reason = "`idle` holds the numbers of workers, each of which has an inbox"
)]
async fn crawl(args: &Args) -> Result<Totals, Error> {
    let count = if args.exact { 1 } else { args.workers.into() };
    let (done_sender, mut done) = mpsc::channel(count);
    let mut workers = JoinSet::new();
    let mut inboxes = Vec::new();
    let mut queue = VecDeque::new();
    for id in 0..count {
        let mut worker = Worker::new(args, id).await?;
        if id == 0 {
            let mut start = args.start.clone();
            start.set_fragment(None);
            queue.extend(worker.seen.win(vec![start]).await?);
        }
        let (inbox, urls) = mpsc::channel(1);
        inboxes.push(inbox);
        workers.spawn(worker.run(urls, done_sender.clone()));
    }
    if queue.is_empty() {
        return Err(format!(
            "{} has been seen: make a filter for this crawl (seenset filter create NAME \
             --capacity PAGES) and name it with --filter",
            args.start
        )
        .into());
    }

    let mut hrefs = args.hrefs.as_ref().map(File::create).transpose()?;
    let mut hrefs = hrefs.as_mut().map(BufWriter::new);
    let mut totals = Totals::default();
    let mut idle: Vec<usize> = (0..count).collect();
    while !queue.is_empty() || idle.len() < count {
        if !queue.is_empty()
            && let Some(worker) = idle.pop()
        {
            let url = queue.pop_front().ok_or("the queue is empty")?;
            let sent = inboxes[worker].send(url).await;
            sent.map_err(|_| "a worker has gone")?;
            continue;
        }
        let message = tokio::select! {
            message = done.recv() => message.ok_or("all workers have gone")?,
            // A worker ends only after its inbox is closed, or after an error.
            Some(ended) = workers.join_next() => {
                ended??;
                return Err("a worker has gone".into());
            }
        };
        if let Some(file) = &mut hrefs {
            for href in &message.hrefs {
                writeln!(file, "{href}")?;
            }
        }
        idle.push(message.worker);
        totals.count(&message);
        queue.extend(message.won);
    }
    if let Some(file) = &mut hrefs {
        file.flush()?;
    }
    Ok(totals)
}

impl Totals {
    fn count(&mut self, done: &Done) {
        match done.outcome {
            Outcome::Page => self.pages_fetched += 1,
            Outcome::Redirect => self.redirects += 1,
            Outcome::Failed => self.errors += 1,
        }
        self.links_found += done.links;
        self.duplicates_avoided += done.links - done.won.len() as u64;
    }

    fn print(&self, elapsed: Duration) -> io::Result<()> {
        let mut output = io::stdout().lock();
        writeln!(output, "pages_fetched {}", self.pages_fetched)?;
        writeln!(output, "redirects {}", self.redirects)?;
        writeln!(output, "errors {}", self.errors)?;
        writeln!(output, "links_found {}", self.links_found)?;
        writeln!(output, "duplicates_avoided {}", self.duplicates_avoided)?;
        writeln!(output, "seconds {:.3}", elapsed.as_secs_f64())
    }
}

fn note(line: &str) {
    // If standard error is closed, the line is lost.
    let _ = writeln!(io::stderr(), "{line}");
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let started = Instant::now();
    let outcome = match crawl(&args).await {
        Ok(totals) => totals
            .print(started.elapsed())
            .map_err(Error::from)
            .and_then(|()| match totals.pages_fetched {
                0 => Err("not one page was fetched".into()),
                _ => Ok(()),
            }),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("crawler: {error}"));
            ExitCode::from(1)
        }
    }
}
