//! Asking for a listing out of turn, and waiting for it.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// What was asked of one source and what was answered, counted.
#[derive(Debug, Default)]
pub(super) struct Asks {
    asked: watch::Sender<u64>,
    answered: watch::Sender<u64>,
    /// Those who wait.
    open: AtomicUsize,
}

impl Asks {
    /// Returns when the source was asked after this call began, or could not be: a server that takes `within` may have to
    /// end another listing first.
    pub async fn ask(&self, within: Duration) {
        const SPARE: Duration = Duration::from_secs(1);
        let _open = Open::new(&self.open);
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        let mut answered = self.answered.subscribe();
        let answer = answered.wait_for(|answered| *answered >= number);
        drop(timeout(within.saturating_mul(2).saturating_add(SPARE), answer).await);
    }

    /// Whether somebody waits who will look at what is heard now.
    pub fn are_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// The end that answers.
    pub fn answering(&self) -> Answering<'_> {
        Answering { asks: self, asked: self.asked.subscribe(), number: *self.answered.borrow() }
    }
}

/// One who waits.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whoever follows a source.
pub(super) struct Answering<'a> {
    asks: &'a Asks,
    asked: watch::Receiver<u64>,
    /// The last ask that was heard.
    number: u64,
}

impl Answering<'_> {
    /// Returns when somebody has asked. Cancel safe.
    pub async fn heard(&mut self) {
        let number = self.number;
        let asked = self.asked.wait_for(|asked| *asked > number).await.map(|asked| *asked);
        match asked {
            Ok(asked) => self.number = asked,
            // The other end lives in the same source.
            Err(_) => pending().await,
        }
    }

    /// Whether an ask was heard and not answered.
    pub fn owes(&self) -> bool {
        self.number > *self.asks.answered.borrow()
    }

    /// A listing, or the failure to get one, that began after the last ask was heard.
    pub fn answer(&self) {
        self.asks.answered.send_replace(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_asks_that_were_heard_before_it() {
        let asks = Asks::default();
        let mut answering = asks.answering();
        assert!(!answering.owes() && !asks.are_open());
        let ask = || asks.ask(Duration::from_secs(10));
        let follow = async {
            answering.heard().await;
            assert!(answering.owes() && asks.are_open());
            answering.answer();
            assert!(!answering.owes());
        };
        tokio::join!(ask(), ask(), follow);
        assert!(!asks.are_open());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let asks = Asks::default();
        asks.ask(Duration::from_secs(10)).await;
        assert!(!asks.are_open());
    }
}
