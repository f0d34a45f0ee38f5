//! Receivers on bare sockets that do what a line of text says: `read | send HTTP/1.1 200 OK\r\n\r\n | close`.
//!
//! | step | does |
//! | --- | --- |
//! | `read` | reads a request whole (its `Content-Length`) and records it |
//! | `take N` | reads N bytes |
//! | `sip MS` | reads a byte every MS milliseconds, for ever |
//! | `stream` | reads HTTP/2 frames up to the end of a request |
//! | `send TEXT` | sends it; `\r`, `\n`, `\t` and `\xNN` stand for bytes |
//! | `repeat N TEXT` | sends it N times, or for ever with `*` |
//! | `drip MS TEXT` | sends it byte by byte, MS milliseconds apart, from its start again at its end |
//! | `under TEXT` | sends it below TLS |
//! | `tls good`, `expired`, `early`, `other-name`, `self-signed`, `stranger` | TLS from here on, with such a certificate; `-h2` behind it: HTTP/2 |
//! | `hold` | keeps the connection open, reading, until the peer leaves |
//! | `hold unread` | keeps it open and reads nothing |
//! | `close` | ends the connection at once, without a TLS goodbye |
//! | `reset` | resets the connection |
//!
//! Several scripts joined by `||` are for one connection each; the last one is for all that follow. The script `deaf` is alone: nobody
//! answers those who connect.

use super::https::{Authority, Certified, self_signed, server_tls};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A running scripted receiver; stops when dropped.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    /// Requests as they came over the wire.
    pub(crate) requests: mpsc::UnboundedReceiver<Vec<u8>>,
    connections: Arc<AtomicUsize>,
    ended: watch::Receiver<usize>,
    _tasks: JoinSet<()>,
    _filling: Vec<Socket>,
}

impl Scripted {
    /// Starts one; `authority` is the one that its peers trust.
    pub(crate) async fn start(script: &str, authority: &Arc<Authority>) -> Self {
        if script == "deaf" {
            return Self::deaf();
        }
        let scripts: Vec<Vec<Step>> = script.split("||").map(steps).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let (connections, authority) = (Arc::new(AtomicUsize::new(0)), authority.clone());
        let (counted, (over, ended)) = (connections.clone(), watch::channel(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut running = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let n = counted.fetch_add(1, Ordering::SeqCst);
                let script = scripts[n.min(scripts.len() - 1)].clone();
                let (sender, authority, over) = (sender.clone(), authority.clone(), over.clone());
                running.spawn(async move {
                    // The peer's leaving is how most of them end.
                    let _ = play(tcp, script, sender, &authority).await;
                    over.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self { address, requests, connections, ended, _tasks: tasks, _filling: Vec::new() }
    }

    /// Listens with its queue full and never accepts: the kernel leaves further connects without an answer.
    fn deaf() -> Self {
        let socket = |_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = socket(0);
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut filling: Vec<_> = (0..4).map(socket).collect();
        for one in &filling {
            one.set_nonblocking(true).unwrap();
            let _ = one.connect(&address);
        }
        filling.push(listener);
        let address = address.as_socket().unwrap();
        let (requests, connections, ended) = (mpsc::unbounded_channel().1, Arc::default(), watch::channel(0).1);
        Self { address, requests, connections, ended, _tasks: JoinSet::new(), _filling: filling }
    }

    /// How many connections were made to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Waits until that many connections have ended.
    pub(crate) async fn ended(&mut self, count: usize) {
        self.ended.wait_for(|ended| *ended >= count).await.unwrap();
    }

    /// The next request's text.
    pub(crate) async fn next(&mut self) -> String {
        String::from_utf8_lossy(&self.requests.recv().await.unwrap()).into_owned()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Read,
    Take(usize),
    Sip(Duration),
    Stream,
    Send(Vec<u8>),
    Under(Vec<u8>),
    Repeat(Option<usize>, Vec<u8>),
    Drip(Duration, Vec<u8>),
    Tls(String),
    Hold,
    HoldUnread,
    Close,
    Reset,
}

fn steps(script: &str) -> Vec<Step> {
    script.split(" | ").map(|step| step.trim()).filter(|step| !step.is_empty()).map(step).collect()
}

fn step(text: &str) -> Step {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let numbered = || rest.split_once(' ').unwrap_or((rest, ""));
    match verb {
        "read" => Step::Read,
        "take" => Step::Take(rest.parse().unwrap()),
        "sip" => Step::Sip(Duration::from_millis(rest.parse().unwrap())),
        "stream" => Step::Stream,
        "send" => Step::Send(bytes(rest)),
        "under" => Step::Under(bytes(rest)),
        "repeat" => Step::Repeat(numbered().0.parse().ok(), bytes(numbered().1)),
        "drip" => Step::Drip(Duration::from_millis(numbered().0.parse().unwrap()), bytes(numbered().1)),
        "tls" => Step::Tls(rest.to_owned()),
        "hold" if rest == "unread" => Step::HoldUnread,
        "hold" => Step::Hold,
        "close" => Step::Close,
        "reset" => Step::Reset,
        other => panic!("no step {other:?} in {text:?}"),
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next().unwrap() {
                'r' => out.push(b'\r'),
                'n' => out.push(b'\n'),
                't' => out.push(b'\t'),
                'x' => {
                    let digits: String = chars.by_ref().take(2).collect();
                    out.push(u8::from_str_radix(&digits, 16).unwrap());
                }
                other => panic!("no escape \\{other}"),
            },
            c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    out
}

async fn play(
    tcp: TcpStream,
    script: Vec<Step>,
    requests: mpsc::UnboundedSender<Vec<u8>>,
    authority: &Authority,
) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    // Kept aside: a reset is asked of the socket, whatever runs over it.
    let socket = std::os::fd::AsFd::as_fd(&tcp).try_clone_to_owned()?;
    let mut stream: Box<dyn Stream> = Box::new(tcp);
    for step in script {
        match step {
            Step::Read => {
                let request = read_request(&mut stream).await?;
                let _ = requests.send(request);
            }
            Step::Take(count) => {
                stream.read_exact(&mut vec![0; count]).await?;
            }
            Step::Sip(every) => loop {
                tokio::time::sleep(every).await;
                stream.read_exact(&mut [0]).await?;
            },
            Step::Stream => read_stream(&mut stream).await?,
            Step::Send(bytes) => stream.write_all(&bytes).await?,
            Step::Under(bytes) => {
                stream.flush().await?;
                (&*SockRef::from(&socket)).write_all(&bytes)?;
            }
            Step::Repeat(times, bytes) => {
                let mut sent = 0;
                while times.is_none_or(|times| sent < times) {
                    stream.write_all(&bytes).await?;
                    sent += 1;
                }
            }
            Step::Drip(every, bytes) => {
                for byte in bytes.iter().cycle() {
                    tokio::time::sleep(every).await;
                    stream.write_all(&[*byte]).await?;
                    stream.flush().await?;
                }
            }
            Step::Tls(kind) => {
                let (kind, alpn) = match kind.strip_suffix("-h2") {
                    Some(kind) => (kind, "h2"),
                    None => (kind.as_str(), "http/1.1"),
                };
                let certified = certificate(kind, authority);
                let acceptor = TlsAcceptor::from(server_tls(&certified, &[alpn], None));
                stream = Box::new(acceptor.accept(stream).await?);
            }
            Step::Hold => while stream.read(&mut [0; 4096]).await? > 0 {},
            Step::HoldUnread => std::future::pending().await,
            Step::Close => break,
            Step::Reset => {
                SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
                break;
            }
        }
        stream.flush().await?;
    }
    Ok(())
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

fn certificate(kind: &str, authority: &Authority) -> Certified {
    match kind {
        "good" => authority.certificate(&["receiver.test"]),
        "expired" => authority.valid(&["receiver.test"], 2019, 2020),
        "early" => authority.valid(&["receiver.test"], 2098, 2099),
        "other-name" => authority.certificate(&["other.test"]),
        "self-signed" => self_signed("receiver.test"),
        "stranger" => Authority::new().certificate(&["receiver.test"]),
        other => panic!("no certificate {other:?}"),
    }
}

async fn read_request(stream: &mut Box<dyn Stream>) -> io::Result<Vec<u8>> {
    let mut got = Vec::new();
    loop {
        if let Some(head) = got.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&got[..head]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if got.len() >= head + 4 + length.unwrap_or(0) {
                return Ok(got);
            }
        }
        if stream.read_buf(&mut got).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads HTTP/2 frames until one of them ends a stream.
async fn read_stream(stream: &mut Box<dyn Stream>) -> io::Result<()> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await?;
        // DATA and HEADERS have the flag END_STREAM.
        if matches!(head[3], 0 | 1) && head[4] & 1 != 0 {
            return Ok(());
        }
    }
}
