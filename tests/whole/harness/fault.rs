//! Faults between the program and its kernel, by `strace -e inject`: the program is the one that is shipped.
//!
//! In front of the program from its start ([`from_start`]), so that calls are counted from the first one on; or laid on one that runs
//! ([`Fault::on`]) and taken away again.

use super::{until, until_true};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What every tracer is told: all threads, nothing on the terminal.
const TRACER: [&str; 3] = ["strace", "-f", "-qqq"];

/// The words in front of a program whose calls are tampered with from its start: `pwrite64:signal=KILL:when=7`. With `told` every such
/// call is written to that file.
pub(crate) fn from_start(inject: &[String], told: &Path) -> Vec<String> {
    let mut words: Vec<String> = TRACER.map(str::to_owned).to_vec();
    words.extend(["-o", told.to_str().unwrap()].map(str::to_owned));
    words.extend(["-e".to_owned(), format!("trace={STORAGE_CALLS}"), "-e".to_owned(), "signal=none".to_owned()]);
    for rule in inject {
        words.extend(["-e".to_owned(), format!("inject={rule}")]);
    }
    words
}

/// What changes a store's file; nothing else of the program uses these.
pub(crate) const STORAGE_CALLS: &str = "pwrite64,fdatasync,ftruncate,fsync";

/// A fault on a running program; dropped, it is gone.
pub(crate) struct Fault {
    tracer: Child,
}

impl Fault {
    /// Tampers with the calls of that process from now on.
    pub(crate) fn on(pid: u32, inject: &[&str]) -> Self {
        let calls: Vec<&str> = inject.iter().filter_map(|rule| rule.split(':').next()).collect();
        let mut command = Command::new(TRACER[0]);
        // Quiet, but for the word that says that it is attached.
        command.args(["-f", "-q", "-o", "/dev/null", "-e", "signal=none", "-e", &format!("trace={}", calls.join(","))]);
        for rule in inject {
            command.args(["-e", &format!("inject={rule}")]);
        }
        command.args(["-p", &pid.to_string()]);
        let tracer = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let fault = Self { tracer };
        let traced = || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            tasks.flatten().all(|task| {
                let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
                // A thread that ended meanwhile has none.
                status.is_empty() || status.contains(&format!("TracerPid:\t{}", fault.tracer.id()))
            })
        };
        until_true("the fault is laid on", Duration::from_secs(10), traced);
        fault
    }
}

impl Fault {
    /// Of a program that is over: a tracer that holds up one of its calls does not notice, and would wait for the end of that.
    pub(crate) fn forget(mut self) {
        let _ = self.tracer.kill();
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // Told nicely, it lets the program go on; killed, it would take the program along.
        let pid = rustix::process::Pid::from_child(&self.tracer);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = until("the fault is taken away", Duration::from_secs(70), || self.tracer.try_wait().unwrap());
    }
}

/// A small disk of its own in memory; unmounted when dropped.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Of so many bytes. Needs root.
    pub(crate) fn of(bytes: u64) -> Self {
        let folder = tempfile::Builder::new().prefix("disk-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let disk = Self { folder };
        disk.mount(&["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        disk
    }

    fn mount(&self, args: &[&str]) {
        let done = Command::new("mount").args(args).arg(self.path()).output().unwrap();
        assert!(done.status.success(), "mount (as root): {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Makes it read-only, or writable again.
    pub(crate) fn read_only(&self, is_on: bool) {
        self.mount(&["-o", if is_on { "remount,ro" } else { "remount,rw" }]);
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What is free.
    pub(crate) fn free(&self) -> u64 {
        let told = rustix::fs::statvfs(self.path()).unwrap();
        told.f_bavail * told.f_frsize
    }

    /// Takes all but so many bytes away, by a file that nobody needs.
    pub(crate) fn fill_to(&self, left: u64) {
        use std::io::Write as _;
        let open = std::fs::OpenOptions::new().create(true).append(true).open(self.ballast());
        let mut ballast = open.unwrap();
        while self.free() > left {
            let some = usize::try_from((self.free() - left).min(64 << 10)).unwrap();
            if ballast.write_all(&vec![7; some]).is_err() {
                return;
            }
        }
    }

    /// Gives it back.
    pub(crate) fn give_back(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(self.path()).status();
    }
}
