//! Queries before documents: an encoder's cores are shared by both.
//!
//! Owns: how many queries are in hand, how long documents wait for them.
//! Does not know: what either is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// Documents wait this long for a moment without queries: under any load they get on.
const MOST_WAIT: Duration = Duration::from_millis(100);

/// What is being embedded for requests, by all encoders of one program together.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    in_hand: AtomicUsize,
    /// Whether there was ever a query: before that nothing is served and nobody has to wait.
    serving: AtomicBool,
    quiet: Notify,
}

/// One query in hand.
pub(super) struct InHand<'a>(&'a Traffic);

impl Traffic {
    /// Holds documents back until what is returned is dropped.
    #[must_use]
    pub(super) fn enter(&self) -> InHand<'_> {
        self.serving.store(true, Ordering::Relaxed);
        self.in_hand.fetch_add(1, Ordering::AcqRel);
        InHand(self)
    }

    /// Whether requests are being served.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed)
    }

    /// Waits until no query is in hand, but not for long.
    pub(super) async fn quiet(&self) {
        let quiet = async {
            loop {
                let notified = self.quiet.notified();
                if self.in_hand.load(Ordering::Acquire) == 0 {
                    break;
                }
                notified.await;
            }
        };
        // Waited long enough: the documents take their turn.
        let _busy = timeout(MOST_WAIT, quiet).await;
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if self.0.in_hand.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.quiet.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn documents_wait_for_queries_but_not_for_ever() {
        let traffic = Arc::new(Traffic::default());
        let start = Instant::now();
        traffic.quiet().await;
        assert!(!traffic.is_serving() && start.elapsed() == Duration::ZERO);

        let (one, other) = (traffic.enter(), traffic.enter());
        traffic.quiet().await;
        assert!(traffic.is_serving() && start.elapsed() == MOST_WAIT, "there are always queries");

        let waiting = Arc::clone(&traffic);
        let documents = tokio::spawn(async move { waiting.quiet().await });
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(one);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!documents.is_finished(), "one is still in hand");
        drop(other);
        documents.await.unwrap();
        assert_eq!(start.elapsed(), MOST_WAIT + Duration::from_millis(20));
    }
}
