//! One client: one request, one answer, within the limits.

use super::answers::{Answer, Beside, Question, answer, error};
use super::events;
use super::peer::Peer;
use super::{Landing, Limits, Metrics, Options};
use crate::gate::feed::Listener;
use crate::gate::files::bypasses;
use crate::gate::readers::Readers;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Sleep;

/// The same about the same user is logged once in this time.
const NOTE_EVERY: Duration = Duration::from_secs(60);
/// Users about whom it is remembered when something was logged.
const NOTES: usize = 256;

/// What all connections need.
pub(super) struct Desk {
    listener: Listener,
    readers: Readers,
    limits: Limits,
    metrics: Metrics,
    landing: Landing,
    /// The run dir.
    run: PathBuf,
    noted: Mutex<BTreeMap<(&'static str, Option<u32>), Instant>>,
}

impl Desk {
    pub(super) fn new(listener: Listener, options: &Options) -> Self {
        Desk {
            listener,
            readers: options.readers,
            limits: options.limits.clone(),
            metrics: options.metrics.clone(),
            landing: options.landing.clone(),
            run: options.run.clone(),
            noted: Mutex::default(),
        }
    }

    /// Logs what a client did, but not as often as it does it.
    pub(super) fn note(&self, what: &'static str, peer: &Peer) {
        let user = match peer {
            Peer::User { uid, .. } => Some(*uid),
            Peer::Unknown | Peer::Tcp(_) => None,
        };
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, at| at.elapsed() < NOTE_EVERY);
        if noted.len() < NOTES && noted.insert((what, user), Instant::now()).is_none() {
            tracing::warn!(event = "http.denied", "{peer} {what}");
        }
    }

    fn respond(&self, request: &Request<Incoming>, peer: &Peer) -> (Response<Body>, bool) {
        let uri = request.uri();
        let question = Question {
            method: request.method(),
            path: uri.path(),
            query: uri.query(),
            permitted: peer.may_read(self.readers),
        };
        let beside = Beside { metrics: &*self.metrics, landing: &self.landing, bypassed: &|| bypasses(&self.run) };
        let answer = answer(question, &self.listener.now(), beside);
        if let Answer::Denied = answer {
            self.note("may not read the status", peer);
        }
        let streams = matches!(answer, Answer::Events) && request.method() == Method::GET;
        let follow = uri.query().is_none_or(|query| query.split('&').all(|part| part != "follow=false"));
        let body = || if streams { Body::Lines(events::lines(&self.listener, follow)) } else { Body::Whole(None) };
        (answer.into_response(body), streams)
    }
}

/// Serves one client until it has its answer or has used up its limits.
pub(super) async fn serve<S>(stream: S, peer: Peer, desk: &Desk)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limits = &desk.limits;
    let told = Arc::new(Told::default());
    let line = Line { stream, told: told.clone(), stall: limits.stall, stalled: None };
    let service = service_fn(|request: Request<Incoming>| {
        let (response, streams) = desk.respond(&request, &peer);
        told.streams.store(streams, Ordering::Relaxed);
        told.answered.store(true, Ordering::Relaxed);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head)
        .keep_alive(false)
        .serve_connection(TokioIo::new(line), service);
    let mut time = pin!(tokio::time::sleep(limits.time));
    let ended = tokio::select! {
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => Some(ended),
        () = &mut time => None,
    };
    let ended = match ended {
        None if told.streams.load(Ordering::Relaxed) => Some(poll_fn(|cx| connection.poll_without_shutdown(cx)).await),
        ended => ended,
    };
    let mut stream = connection.into_parts().io.into_inner().stream;
    let last_words = async {
        if let Some(Err(error)) = ended
            && !told.answered.load(Ordering::Relaxed)
            && let Some(refusal) = refusal(&error)
        {
            stream.write_all(&refusal.to_bytes()).await?;
        }
        stream.shutdown().await
    };
    // Whether a client that is let go hears so is its own affair.
    let _heard = tokio::time::timeout(limits.stall, last_words).await;
}

/// What is said to what is no request; `None` where nobody listens any more.
fn refusal(what: &hyper::Error) -> Option<Answer> {
    if what.is_parse_too_large() {
        Some(error(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request head is too large"))
    } else if what.is_parse() {
        Some(error(StatusCode::BAD_REQUEST, "this is no HTTP/1.1 request"))
    } else if what.is_timeout() {
        Some(error(StatusCode::REQUEST_TIMEOUT, "the request took too long"))
    } else {
        None
    }
}

/// How far a connection has come.
#[derive(Debug, Default)]
struct Told {
    /// A request was understood: what hyper writes is our answer.
    answered: AtomicBool,
    /// It is a stream.
    streams: AtomicBool,
}

/// The client's stream, which ends when the client reads nothing for too long.
#[derive(Debug)]
struct Line<S> {
    stream: S,
    told: Arc<Told>,
    stall: Duration,
    /// Runs while there is something to write that the client does not take.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.told.answered.load(Ordering::Relaxed) {
            // hyper's own answer to what is no request has no body. Ours follows when it has given up.
            return Poll::Ready(Ok(buf.len()));
        }
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, buf) {
            self.stalled = None;
            return Poll::Ready(written);
        }
        let stall = self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An answer's body.
#[derive(Debug)]
pub(super) enum Body {
    Whole(Option<Bytes>),
    Lines(mpsc::Receiver<Bytes>),
}

impl Body {
    pub(super) fn whole(text: String) -> Self {
        Body::Whole(Some(Bytes::from(text)))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Lines(lines) => lines.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_none(),
            Body::Lines(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Body::Lines(_) => SizeHint::new(),
        }
    }
}
