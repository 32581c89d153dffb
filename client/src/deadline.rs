//! The deadlines of calls and waits.

use std::{future::Future, time::Duration};

use tokio::time::timeout;
use tonic::{Code, Request, Response, Status};

use crate::{error::Error, socket::Socket};

/// The longest deadline that gRPC can express: eight digits of hours.
const LONGEST: Duration = Duration::from_secs(99_999_999 * 3600);

/// Time for a broker that is starting.
pub(crate) const BROKER_START: Duration = Duration::from_secs(5);

/// How long one call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallDeadline(pub(crate) Duration);

impl CallDeadline {
    /// A request that carries its deadline. Not for a watch, whose stream the deadline would end.
    pub(crate) fn request<T>(self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.0.min(LONGEST)); // panics beyond
        request
    }

    /// The response, or why there is none in time.
    pub(crate) async fn response<T>(
        self,
        socket: &Socket,
        response: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        let late = Error::timeout(self.0);
        match timeout(self.0, response).await {
            Err(_) => Err(late),
            Ok(Ok(response)) => Ok(response.into_inner()),
            // A server that knows the deadline may be the first to end the call.
            Ok(Err(status)) if status.code() == Code::DeadlineExceeded => Err(late),
            Ok(Err(status)) => Err(Error::from_status(socket, &status)),
        }
    }
}

/// What `wait` resolves to within `limit`, or without a limit.
pub(crate) async fn within<T>(
    limit: Option<Duration>,
    wait: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(limit) = limit else { return wait.await };
    timeout(limit, wait).await.unwrap_or(Err(Error::timeout(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_knows_the_deadline_of_a_request() {
        let request = CallDeadline(Duration::from_secs(45)).request(());
        assert_eq!(request.metadata().get("grpc-timeout").unwrap(), "45000000u");
    }

    #[test]
    fn a_deadline_beyond_the_longest_of_grpc_is_sent_as_the_longest() {
        let request = CallDeadline(Duration::MAX).request(());
        assert_eq!(request.metadata().get("grpc-timeout").unwrap(), "99999999H");
    }
}
