//! Keeps listings fresh: hears of changes, asks from time to time, connects again after a loss.
//!
//! Owns: when a source is asked, and how long it is left alone.
//! Does not know: what is done with a new listing, beyond the one call that takes it over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::ask::Answering;
use super::{LiveSources, Source};
use crate::execute::mcp::{Connection, ListError};
use crate::pipeline::{Cause, Router};
use crate::store::Store;

/// How long a lost server is left alone, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A connection that lasted this long was a good one.
const LASTED: Duration = Duration::from_secs(60);
/// How often a server that is not asked for its tools is asked for a sign of life.
const PULSE: Duration = Duration::from_secs(30);
/// After word of a change the server is asked this much later, and later still when word comes again and again.
const SETTLE: Duration = Duration::from_millis(50);
const LONGEST_SETTLE: Duration = Duration::from_secs(30);
/// After so long without word a server may speak again.
const QUIET: Duration = Duration::from_secs(60);

impl Router {
    /// Keeps the live sources fresh until the router goes or stops. The catalog follows them.
    pub(in crate::pipeline) fn follow_live(self: &Arc<Self>) {
        self.live.follow(Arc::downgrade(self), &self.store);
    }
}

impl LiveSources {
    fn follow(&self, router: Weak<Router>, store: &Arc<Store>) {
        if self.sources.is_empty() {
            return;
        }
        let mut tasks = self.tasks();
        for source in &self.sources {
            let connection = source.state().connection.take();
            tasks.spawn(keep(source.clone(), connection, store.clone()));
        }
        tasks.spawn(take_over(router, self.news.subscribe()));
    }
}

/// Brings each new listing into the catalog, and what is to be told of sources into its notices. Several at once are one
/// change.
async fn take_over(router: Weak<Router>, mut news: watch::Receiver<()>) {
    while news.changed().await.is_ok() {
        let Some(router) = router.upgrade() else { return };
        if let Err(error) = router.reload_because(Cause::ListChanged).await {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "a live source's new tools are not served yet; the next reload takes them over");
        }
    }
}

/// Follows one source for good.
async fn keep(source: Arc<Source>, mut held: Option<Connection>, store: Arc<Store>) {
    let settings = &source.settings;
    let mut failures = u32::from(held.is_none());
    let mut asks = source.asks.answering();
    loop {
        let mut connection = match held.take() {
            Some(connection) => connection,
            None => {
                // Whoever asks is told how it is now.
                if !asks.owes() {
                    tokio::select! {
                        () = sleep(pause(failures)) => {}
                        () = asks.heard() => {}
                    }
                }
                let opened = Connection::open(&settings.name, &settings.server).await;
                let connection = match opened {
                    Ok((connection, tools)) => {
                        hear(&source, tools, &store).await;
                        Some(connection)
                    }
                    Err(error) => {
                        failures = failures.saturating_add(1);
                        source.lost(error);
                        None
                    }
                };
                asks.answer();
                match connection {
                    Some(connection) => connection,
                    None => continue,
                }
            }
        };
        let since = Instant::now();
        let why = attend(&source, &mut connection, &store, &mut asks).await;
        let why = match why {
            ListError::Closed(why) if why.is_empty() => connection.epitaph().await,
            why => why,
        };
        source.lost(why);
        // One that breaks off each time after its listing must not be called on twice a second.
        failures = if since.elapsed() >= LASTED { 1 } else { failures.saturating_add(1) };
    }
}

/// Listens to a connection until it is of no use any more, and says why.
async fn attend(
    source: &Arc<Source>,
    connection: &mut Connection,
    store: &Arc<Store>,
    asks: &mut Answering<'_>,
) -> ListError {
    let refresh = source.settings.refresh;
    let mut settle = Settle::default();
    let mut listed = Instant::now();
    loop {
        let pulse = if refresh.is_zero() { PULSE } else { PULSE.min(refresh) };
        let word = tokio::select! {
            word = connection.changed() => match word {
                Ok(()) => Word::Changed,
                Err(_) => return ListError::Closed(String::new()),
            },
            () = asks.heard() => Word::Asked,
            () = sleep(pulse) => Word::None,
        };
        let due = !refresh.is_zero() && listed.elapsed() >= refresh;
        match word {
            // A server that answers this badly may still list its tools.
            Word::None if !due && connection.ping().await.is_ok() => continue,
            Word::Changed => tokio::select! {
                () = sleep(settle.pause(Instant::now())) => {}
                () = asks.heard() => {}
            },
            Word::None | Word::Asked => {}
        }
        match connection.list().await {
            Ok(tools) => hear(source, tools, store).await,
            Err(error) => return error,
        }
        asks.answer();
        listed = Instant::now();
    }
}

/// Why a server may be asked.
enum Word {
    /// It says that its tools changed.
    Changed,
    /// Somebody wants to know.
    Asked,
    None,
}

async fn hear(source: &Arc<Source>, tools: Vec<serde_json::Value>, store: &Arc<Store>) {
    if !source.heard(tools) {
        return;
    }
    let (source, store) = (source.clone(), store.clone());
    if tokio::task::spawn_blocking(move || source.keep(&store)).await.is_err() {
        tracing::warn!("what a live source listed could not be kept");
    }
}

/// Doubles with each failure.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
}

/// How soon a server is believed that its tools changed: each change costs a reload, and a server may say so in a loop.
#[derive(Default)]
struct Settle {
    last: Option<Instant>,
    times: u32,
}

impl Settle {
    fn pause(&mut self, now: Instant) -> Duration {
        let in_a_row = self.last.is_some_and(|last| now - last < QUIET);
        self.times = if in_a_row { self.times.saturating_add(1) } else { 0 };
        self.last = Some(now);
        SETTLE.saturating_mul(1 << self.times.min(10)).min(LONGEST_SETTLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_server_is_left_alone_longer_and_longer() {
        let pauses: Vec<u128> = (0..9).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [500, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn a_server_that_always_changes_is_heard_less_and_less() {
        let (mut settle, mut now) = (Settle::default(), Instant::now());
        let mut told = || {
            let pause = settle.pause(now);
            now += pause;
            pause
        };
        assert_eq!((told(), told(), told()), (SETTLE, SETTLE * 2, SETTLE * 4));
        assert_eq!((0..10).map(|_| told()).max(), Some(LONGEST_SETTLE));
        now += QUIET;
        assert_eq!(settle.pause(now), SETTLE);
    }
}
