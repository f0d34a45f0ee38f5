//! A receiver of webhooks that is fast enough to never be what limits: one thread, kept connections, HTTP/1.1 by hand. It records every
//! delivery in the order of arrival, and answers as it is told.
//!
//! A tenant's deliveries come to `/t/<tenant>`, so that one that reached the wrong destination shows.

use super::request::Request;
use super::wall_us;
use bytes::{Buf as _, BytesMut};
use ring::hmac;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How far a signature's time may be off (C9.1).
const FRESH_SECONDS: u64 = 300;

/// What a delivery is met with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meets {
    /// 200.
    Thanks,
    /// 200, a while later.
    ThanksAfter(Duration),
    /// No answer, ever.
    Silence,
    /// 429 with an hour of `Retry-After`.
    NotNow,
    /// That status.
    Status(u16),
    /// 500 to one delivery in so many, by chance; 200 to all others.
    FailureOneIn(u64),
}

/// What the receiver found of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    Right,
    Wrong,
    /// Only some are looked at when time is measured.
    Unlooked,
}

/// A delivery that came in whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Whose destination it reached, as a number of [`Receiver::tenant`].
    pub(crate) tenant: u32,
    /// Whether its headers and its body name that tenant as well.
    pub(crate) is_own: bool,
    /// `ce-id`.
    pub(crate) event: u128,
    /// Delivery id, new on each attempt.
    pub(crate) delivery: u128,
    /// `X-Lerian-Attempt`.
    pub(crate) attempt: u32,
    /// `X-Lerian-Seq`.
    pub(crate) seq: u64,
    /// The number that the loader gave it within its tenant.
    pub(crate) n: u64,
    /// Checksum of the body.
    pub(crate) checksum: u32,
    /// When it was produced, in microseconds.
    pub(crate) produced_us: u64,
    /// When it was here, in microseconds.
    pub(crate) received_us: u64,
    /// Its signature.
    pub(crate) signature: Signature,
}

/// A running receiver; stops when dropped.
pub(crate) struct Receiver {
    port: u16,
    shared: Arc<Mutex<Shared>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    tenants: HashMap<String, u32>,
    secrets: HashMap<String, hmac::Key>,
    meets: HashMap<String, Meets>,
    otherwise: Meets,
    look_at_one_in: usize,
    clock_ahead: i64,
    /// Signatures of the machine's time where another is set.
    of_the_machine: Cell<usize>,
    /// The port of whoever was accepted last.
    last_peer: u16,
    arrivals: Vec<Arrival>,
    probes: usize,
    connections: usize,
}

impl Receiver {
    /// Starts one that says thanks to everything and looks at every signature.
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Mutex::new(Shared {
            tenants: HashMap::new(),
            secrets: HashMap::new(),
            meets: HashMap::new(),
            otherwise: Meets::Thanks,
            look_at_one_in: 1,
            clock_ahead: 0,
            of_the_machine: Cell::new(0),
            last_peer: 0,
            arrivals: Vec::new(),
            probes: 0,
            connections: 0,
        }));
        let (port, stop) = (super::free_port(), CancellationToken::new());
        let mut receiver = Self { port, shared, stop, thread: None };
        receiver.come_back();
        receiver
    }

    /// Closes everything: connections break, and new ones are refused.
    pub(crate) fn go_away(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.with(|shared| shared.connections = 0);
    }

    /// Listens again.
    pub(crate) fn come_back(&mut self) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.stop = CancellationToken::new();
        let (told, stopped) = (self.shared.clone(), self.stop.clone());
        let thread = std::thread::Builder::new().name("receiver".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = accept(listener, told) => {}
                }
            });
        });
        self.thread = Some(thread.unwrap());
    }

    /// Where it listens on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where that tenant's deliveries go.
    pub(crate) fn url(&self, tenant: &str) -> String {
        format!("http://127.0.0.1:{}/t/{tenant}", self.port)
    }

    /// Gives it the secret of a tenant's subscription.
    pub(crate) fn learn(&self, tenant: &str, secret: &str) {
        self.with(|shared| {
            shared.secrets.insert(tenant.to_owned(), hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()))
        });
    }

    /// Looks at one signature in so many.
    pub(crate) fn look_at_one_in(&self, many: usize) {
        self.with(|shared| shared.look_at_one_in = many);
    }

    /// Its clock is so many seconds ahead from now on, as the hub's is.
    pub(crate) fn clock_is_ahead(&self, seconds: i64) {
        self.with(|shared| shared.clock_ahead = seconds);
    }

    /// Signatures that were of the machine's time while the clock was ahead: for the library that sets a clock tells the machine's now and then,
    /// when one thread asks while another makes it read the setting again.
    pub(crate) fn signed_by_the_machine(&self) -> usize {
        self.with(|shared| shared.of_the_machine.get())
    }

    /// From now on every tenant's deliveries meet that.
    pub(crate) fn meet_all(&self, meets: Meets) {
        self.with(|shared| {
            shared.meets.clear();
            shared.otherwise = meets;
        });
    }

    /// From now on that tenant's deliveries meet that.
    pub(crate) fn meet(&self, tenant: &str, meets: Meets) {
        self.with(|shared| shared.meets.insert(tenant.to_owned(), meets));
    }

    /// How many deliveries came.
    pub(crate) fn count(&self) -> usize {
        self.with(|shared| shared.arrivals.len())
    }

    /// How many connections are open. When a killed hub's are all closed, the last that it sent is in.
    pub(crate) fn connections(&self) -> usize {
        self.with(|shared| shared.connections)
    }

    /// Waits until everything that a hub sent which is gone now has been taken in.
    pub(crate) fn has_taken_all_in(&self) {
        // Who connects now is accepted after everybody who waits to be.
        let last = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let port = last.local_addr().unwrap().port();
        let within = Duration::from_secs(15);
        super::until_true("the last is accepted", within, || self.with(|shared| shared.last_peer == port));
        drop(last);
        super::until_true("a dead hub's connections are closed", within, || self.connections() == 0);
    }

    /// How many probes came.
    pub(crate) fn probes(&self) -> usize {
        self.with(|shared| shared.probes)
    }

    /// Every delivery, in the order of arrival.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.with(|shared| shared.arrivals.clone())
    }

    /// Those from the given one on.
    pub(crate) fn arrivals_from(&self, first: usize) -> Vec<Arrival> {
        self.with(|shared| shared.arrivals[first..].to_vec())
    }

    /// Drops what is recorded of a tenant.
    pub(crate) fn forget(&self, name: &str) {
        self.with(|shared| {
            let number = shared.tenants.get(name).copied();
            shared.arrivals.retain(|arrival| Some(arrival.tenant) != number);
        });
    }

    /// The number of a tenant, where one of its deliveries came.
    pub(crate) fn tenant(&self, name: &str) -> Option<u32> {
        self.with(|shared| shared.tenants.get(name).copied())
    }

    /// The numbers of all tenants.
    pub(crate) fn tenants(&self) -> HashMap<String, u32> {
        self.with(|shared| shared.tenants.clone())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Shared) -> T) -> T {
        look(&mut self.shared.lock().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.go_away();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Mutex<Shared>>) {
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let shared = shared.clone();
        {
            let mut shared = shared.lock().unwrap();
            shared.connections += 1;
            shared.last_peer = peer.port();
        }
        tokio::spawn(async move {
            serve(stream, &shared).await;
            shared.lock().unwrap().connections -= 1;
        });
    }
}

// A connection that breaks is the hub's business: what did not come in whole did not come.
async fn serve(mut stream: TcpStream, shared: &Mutex<Shared>) {
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    loop {
        let Some((length, answer)) = Request::read(&buffer).map(|request| {
            let answer = shared.lock().unwrap().answer(&request);
            (request.length, answer)
        }) else {
            buffer.reserve(8 * 1024);
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            }
        };
        buffer.advance(length);
        let text = match answer {
            Said::Static(text) => text.as_bytes(),
            Said::Text(ref text) => text.as_bytes(),
            Said::After(pause) => {
                tokio::time::sleep(pause).await;
                THANKS.as_bytes()
            }
            Said::Nothing => {
                // Until the other side gives up.
                let _ = stream.read_buf(&mut buffer).await;
                return;
            }
        };
        if stream.write_all(text).await.is_err() {
            return;
        }
    }
}

enum Said {
    Static(&'static str),
    Text(String),
    After(Duration),
    Nothing,
}

const THANKS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
const NOT_NOW: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";

impl Shared {
    fn answer(&mut self, request: &Request<'_>) -> Said {
        assert_eq!(request.method, "POST");
        if request.event.is_empty() {
            let probe: serde_json::Value = serde_json::from_slice(request.body).unwrap();
            assert_eq!(probe["type"], "subscription.verification");
            self.probes += 1;
            let answer = serde_json::json!({ "challenge": probe["challenge"] }).to_string();
            return Said::Text(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len()));
        }
        let tenant = request.path.strip_prefix("/t/").expect("a destination of ours");
        let arrival = self.arrival(tenant, request);
        // Delivery ids are as good as chance, and new on every attempt.
        let chance = arrival.delivery as u64;
        self.arrivals.push(arrival);
        match self.meets.get(tenant).unwrap_or(&self.otherwise) {
            Meets::Thanks => Said::Static(THANKS),
            Meets::ThanksAfter(pause) => Said::After(*pause),
            Meets::Silence => Said::Nothing,
            Meets::NotNow => Said::Static(NOT_NOW),
            Meets::FailureOneIn(many) if chance.is_multiple_of(*many) => Said::Static(FAILED),
            Meets::FailureOneIn(_) => Said::Static(THANKS),
            Meets::Status(status) => Said::Text(format!("HTTP/1.1 {status} Told\r\ncontent-length: 0\r\n\r\n")),
        }
    }

    fn arrival(&mut self, tenant: &str, request: &Request<'_>) -> Arrival {
        let body = Body::read(request.body);
        let known = self.tenants.get(tenant).copied();
        let number = known.unwrap_or_else(|| {
            let next = u32::try_from(self.tenants.len()).unwrap();
            self.tenants.insert(tenant.to_owned(), next);
            next
        });
        Arrival {
            tenant: number,
            is_own: request.tenant == tenant && body.tenant == tenant,
            event: uuid(request.event),
            delivery: uuid(request.delivery.strip_prefix("dlv_").expect("a delivery id")),
            attempt: request.attempt.parse().unwrap(),
            seq: request.seq.parse().unwrap(),
            n: body.n,
            checksum: checksum(request.body),
            produced_us: body.produced_us,
            received_us: wall_us(),
            signature: self.signature(tenant, request),
        }
    }

    // By another way than the hub's own code: the contract's words in C9.1, and nothing else.
    fn signature(&self, tenant: &str, request: &Request<'_>) -> Signature {
        if !self.arrivals.len().is_multiple_of(self.look_at_one_in) {
            return Signature::Unlooked;
        }
        let Some(key) = self.secrets.get(tenant) else { return Signature::Wrong };
        let Ok(at) = request.timestamp.parse::<u64>() else { return Signature::Wrong };
        let mut input = Vec::with_capacity(request.body.len() + 32);
        input.extend_from_slice(b"v1:");
        input.extend_from_slice(request.timestamp.as_bytes());
        input.push(b'.');
        input.extend_from_slice(request.body);
        let tag = hmac::sign(key, &input);
        let hex = tag.as_ref().iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}"));
        let is_right = request.signatures == [&*format!("v1,sha256={hex}"), ""];
        let is_of = |ahead| (wall_us() / 1_000_000).saturating_add_signed(ahead).abs_diff(at) <= FRESH_SECONDS;
        let is_of_the_machine = self.clock_ahead != 0 && is_of(0);
        self.of_the_machine.set(self.of_the_machine.get() + usize::from(is_of_the_machine));
        if is_right && (is_of(self.clock_ahead) || is_of_the_machine) { Signature::Right } else { Signature::Wrong }
    }
}

/// What the loader writes at the beginning of each body: `{"tenant":"…","n":…,"at":…,`. Other bodies have none of it.
#[derive(Default)]
struct Body<'a> {
    tenant: &'a str,
    n: u64,
    produced_us: u64,
}

impl<'a> Body<'a> {
    fn read(body: &'a [u8]) -> Self {
        let begin = &body[..body.len().min(200)];
        let begin = std::str::from_utf8(begin)
            .unwrap_or_else(|error| std::str::from_utf8(&begin[..error.valid_up_to()]).expect("valid up to there"));
        let mut fields = begin.split(',');
        let mut read = || {
            let tenant = fields.next()?.strip_prefix("{\"tenant\":\"")?.strip_suffix('"')?;
            let n = fields.next()?.strip_prefix("\"n\":")?.trim_end_matches('}').parse().ok()?;
            let at = fields.next().and_then(|at| at.strip_prefix("\"at\":")?.parse().ok());
            Some(Self { tenant, n, produced_us: at.unwrap_or(0) })
        };
        read().unwrap_or_default()
    }
}

// The loader's own: CRC-32 of gzip.
fn checksum(body: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(body);
    sum.sum()
}

fn uuid(text: &str) -> u128 {
    let digits = text.bytes().filter(|byte| *byte != b'-');
    digits.fold(0, |number, digit| number << 4 | u128::from(char::from(digit).to_digit(16).expect("a hex digit")))
}
