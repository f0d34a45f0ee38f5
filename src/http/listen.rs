//! Listeners: TCP, TLS, and the command socket, all serving the same calls; how many connections, and how they end.
//!
//! Invariant: a connection holds one of a fixed number of places, and every one of them ends by itself: idle, slow, when somebody
//! else needs its place, or when the hub stops. Nothing accepted over plain TCP is dropped without a word.

use crate::error::Code;
use crate::http::accepting::Accepting;
use crate::http::crowd::{Crowd, Place};
use crate::http::problem::Problem;
use crate::http::refused::{Worded, last_words};
use crate::http::watch::{Judgement, LOOK_EVERY, Watch, Watched};
use crate::http::{Api, Peer};
use crate::model::limits::{
    CONNECTIONS, REQUEST_HEADERS, REQUEST_HEADERS_BYTES, SOCKET_CONNECTIONS, STREAMS_PER_CONNECTION,
};
use http::Request;
use http::header::{HeaderValue, RETRY_AFTER};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Serves on a TCP listener until `stop`, then lets the connections finish what they have begun. The caller bounds that wait by
/// dropping this future.
pub async fn serve(api: Arc<Api>, listener: TcpListener, tls: Option<TlsAcceptor>, stop: CancellationToken) {
    let crowd = Crowd::new(CONNECTIONS);
    let mut accepting = Accepting::default();
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                accept_failed(&api, &mut accepting, &error, Some(&crowd)).await;
                continue;
            }
        };
        accept_worked(&api, &mut accepting);
        match crowd.enter(address.ip(), Watch::new(api.clock())) {
            Some(place) => {
                let connection = tcp(api.clone(), stream, Peer::Tcp(address), tls.clone(), stop.clone(), place);
                tasks.spawn(connection);
            }
            None => {
                api.metrics().http_refused();
                // Over TLS a refusal would cost the handshake that there is no room for, and an answer in whichever protocol
                // that agrees on: the connection is just closed, which every client takes for a reason to try again.
                if tls.is_none() {
                    let lingering = refusals.clone().try_acquire_owned().ok();
                    tasks.spawn(refuse(stream, api.new_request_id(), lingering));
                }
            }
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Makes the API's port.
///
/// # Errors
/// When it is taken, or not ours to have.
pub fn bind_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    // A port whose former connections are still remembered by the kernel may be taken: else a restart would have to wait.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Makes the command socket (C13.5), for this user and root only. One that a dead process left is replaced: whoever holds the store
/// is the only one who gets here.
///
/// # Errors
/// When the path is too long, its directory is missing, or another kind of file is there.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt as _;
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file has the socket's name")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    // The file takes the mode that the socket has when it is bound, so at no moment can another user connect.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(std::os::fd::OwnedFd::from(socket)))
}

/// Serves on the command socket until `stop`: whoever connects as the same user or as root is the operator (C13.5).
pub async fn serve_unix(api: Arc<Api>, listener: UnixListener, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(SOCKET_CONNECTIONS));
    let mut accepting = Accepting::default();
    let tasks = TaskTracker::new();
    loop {
        // Waiting for a place first: who comes later waits in the backlog of the socket.
        let place = places.clone().acquire_owned();
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = async { (place.await, listener.accept().await) } => accepted,
        };
        let (Ok(place), accepted) = accepted else { break };
        match accepted {
            Ok((stream, _)) if is_operator(&stream) => {
                accept_worked(&api, &mut accepting);
                let (api, stop) = (api.clone(), stop.clone());
                tasks.spawn(async move {
                    let _place = place;
                    let watch = Watch::new(api.clock());
                    drive(api, stream, Peer::Socket, stop, watch, CancellationToken::new()).await;
                });
            }
            Ok(_) => tracing::warn!("another user was refused at the command socket"),
            Err(error) => accept_failed(&api, &mut accepting, &error, None).await,
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Connections that the kernel keeps until they are accepted; it may be told to keep fewer.
const BACKLOG: i32 = 1024;
/// Refused ones that are waited for at once.
const REFUSALS: usize = 256;
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Connections that are let go at once where there are no file descriptors: many may wait to be accepted.
const ROOM: usize = 16;
/// How long one that gives up its place may take to end.
const LEAVE_TIME: Duration = Duration::from_millis(50);

/// A connection that broke before it was accepted is nothing. No file descriptors left is a reason to let one go that rests, and to
/// wait.
async fn accept_failed(api: &Api, accepting: &mut Accepting, error: &io::Error, crowd: Option<&Arc<Crowd>>) {
    let gone = [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
    if gone.contains(&error.kind()) {
        return;
    }
    let failed = accepting.failed(api.clock().monotonic());
    if failed.is_news {
        tracing::warn!(
            %error,
            "connections cannot be accepted; resting ones are closed to make room, and it is tried again and again \
             (no file descriptors left: raise LimitNOFILE or ulimit -n)"
        );
    }
    let made_room = crowd.is_some_and(|crowd| (0..ROOM).filter(|_| crowd.make_room()).count() > 0);
    tokio::time::sleep(if made_room { 2 * LEAVE_TIME } else { failed.wait }).await;
}

fn accept_worked(api: &Api, accepting: &mut Accepting) {
    if let Some(over) = accepting.worked(api.clock().monotonic()) {
        let (lasted_ms, failures) = (crate::time::millis(over.lasted), over.failures);
        tracing::info!(lasted_ms, failures, "connections are accepted again");
    }
}

fn is_operator(stream: &tokio::net::UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

async fn tcp(
    api: Arc<Api>,
    stream: TcpStream,
    peer: Peer,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
    place: Place,
) {
    let (watch, leave) = (place.watch.clone(), place.leave.clone());
    // Answers are small and whole: waiting to fill a segment would only delay them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(tls) = tls else { return drive(api, stream, peer, stop, watch, leave).await };
    let handshake = tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream));
    match leave.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => drive(api, stream, peer, stop, watch, leave).await,
        Some(Ok(Err(error))) => tracing::debug!(%error, "a TLS handshake failed"),
        Some(Err(_)) => tracing::debug!("a TLS handshake took too long"),
        None => tracing::debug!("a TLS handshake made room for others"),
    }
}

/// Serves one connection to its end, which comes by itself, by `stop`, or by `leave` for one that rests.
async fn drive<T>(
    api: Arc<Api>,
    stream: T,
    peer: Peer,
    stop: CancellationToken,
    watch: Arc<Watch>,
    leave: CancellationToken,
) where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = {
        let (api, watch) = (api.clone(), watch.clone());
        service_fn(move |request: Request<Incoming>| {
            let (api, watch) = (api.clone(), watch.clone());
            async move {
                let (due, _running) = watch.head_came(request.version());
                Ok::<_, Infallible>(api.answer(peer, due, request).await)
            }
        })
    };
    let builder = builder();
    let refused = {
        let api = api.clone();
        move |status| api.refused(status)
    };
    let stream = Worded::new(Watched::new(stream, watch.clone()), refused);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let (mut stopping, mut leaving) = (false, false);
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error = %error, "a connection broke");
                }
                return;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = leave.cancelled(), if !leaving => {
                leaving = true;
                connection.as_mut().graceful_shutdown();
                if watch.rests_since().is_some() {
                    // What was answered last may still be on its way out.
                    let _ = tokio::time::timeout(LEAVE_TIME, connection).await;
                    return;
                }
            }
            () = tokio::time::sleep(LOOK_EVERY) => match watch.judge() {
                Judgement::Fine => {}
                Judgement::Over => return,
            },
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The watch judges earlier; this is hyper's own backstop for a head that never ends.
        .header_read_timeout(Duration::from_millis(crate::model::limits::CONNECTION_IDLE_MS))
        // Room above the limit, so that a head somewhat over it still gets a problem and not a bare status.
        .max_buf_size(2 * REQUEST_HEADERS_BYTES)
        .max_headers(REQUEST_HEADERS);
    // As above: somewhat over the limit there is still a problem in answer.
    let headers = u32::try_from(2 * REQUEST_HEADERS_BYTES).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_header_list_size(headers)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Tells a client over the limit to come back, without reading what it wants.
async fn refuse(mut stream: TcpStream, request_id: String, lingering: Option<OwnedSemaphorePermit>) {
    let problem = Problem::new(Code::Overloaded, "the hub serves as many connections as it may; try again");
    let words = last_words(problem.with_header(RETRY_AFTER, HeaderValue::from_static("1")), &request_id);
    let told = async {
        stream.write_all(&words).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection and take the answer with it. Only so many are waited for; of the
        // others that is read which has come.
        let mut rest = [0; 4096];
        while lingering.is_some() && tokio::io::AsyncReadExt::read(&mut stream, &mut rest).await? > 0 {}
        while stream.try_read(&mut rest).is_ok_and(|count| count > 0) {}
        io::Result::Ok(())
    };
    // A client that does not listen is not waited for.
    let _ = tokio::time::timeout(REFUSAL_TIME, told).await;
}
