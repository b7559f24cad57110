//! How many of the nearest rows the graph finds, measured on a share of the searches that are made anyway.
//!
//! Owns: which searches are repeated exactly, the thread that does it, the metrics of the result.
//! Does not know: how a graph finds rows.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use super::exact;
use crate::telemetry::names;
use crate::types::Vector;

/// Recall is measured on so many of the best rows.
const AT: usize = 10;
/// Searches that may wait to be repeated; more are dropped and counted.
const QUEUE: usize = 8;
/// The gauge is the mean over so many of the latest repetitions.
const WINDOW: usize = 100;

/// Picks every n-th search that a graph answered and repeats it exactly on a thread of its own.
pub struct RecallWatch {
    every: u64,
    searches: AtomicU64,
    /// Open once the first search is picked: no thread where no graph is.
    jobs: OnceLock<SyncSender<Job>>,
}

struct Job {
    rows: Arc<Vec<Vector>>,
    query: Vector,
    allowed: Vec<bool>,
    /// The best the graph found, at most [`AT`].
    found: Vec<usize>,
}

impl RecallWatch {
    /// `share` is the part of all searches to repeat, from 0 to 1; `None` when that is none.
    pub fn new(share: f32) -> Option<Self> {
        // A counter, not chance: the same requests give the same repetitions.
        let every = (1.0 / share).round();
        (share > 0.0 && every.is_finite()).then(|| Self {
            every: (every as u64).max(1),
            searches: AtomicU64::new(0),
            jobs: OnceLock::new(),
        })
    }

    /// Takes note of one answer of a graph. Never waits.
    pub(super) fn answered(&self, rows: &Arc<Vec<Vector>>, query: &Vector, allowed: &[bool], hits: &[usize]) {
        if !self.searches.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.every) {
            return;
        }
        let job = Job {
            rows: Arc::clone(rows),
            query: query.clone(),
            allowed: allowed.to_vec(),
            found: hits.iter().copied().take(AT).collect(),
        };
        if self.jobs.get_or_init(start).try_send(job).is_err() {
            metrics::counter!(names::INDEX_RECALL_SAMPLES, "result" => "dropped").increment(1);
        }
    }
}

/// The thread ends with the sender. Where there is none, each job counts as dropped.
fn start() -> SyncSender<Job> {
    let (sender, jobs) = sync_channel(QUEUE);
    let spawned = std::thread::Builder::new().name("index-recall".to_owned()).spawn(move || repeat(&jobs));
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to measure the recall of the graph on");
    }
    sender
}

fn repeat(jobs: &Receiver<Job>) {
    let mut latest: VecDeque<(usize, usize)> = VecDeque::with_capacity(WINDOW);
    while let Ok(job) = jobs.recv() {
        let (found, wanted) = job.compare();
        metrics::counter!(names::INDEX_RECALL_SAMPLES, "result" => "measured").increment(1);
        metrics::counter!(names::INDEX_RECALL_ROWS, "result" => "found").increment(found as u64);
        metrics::counter!(names::INDEX_RECALL_ROWS, "result" => "missed").increment((wanted - found) as u64);
        if latest.len() == WINDOW {
            latest.pop_front();
        }
        latest.push_back((found, wanted));
        let (found, wanted) = latest.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if wanted > 0 {
            metrics::gauge!(names::INDEX_RECALL).set(found as f64 / wanted as f64);
        }
    }
}

impl Job {
    /// How many of the nearest rows were found, and how many there are.
    fn compare(&self) -> (usize, usize) {
        let nearest = exact::nearest(&self.rows, &self.query, self.found.len(), &self.allowed);
        let found = nearest.iter().filter(|(row, _)| self.found.contains(row)).count();
        (found, nearest.len())
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::super::sample::clustered;
    use super::*;

    fn job(rows: &Arc<Vec<Vector>>, found: &[usize]) -> Job {
        Job { rows: Arc::clone(rows), query: rows[0].clone(), allowed: vec![true; rows.len()], found: found.to_vec() }
    }

    fn nearest(rows: &[Vector], k: usize) -> Vec<usize> {
        exact::nearest(rows, &rows[0], k, &vec![true; rows.len()]).into_iter().map(|hit| hit.0).collect()
    }

    #[test]
    fn what_was_missed_is_counted_and_shown() {
        let rows = Arc::new(clustered(2, 20, 8, 0.5, 3));
        let all = nearest(&rows, 12);
        let (sender, jobs) = sync_channel(3);
        sender.send(job(&rows, &all[..10])).unwrap();
        // Two of the best are missing, and two that are not among them stand in.
        sender.send(job(&rows, &[&all[..8], &all[10..]].concat())).unwrap();
        // Only two rows may be seen.
        let mut few = job(&rows, &[5, 7]);
        few.allowed = (0..rows.len()).map(|row| row == 5 || row == 7).collect();
        sender.send(few).unwrap();
        drop(sender);
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || repeat(&jobs));
        let text = recorder.handle().render();
        for line in [
            "pointsman_index_recall_rows_total{result=\"found\"} 20",
            "pointsman_index_recall_rows_total{result=\"missed\"} 2",
            "pointsman_index_recall_samples_total{result=\"measured\"} 3",
            "pointsman_index_recall_ratio 0.909090909090909",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn every_nth_search_is_repeated_and_nobody_waits() {
        let rows = Arc::new(clustered(1, 30, 8, 0.5, 3));
        let watch = RecallWatch::new(0.25).unwrap();
        let (sender, jobs) = sync_channel(QUEUE);
        watch.jobs.set(sender).unwrap();
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            for search in 0..50 {
                watch.answered(&rows, &rows[search % 30], &[true; 30], &nearest(&rows, 20));
            }
        });
        // Nobody takes jobs: of 13 picked, the queue holds eight.
        assert!(recorder.handle().render().contains("pointsman_index_recall_samples_total{result=\"dropped\"} 5"));
        drop(watch);
        let picked: Vec<Job> = jobs.iter().collect();
        assert_eq!(picked.len(), QUEUE);
        assert!(picked.iter().enumerate().all(|(n, job)| job.query == rows[n * 4 % 30] && job.found.len() == AT));
    }

    #[test]
    fn shares_become_steps() {
        let every = |share| RecallWatch::new(share).map(|watch| watch.every);
        assert_eq!([every(1.0), every(0.5), every(0.01), every(0.9)], [Some(1), Some(2), Some(100), Some(1)]);
        assert_eq!([every(0.0), every(-1.0), every(f32::NAN), every(1e-45)], [None; 4]);
    }
}
