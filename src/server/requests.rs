//! Counts the requests in work, so that a drain knows what it waits for and can cut what remains.

use std::future::Future;
use std::time::Instant;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};

use super::metrics::{self, Method};
use super::status;

/// All requests of one server.
#[derive(Debug)]
pub(super) struct Requests {
    in_flight: watch::Sender<usize>,
    cut: CancellationToken,
}

impl Requests {
    pub(super) fn new() -> Self {
        Self { in_flight: watch::Sender::new(0), cut: CancellationToken::new() }
    }

    /// Runs one handler: counted from start to end, measured, and ended with UNAVAILABLE when a drain cuts it. A client
    /// that leaves drops the returned future, which counts as cancelled.
    pub(super) async fn run<T>(
        &self,
        method: Method,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let mut running = Running::start(self, method);
        let result = tokio::select! {
            biased;
            result = work => result,
            () = self.cut.cancelled() => Err(status::stopping()),
        };
        running.code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        result.map(Response::new)
    }

    pub(super) fn in_flight(&self) -> usize {
        *self.in_flight.borrow()
    }

    /// Returns once no request is in work.
    pub(super) async fn idle(&self) {
        let mut count = self.in_flight.subscribe();
        // The sender lives in `self`, so the channel cannot close while this runs.
        let _ = count.wait_for(|count| *count == 0).await;
    }

    /// Ends everything still in work and says how much that was.
    pub(super) fn cut(&self) -> usize {
        let left = self.in_flight();
        self.cut.cancel();
        left
    }
}

struct Running<'a> {
    requests: &'a Requests,
    method: Method,
    since: Instant,
    code: Code,
}

impl<'a> Running<'a> {
    fn start(requests: &'a Requests, method: Method) -> Self {
        requests.in_flight.send_modify(|count| *count += 1);
        metrics::started(method);
        Self { requests, method, since: Instant::now(), code: Code::Cancelled }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.requests.in_flight.send_modify(|count| *count -= 1);
        metrics::ended(self.method, self.code, self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_cut_ends_what_is_in_work_and_counts_it() {
        let requests = Arc::new(Requests::new());
        let hanging = tokio::spawn({
            let requests = requests.clone();
            async move { requests.run(Method::Route, std::future::pending::<Result<(), Status>>()).await }
        });
        while requests.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(tokio::time::timeout(Duration::from_millis(20), requests.idle()).await.is_err());
        assert_eq!(requests.cut(), 1);
        assert_eq!(hanging.await.unwrap().unwrap_err().code(), Code::Unavailable);
        requests.idle().await;
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_no_longer_counted() {
        let requests = Requests::new();
        let work = requests.run(Method::Put, std::future::pending::<Result<(), Status>>());
        assert!(tokio::time::timeout(Duration::from_millis(5), work).await.is_err());
        assert_eq!(requests.in_flight(), 0);
    }
}
