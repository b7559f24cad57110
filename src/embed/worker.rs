//! A model on its own thread, fed through a bounded queue in micro-batches.
//!
//! Owns: the thread, the queue, batching, skipping callers that left.
//! Does not know: what the model is or what a text is for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use super::{EmbedError, Embedded};

/// What turns texts into vectors. Open set: ONNX in production, a hashing one in tests.
pub trait Model: Send {
    /// One vector of [`Model::dim`] components per text, in the order of `texts`. A vector does not depend on the other
    /// texts.
    fn embed(&mut self, texts: &[&str]) -> Result<Vec<Embedded>, ModelError>;
    fn dim(&self) -> usize;
}

/// Why a model gave no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModelError(pub String);

/// A model on a thread of its own. Dropping it ends the thread after the batch in hand.
pub(super) struct Worker {
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    name: String,
}

struct Job {
    texts: Vec<String>,
    reply: oneshot::Sender<Result<Vec<Embedded>, ModelError>>,
}

impl Worker {
    /// `queue` jobs may wait; up to `max_batch` texts are run at once.
    pub(super) fn start(name: &str, model: Box<dyn Model>, queue: usize, max_batch: usize) -> Result<Self, EmbedError> {
        let (jobs, waiting) = mpsc::channel(queue.max(1));
        let thread = std::thread::Builder::new()
            .name(format!("embed {name}"))
            .spawn(move || run(model, waiting, max_batch.max(1)))
            .map_err(|err| EmbedError::Model {
                name: name.to_owned(),
                message: format!("cannot start its thread: {err}"),
            })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), name: name.to_owned() })
    }

    /// A full queue is an answer, not a wait. Cancel safe: dropping the future withdraws the texts.
    pub(super) async fn try_embed(&self, texts: Vec<String>) -> Result<Vec<Embedded>, EmbedError> {
        let (reply, answer) = oneshot::channel();
        self.jobs()?.try_send(Job { texts, reply }).map_err(|err| match err {
            TrySendError::Full(_) => EmbedError::Overloaded,
            TrySendError::Closed(_) => EmbedError::Stopped,
        })?;
        self.receive(answer).await
    }

    /// Waits for a place in the queue. Cancel safe as [`Worker::try_embed`].
    pub(super) async fn embed(&self, texts: Vec<String>) -> Result<Vec<Embedded>, EmbedError> {
        let (reply, answer) = oneshot::channel();
        self.jobs()?.send(Job { texts, reply }).await.map_err(|_| EmbedError::Stopped)?;
        self.receive(answer).await
    }

    fn jobs(&self) -> Result<&mpsc::Sender<Job>, EmbedError> {
        self.jobs.as_ref().ok_or(EmbedError::Stopped)
    }

    async fn receive(
        &self,
        answer: oneshot::Receiver<Result<Vec<Embedded>, ModelError>>,
    ) -> Result<Vec<Embedded>, EmbedError> {
        let result = answer.await.map_err(|_| EmbedError::Stopped)?;
        result.map_err(|ModelError(message)| EmbedError::Model { name: self.name.clone(), message })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        // Joined, so that no inference runs while the process tears the runtime down. Nobody can be waiting for an
        // answer here, so at most the batch in hand is finished.
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn run(mut model: Box<dyn Model>, mut jobs: mpsc::Receiver<Job>, max_batch: usize) {
    while let Some(first) = jobs.blocking_recv() {
        // No timer: a batch is whatever queued up while the previous one ran.
        let mut texts = first.texts.len();
        let mut batch = vec![first];
        while texts < max_batch
            && let Ok(job) = jobs.try_recv()
        {
            texts += job.texts.len();
            batch.push(job);
        }
        // A closed reply means the caller gave up: spend no inference on it.
        batch.retain(|job| !job.reply.is_closed());
        answer(&mut *model, batch);
    }
}

/// Runs the jobs together and, should that fail, each alone: one text cannot spoil the answers of others.
fn answer(model: &mut dyn Model, batch: Vec<Job>) {
    let texts: Vec<&str> = batch.iter().flat_map(|job| job.texts.iter().map(String::as_str)).collect();
    if texts.is_empty() {
        return batch.into_iter().for_each(|job| reply(job, Ok(Vec::new())));
    }
    match embed(model, &texts) {
        Ok(vectors) => {
            let mut vectors = vectors.into_iter();
            for job in batch {
                let own = vectors.by_ref().take(job.texts.len()).collect();
                reply(job, Ok(own));
            }
        }
        Err(_) if batch.len() > 1 => {
            for job in batch {
                let texts: Vec<&str> = job.texts.iter().map(String::as_str).collect();
                let result = embed(model, &texts);
                reply(job, result);
            }
        }
        Err(err) => batch.into_iter().for_each(|job| reply(job, Err(err.clone()))),
    }
}

fn reply(job: Job, result: Result<Vec<Embedded>, ModelError>) {
    // The caller may have left meanwhile; nobody is waiting for the answer then.
    let _gone = job.reply.send(result);
}

/// Runs the model and checks what it returned; a fault inside it must not end the thread that serves everyone.
fn embed(model: &mut dyn Model, texts: &[&str]) -> Result<Vec<Embedded>, ModelError> {
    let result = catch_unwind(AssertUnwindSafe(|| model.embed(texts)))
        .unwrap_or_else(|_| Err(ModelError("the model panicked".to_owned())))?;
    if result.len() != texts.len() {
        return Err(ModelError(format!("{} vectors for {} texts", result.len(), texts.len())));
    }
    let dim = model.dim();
    match result.iter().find(|embedded| embedded.vector.dim() != dim) {
        Some(other) => Err(ModelError(format!("a vector of {} components, not {dim}", other.vector.dim()))),
        None => Ok(result),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc as std_mpsc};

    use super::*;
    use crate::types::Vector;

    /// Waits for a permission before each run, and keeps what it was given.
    struct Gated {
        started: std_mpsc::Sender<()>,
        permissions: std_mpsc::Receiver<()>,
        runs: Arc<Mutex<Vec<Vec<String>>>>,
    }

    impl Model for Gated {
        fn embed(&mut self, texts: &[&str]) -> Result<Vec<Embedded>, ModelError> {
            self.runs.lock().unwrap().push(texts.iter().map(|text| (*text).to_owned()).collect());
            self.started.send(()).unwrap();
            self.permissions.recv().unwrap();
            assert!(!texts.contains(&"panic"), "asked to");
            if texts.contains(&"fail") {
                return Err(ModelError("refused".to_owned()));
            }
            let count = if texts.contains(&"short") { texts.len() - 1 } else { texts.len() };
            Ok((0..count).map(|_| embedded(&[1.0, 0.0])).collect())
        }
        fn dim(&self) -> usize {
            2
        }
    }

    struct Gate {
        started: std_mpsc::Receiver<()>,
        permissions: std_mpsc::Sender<()>,
        runs: Arc<Mutex<Vec<Vec<String>>>>,
    }

    fn embedded(components: &[f32]) -> Embedded {
        Embedded { vector: Vector::normalised(components.to_vec()).unwrap(), truncated: false }
    }

    fn gated(queue: usize) -> (Arc<Worker>, Gate) {
        let (started_in, started) = std_mpsc::channel();
        let (permissions, permissions_out) = std_mpsc::channel();
        let runs = Arc::default();
        let model = Gated { started: started_in, permissions: permissions_out, runs: Arc::clone(&runs) };
        let worker = Worker::start("gated", Box::new(model), queue, 8).unwrap();
        (Arc::new(worker), Gate { started, permissions, runs })
    }

    fn spawn(worker: &Arc<Worker>, text: &str) -> tokio::task::JoinHandle<Result<Vec<Embedded>, EmbedError>> {
        let (worker, texts) = (Arc::clone(worker), vec![text.to_owned()]);
        tokio::spawn(async move { worker.try_embed(texts).await })
    }

    #[tokio::test]
    async fn a_full_queue_is_an_answer_and_callers_that_left_cost_nothing() {
        let (worker, gate) = gated(3);
        let busy = spawn(&worker, "first");
        tokio::task::yield_now().await;
        gate.started.recv().unwrap();
        let (stays, leaves, also) = (spawn(&worker, "stays"), spawn(&worker, "leaves"), spawn(&worker, "also"));
        tokio::task::yield_now().await;
        assert!(matches!(worker.try_embed(vec!["one too many".to_owned()]).await, Err(EmbedError::Overloaded)));
        leaves.abort();
        assert!(leaves.await.unwrap_err().is_cancelled());
        gate.permissions.send(()).unwrap();
        gate.permissions.send(()).unwrap();
        for task in [busy, stays, also] {
            assert_eq!(task.await.unwrap().unwrap().len(), 1);
        }
        assert_eq!(*gate.runs.lock().unwrap(), [vec!["first"], vec!["stays", "also"]]);
    }

    #[tokio::test]
    async fn one_bad_text_fails_alone_and_a_panic_does_not_end_the_thread() {
        let (worker, gate) = gated(8);
        for _ in 0..16 {
            gate.permissions.send(()).unwrap();
        }
        let tasks = ["good", "fail", "panic", "short", "好"].map(|text| (text, spawn(&worker, text)));
        for (text, task) in tasks {
            let result = task.await.unwrap();
            match text {
                "fail" => assert_eq!(result.err().unwrap().to_string(), "model gated: refused"),
                "panic" => assert_eq!(result.err().unwrap().to_string(), "model gated: the model panicked"),
                "short" => assert_eq!(result.err().unwrap().to_string(), "model gated: 0 vectors for 1 texts"),
                _ => assert_eq!(result.unwrap().len(), 1, "{text}"),
            }
        }
    }

    #[tokio::test]
    async fn no_texts_are_no_vectors_and_do_not_reach_the_model() {
        let (worker, gate) = gated(1);
        assert!(worker.embed(Vec::new()).await.unwrap().is_empty());
        assert!(gate.runs.lock().unwrap().is_empty());
    }
}
