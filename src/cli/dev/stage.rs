//! The run of `streaming-hub dev`, from the running hub to the summary: keys, demo subscriptions, playing, settling, closing.
//!
//! Everything here goes through the hub's own API, as any client's calls do.

use super::super::hub::{Hub, text};
use super::super::output::Output;
use super::super::{Ended, Failure};
use super::receiver::{PATHS, Receiver};
use super::samples::Samples;
use super::tally::{Summary, Tally};
use crate::config::Settings;
use crate::daemon::{self, DaemonError, Running, Signals};
use crate::entropy::Entropy;
use crate::error::counted;
use crate::rules::classify::Policy;
use crate::rules::explain::LineRecord;
use crate::store::disk::FileDisk;
use crate::time::{Clock, SystemClock};
use http::Method;
use serde_json::json;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What is to be done.
pub(super) struct Script {
    /// Records to play; none: for ever, or one round with `once`.
    pub(super) events: Option<u64>,
    /// Ends when all is settled.
    pub(super) once: bool,
    /// The summary is JSON, and everything else goes to stderr.
    pub(super) json: bool,
    /// Records a second.
    pub(super) rate: Option<u32>,
    /// Path of the receiver that subscriptions point at.
    pub(super) path: String,
    /// Also the first round gets new ids.
    pub(super) renew: bool,
}

/// The bound ports.
pub(super) struct Ports {
    /// Of the hub's API.
    pub(super) api: TcpListener,
    /// Of the receiver.
    pub(super) receiver: TcpListener,
}

/// Records a second when nobody waits for the end.
const RATE_OF_A_DEMO: u32 = 5;
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
const SETTLED_LOOK: Duration = Duration::from_millis(25);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Runs it all.
pub(super) async fn perform(
    script: Script,
    settings: Settings,
    disk: FileDisk,
    ports: Ports,
    output: Output,
) -> Result<Ended, Failure> {
    let signals = Signals::listen().map_err(Failure::io("signals"))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let said = Said { output: Arc::new(Mutex::new(output)), to_stderr: script.json };
    let tally = Arc::new(Tally::default());
    let say = said.clone();
    let receiver = Receiver::new(tally.clone(), clock.clone(), Box::new(move |line| say.line(&line)));
    ports.receiver.set_nonblocking(true).map_err(Failure::io("the receiver's port"))?;
    let port = tokio::net::TcpListener::from_std(ports.receiver).map_err(Failure::io("the receiver's port"))?;
    let receiver_url = format!("http://{}", port.local_addr().map_err(Failure::io("the receiver's port"))?);

    let policy = settings.records;
    let running = daemon::start(settings, disk, ports.api, clock.clone()).await?;
    let receiver_stop = CancellationToken::new();
    let serving = tokio::spawn(receiver.clone().serve(port, receiver_stop.clone()));
    let operator = Hub::at_socket(running.socket())?;
    let dead_before = dead_letters(&operator).await?;
    let stage = Stage { script, operator, dead_before, running, receiver, receiver_url, tally, said, clock };

    let shown = tokio::select! {
        shown = stage.show(&policy) => shown,
        part = stage.running.broken() => Err(DaemonError::Broken(part).into()),
        () = signals.drain.cancelled() => Ok(Shown::Interrupted),
    };
    let summary = stage.finish(shown, &signals).await;
    receiver_stop.cancel();
    // It ends with its token; had it panicked, the run has shown it.
    let _ = serving.await;
    summary
}

struct Stage {
    script: Script,
    operator: Hub,
    dead_before: u64,
    running: Running,
    receiver: Arc<Receiver>,
    receiver_url: String,
    tally: Arc<Tally>,
    said: Said,
    clock: Arc<dyn Clock>,
}

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    AllSettled,
    Interrupted,
}

impl Stage {
    async fn show(&self, policy: &Policy) -> Result<Shown, Failure> {
        let address = self.running.address().ok_or(Failure::Odd("the hub does not listen"))?;
        let url = format!("http://{address}");
        let operator_key = new_key(&self.operator, "dev operator", "operator").await?;
        let ingest_key = new_key(&self.operator, "dev player", "ingest").await?;
        self.said.line(&format!("hub       {url}    key {operator_key} (operator), {ingest_key} (ingest)"));
        self.said.line(&format!("receiver  {}  paths {PATHS}", self.receiver_url));

        let mut samples = Samples::read(self.script.renew)?;
        let client = Hub::at_url(&url, Some(operator_key))?;
        for tenant in samples.tenants(policy) {
            self.subscribe(&client, &tenant).await?;
        }
        let count = self.script.events.or(self.script.once.then(|| samples.round()));
        let rate = self.script.rate.or(count.is_none().then_some(RATE_OF_A_DEMO));
        self.play(&Hub::at_url(&url, Some(ingest_key))?, &mut samples, count, rate).await?;
        if !self.script.once {
            self.said.line("all played; the hub goes on, Ctrl-C stops it");
            std::future::pending::<()>().await;
        }
        self.settle().await?;
        Ok(Shown::AllSettled)
    }

    /// Makes a tenant's demo subscription and proves it, as a tenant would.
    async fn subscribe(&self, hub: &Hub, tenant: &str) -> Result<(), Failure> {
        let name = format!("demo of {tenant}");
        // Those of a kept store lead to the receiver of another run.
        for old in hub.list("/v1/subscriptions", Some(tenant)).await? {
            if let (Some(id), true) = (text(&old, "id"), text(&old, "name") == Some(&name)) {
                hub.call(Method::DELETE, &format!("/v1/subscriptions/{id}"), Some(tenant), None).await?.done()?;
            }
        }
        let body = json!({
            "name": name,
            "event_types": ["*"],
            "sink": { "kind": "webhook", "url": format!("{}{}", self.receiver_url, self.script.path) },
        });
        let made = hub.call(Method::POST, "/v1/subscriptions", Some(tenant), Some(&body)).await?.done()?;
        let (Some(id), Some(secret)) = (text(&made, "id"), text(&made, "signing_secret")) else {
            return Err(Failure::Odd("a new subscription came without id or signing_secret"));
        };
        self.receiver.learn(id, secret);
        let proven =
            hub.call(Method::POST, &format!("/v1/subscriptions/{id}/verify"), Some(tenant), None).await?.done()?;
        let subscription =
            hub.call(Method::GET, &format!("/v1/subscriptions/{id}"), Some(tenant), None).await?.done()?;
        if text(&subscription, "verification_state") != Some("active") {
            return Err(Failure::NotProven { tenant: tenant.to_owned(), seen: proven.to_string() });
        }
        self.said.line(&format!("tenant    {tenant}  {id} -> {}", self.script.path));
        Ok(())
    }

    async fn play(
        &self,
        ingest: &Hub,
        samples: &mut Samples,
        count: Option<u64>,
        rate: Option<u32>,
    ) -> Result<(), Failure> {
        let mut entropy = Entropy::from_os().map_err(|_| Failure::Odd("the operating system gives no random bytes"))?;
        let mut pace = rate.map(|rate| tokio::time::interval(Duration::from_secs(1) / rate));
        let mut progress = Progress::starting(&self.said);
        let mut played = 0;
        while count.is_none_or(|count| played < count) {
            let Some(line) = samples.next(self.clock.wall(), &mut entropy) else { break };
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            self.ingest(ingest, &line).await?;
            played += 1;
            progress.tick(|| match count {
                Some(count) => format!("played {played} of {count}"),
                None => format!("played {played}"),
            });
        }
        Ok(())
    }

    // A hub that is busy says so, and the record is sent again: nothing may be lost on the way in.
    async fn ingest(&self, ingest: &Hub, line: &LineRecord) -> Result<(), Failure> {
        loop {
            let answered = ingest.ingest(line).await?;
            if self.tally.played(&answered) {
                return Ok(());
            }
            if answered.status != 503 && answered.status != 429 {
                return Err(answered.failed());
            }
            tokio::time::sleep(TRY_AGAIN_AFTER).await;
        }
    }

    async fn settle(&self) -> Result<(), Failure> {
        let mut progress = Progress::starting(&self.said);
        loop {
            let unfinished = self.running.inspect().await?.unfinished;
            if unfinished == 0 {
                return Ok(());
            }
            progress.tick(|| {
                let wait = if unfinished == 1 { "waits" } else { "wait" };
                format!("{} still {wait}", counted(unfinished, "delivery"))
            });
            tokio::time::sleep(SETTLED_LOOK).await;
        }
    }

    async fn finish(self, shown: Result<Shown, Failure>, signals: &Signals) -> Result<Ended, Failure> {
        let seconds = self.clock.monotonic().as_secs_f64();
        let dead_letters = dead_letters(&self.operator).await;
        self.running.stop(signals).await?;
        let (shown, dead_letters) = (shown?, dead_letters?.saturating_sub(self.dead_before));
        let summary = Summary::of(self.tally.counts(), dead_letters, seconds);
        self.said.summary(&summary)?;
        let (_, received) = self.tally.counts();
        let flawless = received.signatures_wrong == 0 && received.out_of_order == 0;
        // Ctrl-C is the ordinary end of a run without --once.
        Ok(if flawless && (shown == Shown::AllSettled || !self.script.once) { Ended::Fine } else { Ended::Failed })
    }
}

async fn new_key(hub: &Hub, name: &str, role: &str) -> Result<String, Failure> {
    let body = json!({ "name": name, "role": role });
    let made = hub.call(Method::POST, "/admin/api-keys", None, Some(&body)).await?.done()?;
    text(&made, "key").map(str::to_owned).ok_or(Failure::Odd("a new API key came without its text"))
}

async fn dead_letters(hub: &Hub) -> Result<u64, Failure> {
    Ok(hub.list("/admin/dead-letters", None).await?.len() as u64)
}

/// Where lines go: results to stdout, unless that is for the summary alone.
#[derive(Clone)]
struct Said {
    output: Arc<Mutex<Output>>,
    to_stderr: bool,
}

impl Said {
    fn line(&self, line: &str) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that went away does not end the run.
        if self.to_stderr || output.line(line).is_err() {
            output.remark(line);
        }
    }

    fn remark(&self, line: &str) {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).remark(line);
    }

    fn summary(&self, summary: &Summary) -> Result<(), Failure> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.to_stderr {
            return output.line(&summary.text());
        }
        // By itself and not as a JSON value, so that its fields keep their order.
        let text = serde_json::to_string(summary).map_err(|_| Failure::Odd("the summary is no JSON"))?;
        output.line(&text)
    }
}

/// Says now and then how far long work is.
struct Progress<'a> {
    said: &'a Said,
    next: tokio::time::Instant,
}

impl<'a> Progress<'a> {
    fn starting(said: &'a Said) -> Self {
        Self { said, next: tokio::time::Instant::now() + PROGRESS_EVERY }
    }

    fn tick(&mut self, line: impl FnOnce() -> String) {
        if tokio::time::Instant::now() >= self.next {
            self.next += PROGRESS_EVERY;
            self.said.remark(&line());
        }
    }
}
