//! HTTP: on the Unix socket `<run>/volhold.sock`, and on a loopback address where one is configured. It only tells.
//!
//! | path | answer |
//! |---|---|
//! | `/` | for a browser: the status as a page |
//! | `/livez` | 200: the agent runs |
//! | `/readyz` | 200 when every gate is open, else 503; with `?verbose` a line for each guard, as kubelet and API server print it |
//! | `/v1/status` | the document of `volhold status -o json` |
//! | `/v1/guards/NAME` | one guard of it |
//! | `/metrics` | for Prometheus, text format |
//! | `/v1/events` | the state of each guard, then each change, one JSON object a line, until the client leaves; with `?follow=false` only the state |
//!
//! All of it runs on a thread of its own, fed by [`Listener`]: no guard and no decision ever waits for a client, and a client
//! that floods this thread costs other clients, not a gate. One connection serves one request. What a client may cost is
//! bounded by [`Limits`]: how many there are (and of one user), how large a request head is and how long it takes, how long a
//! client reads nothing, how far behind the events it falls. Requests have no bodies here; one that is sent is not read.
//!
//! Whether this works is never a reason to hold: gates are files, and nothing of volhold asks this socket.

/// What is answered to what.
mod answers;
/// One client.
mod connection;
/// `/v1/events`.
mod events;
/// Who asks, and who may.
mod peer;
/// How many at once.
mod places;
/// The socket's file.
mod socket;

pub use socket::{SocketError, socket_path};

use super::feed::{Listener, Snapshot};
use super::readers::Readers;
use crate::model::StatusDocument;
use connection::Desk;
use peer::Peer;
use places::Places;
use socket::Bound;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;

/// How often it is looked whether the socket is still there, and tried again where it could not be made.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Pause after an accept that failed: there are no descriptors left, which time may cure and hurry does not.
const BREATH: Duration = Duration::from_millis(200);

/// What a client may cost. The defaults are what runs; tests make some smaller.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections to the socket at once.
    pub connections: usize,
    /// Of those, all users but root and the agent's own together: they cannot shut root out.
    pub others: usize,
    /// Of those, one such user.
    pub one_user: usize,
    /// Connections over TCP, where nobody can be told from anybody.
    pub tcp: usize,
    /// Bytes of a request head. hyper allows no less than 8 KiB.
    pub head: usize,
    /// Time to send it.
    pub head_time: Duration,
    /// Time for the whole of a request and its answer, but for events.
    pub time: Duration,
    /// Time in which a client that has something to read reads nothing.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 64,
            others: 48,
            one_user: 16,
            tcp: 32,
            head: 16 * 1024,
            head_time: Duration::from_secs(5),
            time: Duration::from_secs(30),
            stall: Duration::from_secs(10),
        }
    }
}

/// Where to listen, and to whom.
#[derive(Clone)]
pub struct Options {
    /// The run dir, in which the socket lies.
    pub run: PathBuf,
    /// A loopback address; the configuration takes no other.
    pub listen: Option<SocketAddr>,
    pub readers: Readers,
    pub limits: Limits,
    /// Makes the text of `/metrics`, on the server's thread.
    pub metrics: Metrics,
    pub landing: Landing,
}

/// The page at `/`.
#[derive(Clone)]
pub struct Landing {
    /// Its `Content-Security-Policy`.
    pub policy: &'static str,
    /// Makes its HTML, on the server's thread.
    pub page: Arc<dyn Fn(&StatusDocument) -> String + Send + Sync>,
}

/// The text of `/metrics`, or why there is none.
pub type Metrics = Arc<dyn Fn(&Snapshot) -> Result<String, String> + Send + Sync>;

/// Hears what does not work (`None`: all does).
pub type Complain = Box<dyn Fn(Option<String>) + Send>;

/// The running server. Dropping it ends it, and takes the socket away if it is still this one.
#[derive(Debug)]
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts it. What cannot be listened on is told to `complain` and tried again later. Returns when it has been tried once.
    pub fn start(options: Options, listener: Listener, complain: Complain) -> std::io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (tried, first_try) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(serve(options, listener, complain, stopped, tried));
            // Clients are cut off with it.
            runtime.shutdown_background();
        })?;
        // Nothing in it can hang: all that is done until then is on a tmpfs and on sockets of this machine.
        let _tried = first_try.recv_timeout(Duration::from_secs(2));
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(_panicked)) = self.thread.take().map(std::thread::JoinHandle::join) {
            tracing::error!(event = "http.panicked", "the HTTP server had panicked");
        }
    }
}

async fn serve(
    options: Options,
    listener: Listener,
    complain: Complain,
    mut stopped: oneshot::Receiver<()>,
    tried: std::sync::mpsc::Sender<()>,
) {
    let desk = Arc::new(Desk::new(listener, &options));
    let places = Places::new(&options.limits);
    let mut doors = Doors { options, socket: None, tcp: None, complain };
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            _ = look.tick() => {
                doors.open().await;
                // Only the first one is waited for.
                let _waiting = tried.send(());
            }
            accepted = accept(&doors.socket, async |bound: &Bound| bound.listener.accept().await) => match accepted {
                Ok((stream, _)) => admit(Peer::of_socket(&stream), stream, &places, &desk),
                Err(error) => refused(&error).await,
            },
            accepted = accept(&doors.tcp, async |tcp: &TcpListener| tcp.accept().await) => match accepted {
                Ok((stream, from)) => admit(Peer::Tcp(from), stream, &places, &desk),
                Err(error) => refused(&error).await,
            },
        }
    }
    doors.close();
}

/// Waits for ever where there is nothing to accept from.
async fn accept<D, T>(door: &Option<D>, ask: impl AsyncFnOnce(&D) -> std::io::Result<T>) -> std::io::Result<T> {
    match door {
        Some(door) => ask(door).await,
        None => std::future::pending().await,
    }
}

async fn refused(error: &std::io::Error) {
    tracing::warn!(event = "http.accept", %error, "cannot take a connection");
    tokio::time::sleep(BREATH).await;
}

/// Gives the client a place, or tells it in one line that there is none.
fn admit<S: Client>(peer: Peer, stream: S, places: &Places, desk: &Arc<Desk>) {
    match places.take(&peer) {
        Some(place) => {
            let desk = desk.clone();
            tokio::spawn(async move {
                connection::serve(stream, peer, &desk).await;
                drop(place);
            });
        }
        None => {
            desk.note("has too many connections", &peer);
            // What does not fit into its buffer at once is not said.
            let _said = stream.say_now(&answers::too_many().to_bytes());
        }
    }
}

/// A stream that a client may be at the other end of.
trait Client: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static {
    /// Without waiting.
    fn say_now(&self, bytes: &[u8]) -> std::io::Result<usize>;
}

impl Client for UnixStream {
    fn say_now(&self, bytes: &[u8]) -> std::io::Result<usize> {
        self.try_write(bytes)
    }
}

impl Client for TcpStream {
    fn say_now(&self, bytes: &[u8]) -> std::io::Result<usize> {
        self.try_write(bytes)
    }
}

/// What is listened on.
struct Doors {
    options: Options,
    socket: Option<Bound>,
    tcp: Option<TcpListener>,
    complain: Complain,
}

impl Doors {
    /// Opens what is not open, also where somebody took the socket's file away.
    async fn open(&mut self) {
        let mut problems = Vec::new();
        if self.socket.as_ref().is_none_or(|bound| !bound.is_there()) {
            self.socket = match Bound::new(&self.options.run) {
                Ok(bound) => Some(bound),
                Err(error) => {
                    problems.push(chain(&error));
                    None
                }
            };
        }
        if let (Some(address), None) = (self.options.listen, &self.tcp) {
            match TcpListener::bind(address).await {
                Ok(tcp) => self.tcp = Some(tcp),
                Err(error) => problems.push(format!("cannot listen on {address}: {error}")),
            }
        }
        for problem in &problems {
            tracing::warn!(event = "http.closed", "{problem}");
        }
        (self.complain)(if problems.is_empty() { None } else { Some(problems.join("; ")) });
    }

    fn close(self) {
        if let Some(bound) = self.socket {
            bound.remove();
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
