//! The call that attends a plugin run: beside another one that waits for the run, or alone for a login.

use std::{
    cell::Cell,
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use credbroker_proto::{
    v1::GetCredentialRequest,
    v1alpha1::{Lease, attend_credential_response::Event},
};
use h2::client::{ResponseFuture, SendRequest};

use super::{
    call::{ExchangeError, begin, lost},
    deadline::Deadline,
    grpc::{ATTEND, DEPOSIT, MAX_RESPONSE, RawResponse, attending, framed, head, message, take_framed},
    lease::{LeasedRun, POLL_INTERVAL, has_terminal},
    link::Link,
    wire::Wire,
};

/// How long after the limit of the run its outcome may arrive.
const GRACE: Duration = Duration::from_secs(15);

/// How to attend a run.
pub(super) struct Attend<'a> {
    /// When to begin.
    pub(super) after: Duration,
    /// The request of the first call.
    pub(super) request: &'a GetCredentialRequest,
    /// Whether the plugin runs even if there is a valid credential.
    pub(super) is_login: bool,
    /// Whether the deadline follows the limit of the run.
    pub(super) is_patient: bool,
    pub(super) lines: &'a mut dyn FnMut(&str),
    /// Is called before the plugin gets the terminal of this process; `None`: it does not.
    pub(super) lend: Option<&'a mut dyn FnMut()>,
}

impl Attend<'_> {
    /// Whether the plugin may run in the terminal of this process.
    pub(super) fn lends(&self, is_own: &dyn Fn() -> bool) -> bool {
        self.lend.is_some() && has_terminal() && is_own()
    }
}

/// What the second call has found out.
#[derive(Default)]
struct AttendProgress {
    /// There is a run, and the broker lets the caller attend it.
    has_run: Cell<bool>,
    time_left: Cell<Option<Duration>>,
    /// The plugin is to run in the terminal of this process.
    lease: Cell<Option<Lease>>,
}

/// The response of the first call.
type Answer<'a> = Pin<&'a mut dyn Future<Output = Result<RawResponse, ExchangeError>>>;

/// Attends the run, and returns the response of one of the calls: of this one if there is a run that the caller may attend.
/// `answer` is that of the first call, which a login does not have: it may also wait for something else, and decides then.
#[cold]
pub(super) fn attend(
    attend: Attend<'_>,
    requests: &mut SendRequest<Bytes>,
    (mut connection, mut answer): (Pin<&mut impl Future<Output = Result<(), h2::Error>>>, Option<Answer<'_>>),
    (link, wire): (&mut Link<'_>, &Wire),
    deadline: &mut Deadline<'_>,
    is_own: &dyn Fn() -> bool,
) -> Result<RawResponse, ExchangeError> {
    let context = &mut Context::from_waker(Waker::noop());
    let can_run_plugin = attend.lends(is_own);
    let Attend { request, is_login, is_patient, lines, lend, .. } = attend;
    let mut lend = lend.filter(|_| can_run_plugin);
    // Without a deadline: that of the run counts.
    let response = begin(requests, head(ATTEND, None), attending(request, is_login, can_run_plugin))?;
    let progress = AttendProgress::default();
    let mut attended = pin!(attended(response, lines, &progress));
    let mut has_ended = false;
    let (mut run, mut deposits) = (None::<LeasedRun>, Vec::new());
    loop {
        let ended = connection.as_mut().poll(context);
        if !has_ended && let Poll::Ready(end) = attended.as_mut().poll(context) {
            match end {
                // The first call still waits, for as long as it can.
                Ok(_) if !progress.has_run.get() && answer.is_some() => has_ended = true,
                end => return end,
            }
        }
        // Its deadline is shorter than that of the run.
        if !progress.has_run.get()
            && let Some(answer) = &mut answer
            && let Poll::Ready(answer) = answer.as_mut().poll(context)
        {
            return answer;
        }
        match ended {
            Poll::Ready(Ok(())) => return Err(ExchangeError::Lost("it was closed".into())),
            Poll::Ready(Err(error)) => return Err(lost(error)),
            Poll::Pending => {}
        }
        if let Some(lease) = progress.lease.take()
            && let Some(before) = lend.take()
        {
            deadline.be_quiet();
            before();
            run = Some(LeasedRun::start(lease));
        }
        if let Some(output) = run.as_mut().and_then(LeasedRun::output) {
            // Dropping the response would cancel the call. The answer is that of the call that attends.
            deposits.push(begin(requests, head(DEPOSIT, None), framed(&output))?);
            run = None;
        }
        // Data that was read makes room for more, and calls that began are to be sent.
        if let Poll::Ready(Err(error)) = connection.as_mut().poll(context) {
            return Err(lost(error));
        }
        if let Some(left) = progress.time_left.take().filter(|_| is_patient) {
            deadline.extend(left.saturating_add(GRACE));
        }
        let wake = run.is_some().then(|| deadline.passed().saturating_add(POLL_INTERVAL));
        link.turn(wire, deadline, wake)?;
    }
}

/// Passes on the lines, and returns the response with the last message as its body.
async fn attended(
    response: ResponseFuture,
    lines: &mut dyn FnMut(&str),
    progress: &AttendProgress,
) -> Result<RawResponse, ExchangeError> {
    let (head, mut stream) = response.await.map_err(lost)?.into_parts();
    let (mut body, mut last) = (Vec::new(), Vec::new());
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.map_err(lost)?;
        body.extend_from_slice(&chunk);
        stream.flow_control().release_capacity(chunk.len()).map_err(lost)?;
        while let Some(found) = take_framed(&mut body) {
            let unreadable =
                || ExchangeError::NotGrpc("a message about the plugin run cannot be read".into());
            let Some(news) = message(&found).ok_or_else(unreadable)?.event else { continue };
            let is_of_run = matches!(news, Event::TimeLeft(_) | Event::Lease(_));
            progress.has_run.set(progress.has_run.get() || is_of_run);
            match news {
                Event::Output(output) => output.stderr_lines.iter().for_each(|line| lines(line)),
                Event::TimeLeft(left) => {
                    if let Ok(left) = left.try_into() {
                        progress.time_left.set(Some(left));
                    }
                }
                Event::Lease(lease) => progress.lease.set(Some(lease)),
                Event::Credential(answer) => last = framed(&answer).to_vec(),
            }
        }
        if body.len() > MAX_RESPONSE {
            return Err(ExchangeError::NotGrpc(format!("the answer is longer than {MAX_RESPONSE} bytes")));
        }
    }
    let trailers = stream.trailers().await.map_err(lost)?;
    Ok(RawResponse { http_status: head.status.as_u16(), headers: head.headers, body: last, trailers })
}
