//! The real program as a process: started, killed, told to stop, and started again on the same store.
//!
//! It is the program that cargo built beside the test, or the one that `HUB_TEST_BINARY` names (a release build). `HUB_TEST_SETTINGS`
//! (`NAME=VALUE NAME=VALUE`) are settings of every hub, to try what they do.

use super::api::Api;
use super::{free_port, until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that a start may take, on a machine that does much else.
const START: Duration = Duration::from_secs(60);

/// A hub with its store; the process may run or not. Dropped, both are gone.
pub(crate) struct Hub {
    folder: TempDir,
    port: u16,
    settings: BTreeMap<String, String>,
    /// Words in front of the program, and more of its environment.
    before: Vec<String>,
    around: BTreeMap<String, String>,
    /// Where its log goes.
    log: PathBuf,
    process: Option<Child>,
}

/// The program under test.
pub(crate) fn binary() -> PathBuf {
    let named = std::env::var_os("HUB_TEST_BINARY").map(PathBuf::from);
    let named = named.map(|path| Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_streaming-hub").into())
}

/// Whether the program under test is a release build, of which times may be expected.
pub(crate) fn is_release() -> bool {
    binary().parent().is_some_and(|folder| folder.ends_with("release"))
}

impl Hub {
    /// A multi-tenant hub that does not run yet, with a store of its own, that may deliver to that port of loopback without TLS.
    pub(crate) fn new(receiver: u16, settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("hub-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let port = free_port();
        let (log, before, around) = (folder.path().join("log"), vec![], BTreeMap::new());
        let mut hub = Self { folder, port, settings: BTreeMap::new(), before, around, log, process: None };
        hub.set("ENV", "local");
        hub.set("LOG_FORMAT", "text");
        hub.set("MULTI_TENANT_ENABLED", "true");
        hub.set("DATA_DIR", &hub.data().display().to_string());
        hub.set("HTTP_LISTEN_ADDR", &format!("127.0.0.1:{port}"));
        hub.set("TOPIC_DISCOVERY_INTERVAL", "1s");
        // What else fills the disk of this machine is no matter of the tests.
        hub.set("STORE_RESERVE_BYTES", "0");
        hub.set("SINK_ALLOW", &format!("127.0.0.1/32:{receiver}+plain"));
        for (name, value) in settings {
            hub.set(name, value);
        }
        let more = std::env::var("HUB_TEST_SETTINGS").unwrap_or_default();
        for setting in more.split_whitespace() {
            let (name, value) = setting.split_once('=').expect("HUB_TEST_SETTINGS is NAME=VALUE NAME=VALUE");
            hub.set(name, value);
        }
        hub
    }

    /// Changes a setting, for the next start.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.insert(format!("STREAMING_HUB_{name}"), value.to_owned());
    }

    /// Puts another program in front of it, for the next starts: a tracer, a limit.
    pub(crate) fn under(&mut self, words: &[String]) {
        self.before = words.to_vec();
    }

    /// Sets a variable of its environment that is no setting.
    pub(crate) fn around(&mut self, name: &str, value: &str) {
        self.around.insert(name.to_owned(), value.to_owned());
    }

    /// Its data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.settings.get("STREAMING_HUB_DATA_DIR").map_or_else(|| self.folder.path().join("data"), PathBuf::from)
    }

    /// A folder of its own beside the data.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its API.
    pub(crate) fn api(&self) -> Api {
        Api::new(self.data().join("hub.sock"), self.port)
    }

    /// Its port on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sends its log somewhere else, from the next start on.
    pub(crate) fn log_to(&mut self, path: &str) {
        self.log = path.into();
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("the hub runs").id()
    }

    /// Whether its process has ended; what it was is forgotten then.
    pub(crate) fn has_ended(&mut self) -> bool {
        let ended = self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some());
        if ended {
            self.process = None;
        }
        ended
    }

    /// Starts the process and does not wait for it.
    pub(crate) fn spawn(&mut self) {
        assert!(self.process.is_none(), "the hub runs already");
        let log = self.log_file();
        let mut command = self.command(&["serve"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Starts it and waits until it is ready; how long that took.
    pub(crate) fn start(&mut self) -> Duration {
        let began = Instant::now();
        self.spawn();
        self.ready();
        began.elapsed()
    }

    /// Waits until it says that it is ready.
    pub(crate) fn ready(&mut self) {
        let api = self.api();
        until("the hub is ready", START, || {
            let ended = self.process.as_mut().expect("the hub runs").try_wait().unwrap();
            assert!(ended.is_none(), "the hub ended while starting: {ended:?}\n{}", self.log_tail());
            api.readyz().filter(|(status, _)| *status == 200)
        });
    }

    /// `kill -9`, and gone.
    pub(crate) fn kill(&mut self) {
        let inner = self.inner();
        let mut process = self.process.take().expect("the hub runs");
        // What stands in front ends with the program, which must be gone before the next one starts.
        match inner {
            Some(inner) => drop(kill_process(inner, Signal::KILL)),
            None => process.kill().unwrap(),
        }
        process.wait().unwrap();
    }

    /// The program itself, where something stands in front of it that is still there.
    fn inner(&self) -> Option<Pid> {
        if self.before.is_empty() {
            return None;
        }
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGTERM to the program behind what stands in front of it.
    pub(crate) fn terminate_inner(&self) {
        kill_process(self.inner().expect("it has started"), Signal::TERM).unwrap();
    }

    /// Whether the program behind what stands in front of it is over, and only waits for that to notice.
    pub(crate) fn is_over_inside(&self) -> bool {
        let Some(inner) = self.inner() else { return true };
        let status = std::fs::read_to_string(format!("/proc/{}/status", inner.as_raw_nonzero())).unwrap_or_default();
        status.lines().all(|line| !line.starts_with("State:") || line.contains('Z'))
    }

    /// Lets it stand still, as a stopped machine does, for so long.
    pub(crate) fn freeze(&self, pause: Duration) {
        self.stand_still();
        std::thread::sleep(pause);
        self.go_on();
    }

    /// Lets it stand still.
    pub(crate) fn stand_still(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.process.as_ref().expect("the hub runs"));
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self, within: Duration) -> ExitStatus {
        let process = self.process.as_mut().expect("the hub runs");
        let status = until("the hub ends", within, || process.try_wait().unwrap());
        self.process = None;
        status
    }

    /// Runs the program once more with the same settings and these arguments, to its end.
    pub(crate) fn run(&self, args: &[&str], settings: &[(&str, &str)]) -> Output {
        let mut command = self.command(args);
        for (name, value) in settings {
            command.env(format!("STREAMING_HUB_{name}"), value);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = Instant::now() + START;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > ended {
                child.kill().unwrap();
                panic!("{args:?} did not end: {:?}", child.wait_with_output());
            }
            std::thread::sleep(super::LOOK);
        }
        child.wait_with_output().unwrap()
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let from = text.len().saturating_sub(4000);
        String::from_utf8_lossy(&text[from..]).into_owned()
    }

    /// Its whole log.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn log_file(&self) -> File {
        OpenOptions::new().create(true).append(true).open(&self.log).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        // It ends with the test that started it, also when that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if !self.before.is_empty() {
            // What is in front ends with the test, and the hub with it.
            command.args(&self.before).args(["setpriv", "--pdeathsig", "KILL", "--"]);
        }
        command.arg(binary());
        // Nothing of the caller's environment is a setting of this hub.
        command.args(args).env_clear().envs(&self.settings).envs(&self.around);
        command.envs(std::env::vars().filter(|(name, _)| name == "PATH" || name.starts_with("MALLOC_")));
        command
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- the end of the hub's log ---\n{}", self.log_tail());
        }
    }
}

/// What a process has used so far, as the kernel counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// User and system CPU time, in seconds.
    pub(crate) cpu: f64,
    /// System CPU time of it.
    pub(crate) system: f64,
    /// Bytes that it caused to be written to the disk.
    pub(crate) written: u64,
    /// Resident memory now, in bytes.
    pub(crate) rss: u64,
    /// Resident memory at its peak, in bytes.
    pub(crate) rss_peak: u64,
}

impl Usage {
    /// Of that process, now.
    pub(crate) fn of(pid: u32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let stat = read("stat");
        // After the name, which may hold anything: the state is the third field, the times are the 14th and the 15th.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<f64>().unwrap() / 100.0;
        let field = |text: &str, name: &str| -> u64 {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let (status, io) = (read("status"), read("io"));
        Self {
            cpu: ticks(11) + ticks(12),
            system: ticks(12),
            written: field(&io, "write_bytes:"),
            rss: field(&status, "VmRSS:") * 1024,
            rss_peak: field(&status, "VmHWM:") * 1024,
        }
    }
}
