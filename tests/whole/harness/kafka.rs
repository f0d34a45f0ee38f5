//! Topics and load on the running brokers, by the client that is not ours (`tests/services/produce.py`).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A setting of the running services.
pub(crate) fn service(name: &str) -> String {
    let why = "the services are not running; run this by `tests/run`, or see its first lines";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: {why}"))
}

/// The plain listeners of the brokers.
pub(crate) fn brokers() -> String {
    service("HUB_TEST_KAFKA_PLAIN")
}

/// A verb of the other client, with what it reads; what it printed.
pub(crate) fn produce(args: &[&str], input: &str) -> String {
    let mut command = client();
    command.args(args);
    run(command, input)
}

/// The other client. It ends with the thread that started it, also when the test is killed: that thread waits for it.
fn client() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(service("HUB_TEST_PYTHON")).arg(service("HUB_TEST_PRODUCE"));
    command
}

/// A verb of the services: brokers frozen, killed, started.
pub(crate) fn services(args: &[&str]) {
    let mut command = Command::new(service("HUB_TEST_SERVICES"));
    command.args(args);
    run(command, "");
}

/// Makes topics, each with so many partitions on so many brokers.
pub(crate) fn create_topics(names: &[String], partitions: u32, replicas: u32) {
    let mut args = vec!["create-topic"];
    args.extend(names.iter().map(String::as_str));
    let (partitions, replicas) = (partitions.to_string(), replicas.to_string());
    args.extend(["--partitions", &partitions, "--replication", &replicas]);
    produce(&args, "");
}

/// Removes topics, so that a long run does not fill the disk.
pub(crate) fn delete_topics(names: &[String]) {
    let mut args = vec!["delete-topic"];
    args.extend(names.iter().map(String::as_str));
    produce(&args, "");
}

fn run(mut command: Command, input: &str) -> String {
    let told = format!("{command:?}");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{told}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is to be produced.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// How many events are committed in the end.
    pub(crate) events: u64,
    /// Of how many tenants.
    pub(crate) tenants: u32,
    /// Into these topics.
    pub(crate) topics: Vec<String>,
    /// Each of so many partitions.
    pub(crate) partitions: u32,
    /// Events in a transaction; 0: none.
    pub(crate) transaction: u32,
    /// Each that many-th transaction is aborted; 0: none.
    pub(crate) abort_every: u32,
    /// How batches are compressed: a codec, or `mixed`.
    pub(crate) compression: &'static str,
    /// Events a second; 0: as fast as it goes.
    pub(crate) rate: u32,
    /// Events on their way at most, by what [`Loading::arrived`] is told; 0: any number.
    pub(crate) window: u32,
    /// What the names of its tenants begin with.
    pub(crate) prefix: &'static str,
    /// How long a batch waits for company, in milliseconds.
    pub(crate) linger_ms: u32,
    /// Of the tenants and kinds that are drawn.
    pub(crate) seed: u64,
}

impl Load {
    /// So many events of so many tenants into these topics, as fast as it goes.
    pub(crate) fn new(events: u64, tenants: u32, topics: &[String], partitions: u32) -> Self {
        let (transaction, abort_every, compression, rate, linger_ms, seed) = (0, 0, "none", 0, 5, 1);
        let topics = topics.to_vec();
        let (window, prefix) = (0, "tenant-");
        Self {
            events,
            tenants,
            topics,
            partitions,
            transaction,
            abort_every,
            compression,
            rate,
            window,
            prefix,
            linger_ms,
            seed,
        }
    }

    /// Starts producing, with the manifest in that folder.
    pub(crate) fn start(&self, folder: &Path) -> Loading {
        let manifest = folder.join("manifest");
        let mut command = client();
        command.arg("load").args(["--checksums", "--manifest"]).arg(&manifest);
        for (name, value) in [
            ("--events", self.events.to_string()),
            ("--tenants", self.tenants.to_string()),
            ("--topics", self.topics.join(",")),
            ("--partitions", self.partitions.to_string()),
            ("--transactions-every", self.transaction.to_string()),
            ("--aborts-every", self.abort_every.to_string()),
            ("--compression", self.compression.to_owned()),
            ("--rate", self.rate.to_string()),
            ("--window", self.window.to_string()),
            ("--tenant-prefix", self.prefix.to_owned()),
            ("--linger", self.linger_ms.to_string()),
            ("--seed", self.seed.to_string()),
        ] {
            command.args([name, &value]);
        }
        let input = if self.window > 0 { Stdio::piped() } else { Stdio::null() };
        let child = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Loading { child: Some(child), manifest }
    }

    /// Produces all of it.
    pub(crate) fn run(&self, folder: &Path) -> Manifest {
        self.start(folder).finish()
    }

    /// The names of its tenants.
    pub(crate) fn tenant_names(&self) -> Vec<String> {
        let width = (self.tenants - 1).to_string().len().max(3);
        (0..self.tenants).map(|number| format!("{}{number:0width$}", self.prefix)).collect()
    }
}

/// A load that is on its way; dropped, it ends.
pub(crate) struct Loading {
    child: Option<Child>,
    manifest: PathBuf,
}

impl Loading {
    /// Tells a load with a window how many of its events have arrived in all; whether it still listens.
    pub(crate) fn arrived(&mut self, count: usize) -> bool {
        let input = self.child.as_mut().and_then(|child| child.stdin.as_mut()).expect("the load has a window");
        writeln!(input, "{count}").is_ok()
    }

    /// Waits until everything is committed.
    pub(crate) fn finish(mut self) -> Manifest {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "load: {}", String::from_utf8_lossy(&output.stderr));
        Manifest {
            committed: rows(&self.manifest),
            aborted: rows(&self.manifest.with_extension("aborted")),
            told: serde_json::from_slice(&output.stdout).unwrap(),
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What was produced.
pub(crate) struct Manifest {
    /// Events that must arrive, those of a tenant in their order.
    pub(crate) committed: Vec<Row>,
    /// Events that must not.
    pub(crate) aborted: Vec<Row>,
    /// What the loader says of itself.
    pub(crate) told: serde_json::Value,
}

/// An event that was produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// `ce-id`.
    pub(crate) event: u128,
    /// Whose.
    pub(crate) tenant: String,
    /// Its number within its tenant.
    pub(crate) n: u64,
    /// Checksum of its body.
    pub(crate) checksum: u32,
}

fn rows(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| Row::read(line).unwrap_or_else(|| panic!("not a row of a manifest: {line:?}"))).collect()
}

impl Row {
    fn read(line: &str) -> Option<Self> {
        let [event, tenant, _topic, _partition, n, checksum] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
        let event = u128::from_str_radix(&event.replace('-', ""), 16).ok()?;
        Some(Self { event, tenant: tenant.to_owned(), n: n.parse().ok()?, checksum: checksum.parse().ok()? })
    }
}
