//! `streaming-hub dev`: the product with nothing installed. The same daemon as `serve`, on loopback with a store of its own, a
//! receiver, a demo subscription for every sample tenant, and the samples played in order.
//!
//! Invariant: it touches nothing but `DATA_DIR/dev`, whatever the environment says.

mod receiver;
mod samples;
mod stage;
mod tally;

use super::output::Output;
use super::settings::{meant, warn_of_strange_names};
use super::{Ended, Failure, logging, serve};
use crate::config::{From, Typed};
use crate::daemon;
use crate::store::disk::FileDisk;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// `streaming-hub dev`
#[derive(clap::Args)]
pub(super) struct Dev {
    /// Stop playing after so many records (they repeat, with new ids); by default goes on, with --once one round
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// Exit when all played events are settled, with a summary
    #[arg(long)]
    once: bool,
    /// Print the summary as JSON; everything else goes to standard error
    #[arg(long)]
    json: bool,
    /// Records a second; by default 5, with --once or --events as fast as they are taken
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// Point the demo subscriptions at that path of the receiver: /ok /fail /flaky /slow /limit /gone /redirect
    #[arg(long, value_name = "PATH", default_value = "/ok", value_parser = path_of_receiver)]
    fault: String,
    /// Keep the store of the last run; by default it begins empty
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    typed: Typed,
}

fn path_of_receiver(text: &str) -> Result<String, String> {
    let path = if text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
    let known = receiver::PATHS.split(' ').any(|known| known == path);
    if known { Ok(path) } else { Err(format!("the receiver's paths are {}", receiver::PATHS)) }
}

impl Dev {
    pub(super) fn run(mut self, output: Output) -> Result<Ended, Failure> {
        self.overrule();
        let chosen = self.choose_port()?;
        let settings = meant(&mut self.typed)?;
        if !settings.http.listen.ip().is_loopback() {
            return Err(Failure::Usage("dev serves on loopback only; for other addresses there is serve".to_owned()));
        }
        logging::start(&settings.log);
        warn_of_strange_names();
        let disk = own_store(&settings.data_dir, self.keep)?;
        let ports = stage::Ports {
            api: chosen.map_or_else(|| daemon::bind(&settings.http), Ok)?,
            receiver: TcpListener::bind("127.0.0.1:0").map_err(Failure::io("the receiver's port"))?,
        };
        let script = stage::Script {
            events: self.events,
            once: self.once,
            json: self.json,
            rate: self.rate,
            path: self.fault,
            renew: self.keep,
        };
        serve::runtime()?.block_on(stage::perform(script, settings, disk, ports, output))
    }

    // The usual port, or a free one where that is taken. It is held from here on, so that nobody takes it before the hub does.
    fn choose_port(&mut self) -> Result<Option<TcpListener>, Failure> {
        const NAME: &str = "HTTP_LISTEN_ADDR";
        let Some(given) = self.typed.get(NAME).filter(|given| given.from == From::Default) else { return Ok(None) };
        let port = TcpListener::bind(&given.text).or_else(|_| TcpListener::bind("127.0.0.1:0"));
        let port = port.map_err(Failure::io("the API's port"))?;
        let address = port.local_addr().map_err(Failure::io("the API's port"))?;
        self.typed.set(NAME, address.to_string(), From::Command("dev"));
        Ok(Some(port))
    }

    // What `dev` is stands over the environment, which may be one of production; the rest may be chosen.
    fn overrule(&mut self) {
        let dev = || From::Command("dev");
        let typed = &mut self.typed;
        let data_dir = typed.get("DATA_DIR").map_or_else(|| "./data".to_owned(), |given| given.text.clone());
        typed.set("DATA_DIR", PathBuf::from(data_dir).join("dev").display().to_string(), dev());
        for (name, text) in [
            ("ENV", "local"),
            ("MULTI_TENANT_ENABLED", "true"),
            ("HTTP_INGEST_ENABLED", "true"),
            ("ALLOW_PRIVATE_SINKS", "true"),
            ("ALLOW_HTTP_SINKS", "true"),
            ("KEK_SOURCE", "env"),
            ("KEK_REF", ""),
            ("RETRY_SCHEDULE", "0s,1s,2s"),
            ("HTTP_TLS_CERT", ""),
            ("HTTP_TLS_KEY", ""),
        ] {
            typed.set(name, text, dev());
        }
        // The receiver is at some free port, and so is whatever a developer tries beside it.
        typed.set_default("SINK_PORTS", "1-65535", dev());
        typed.set_default("LOG_LEVEL", "warn", dev());
        // A demonstration also runs where the disk is nearly full.
        typed.set_default("STORE_RESERVE_BYTES", "0", dev());
        // Cooling for as long as in production would make a fault path take hours to settle.
        typed.set_default("BREAKER_COOLING", "100ms", dev());
        typed.set_default("BREAKER_COOLING_MAX", "250ms", dev());
    }
}

/// Takes the folder of `dev`, and empties it unless the last run's store is wanted.
fn own_store(folder: &Path, keep: bool) -> Result<FileDisk, Failure> {
    let disk = FileDisk::take(folder).map_err(daemon::DaemonError::from)?;
    if !keep {
        for name in ["hub.redb", "hub.redb.new", "kek"] {
            let path = folder.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Failure::io(path.display().to_string())(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(disk)
}
