//! One encoder: a vector space of its own.
//!
//! Owns: prefixes, the two sessions, reuse of stored vectors.
//! Does not know: which encoder serves a language (see [`super::encoders`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::time::timeout_at;

use super::manifest::Prefix;
use super::traffic::Traffic;
use super::worker::{Model, Worker};
use super::{Documents, EmbedError, Embedded, Settings};
use crate::store::{Store, StoredVector};
use crate::text::Language;
use crate::types::{Deadline, Vector};

/// Documents run in small batches: a batch in hand is what a shutdown waits for.
const DOCUMENT_BATCH: usize = 16;
/// And in smaller ones while requests are served: a batch in hand is what a query shares the cores with.
const SHARED_BATCH: usize = 2;
/// So many vectors are stored at once.
const STORED_AT_ONCE: usize = 64;

/// Builds one more copy of a model. Blocks.
pub(super) type Loader = Arc<dyn Fn() -> Result<Box<dyn Model>, EmbedError> + Send + Sync>;

/// What is known of an encoder before any text is read.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) dim: usize,
    pub(super) languages: Vec<String>,
    pub(super) prefix: Prefix,
    /// Weights of its signals in a ranking, where it has been tuned.
    pub(super) fusion: Option<BTreeMap<String, f64>>,
    /// Coefficients of its confidence model, where it has been calibrated.
    pub(super) confidence: Option<BTreeMap<String, f64>>,
    /// The key of its vectors in the store.
    pub(super) fingerprint: String,
}

/// One encoder: a vector space of its own. Queries and documents run in separate sessions, so a reload never makes a
/// request wait.
pub struct Encoder {
    profile: Profile,
    queries: Worker,
    /// Built when the first document is embedded: with all vectors stored it is never needed.
    documents: OnceCell<Worker>,
    loader: Loader,
    store: Arc<Store>,
    /// Shared by all encoders of one program.
    traffic: Arc<Traffic>,
}

type TextHash = [u8; 32];

impl Encoder {
    /// Loads the session for queries. Blocks.
    pub(super) fn start(
        profile: Profile,
        loader: Loader,
        settings: &Settings,
        store: Arc<Store>,
        traffic: Arc<Traffic>,
    ) -> Result<Self, EmbedError> {
        let queries = Worker::start(&profile.name, loader()?, settings.queue, settings.max_batch)?;
        Ok(Self { profile, queries, documents: OnceCell::new(), loader, store, traffic })
    }

    pub fn name(&self) -> &str {
        &self.profile.name
    }

    pub fn dim(&self) -> usize {
        self.profile.dim
    }

    /// Weights of its signals in a ranking by name, where it has been tuned.
    pub fn fusion(&self) -> Option<&BTreeMap<String, f64>> {
        self.profile.fusion.as_ref()
    }

    /// As declared: two-letter codes.
    pub fn languages(&self) -> &[String] {
        &self.profile.languages
    }

    /// Coefficients of its confidence model by name, where it has been calibrated.
    pub fn confidence(&self) -> Option<&BTreeMap<String, f64>> {
        self.profile.confidence.as_ref()
    }

    /// Whether one of these two-letter codes is declared.
    pub fn declares(&self, codes: &[&str]) -> bool {
        self.profile.languages.iter().any(|own| codes.contains(&own.as_str()))
    }

    /// Whether text in `language` gets a vector that means something. `Other` stands for all languages without a name
    /// here, so it needs an encoder that declares more than Chinese and English.
    pub fn supports(&self, language: Language) -> bool {
        let declares = |code: &str| self.profile.languages.iter().any(|own| own == code);
        match language {
            Language::En => declares("en"),
            Language::Zh | Language::Mixed => declares("zh"),
            Language::Other => self.profile.languages.iter().any(|own| own != "zh" && own != "en"),
        }
    }

    /// One vector per text, in order. Cancel safe: dropping the future withdraws the texts from the next batch.
    ///
    /// # Errors
    /// [`EmbedError::Overloaded`] at once when the queue is full; [`EmbedError::Deadline`] when it passes first.
    pub async fn embed_queries(&self, texts: &[String], deadline: Deadline) -> Result<Vec<Embedded>, EmbedError> {
        if deadline.has_passed() {
            return Err(EmbedError::Deadline);
        }
        let count = texts.len();
        let texts = texts.iter().map(|text| format!("{}{text}", self.profile.prefix.query)).collect();
        let _in_hand = self.traffic.enter();
        let vectors =
            timeout_at(deadline.instant(), self.queries.try_embed(texts)).await.map_err(|_| EmbedError::Deadline)??;
        if vectors.len() == count { Ok(vectors) } else { Err(EmbedError::Stopped) }
    }

    /// [`Encoder::embed_queries`] for one text.
    ///
    /// # Errors
    /// As there.
    pub async fn embed_query(&self, text: &str, deadline: Deadline) -> Result<Embedded, EmbedError> {
        let vectors = self.embed_queries(&[text.to_owned()], deadline).await?;
        vectors.into_iter().next().ok_or(EmbedError::Stopped)
    }

    /// Vectors of documents, stored ones reused and new ones stored; equal texts are embedded once. `progress` hears
    /// how many are done of how many. Whether a vector was stored or is new makes no difference to its value.
    ///
    /// They wait for queries in hand and run in small batches while requests are served.
    ///
    /// Cancel safe: nearly all that was embedded until then stays stored. A store that fails is logged and costs time, not vectors.
    pub async fn embed_documents(
        &self,
        texts: &[String],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Documents, EmbedError> {
        let Work { order, mut known, missing } = self.look_up(texts.to_vec()).await?;
        let embedded_now = missing.len();
        let mut uses: HashMap<TextHash, usize> = HashMap::new();
        for hash in &order {
            *uses.entry(*hash).or_default() += 1;
        }
        let mut done = order.iter().filter(|hash| known.contains_key(*hash)).count();
        progress(done, order.len());
        let mut rest = missing.as_slice();
        let mut rows = Vec::new();
        while !rest.is_empty() {
            self.traffic.quiet().await;
            let most = if self.traffic.is_serving() { SHARED_BATCH } else { DOCUMENT_BATCH };
            let (batch, after) = rest.split_at(most.min(rest.len()));
            rest = after;
            let worker = self.documents.get_or_try_init(|| self.start_documents()).await?;
            let vectors = worker.embed(batch.iter().map(|(_, text)| text.clone()).collect()).await?;
            for ((hash, _), Embedded { vector, truncated }) in batch.iter().zip(vectors) {
                let stored = StoredVector { components: vector.as_slice().to_vec(), truncated };
                known.insert(*hash, self.usable(stored.clone()).expect("the worker checked the vector"));
                rows.push((*hash, stored));
                done += uses.get(hash).copied().unwrap_or(0);
            }
            if rows.len() >= STORED_AT_ONCE || rest.is_empty() {
                self.keep(std::mem::take(&mut rows)).await?;
            }
            progress(done, order.len());
        }
        blocking(move || assemble(&order, &known, embedded_now)).await
    }

    /// Hashes the texts and asks the store, away from the async threads.
    async fn look_up(&self, mut texts: Vec<String>) -> Result<Work, EmbedError> {
        let (profile, store) = (self.profile.clone(), Arc::clone(&self.store));
        let (stored, order, unique) = blocking(move || {
            let mut order = Vec::with_capacity(texts.len());
            // Sorted by hash only to ask for each once; the order of the answer does not matter.
            let mut unique: BTreeMap<TextHash, String> = BTreeMap::new();
            for text in texts.drain(..) {
                let text = format!("{}{text}", profile.prefix.passage);
                let hash = TextHash::from(Sha256::digest(&text));
                order.push(hash);
                unique.insert(hash, text);
            }
            let hashes: Vec<TextHash> = unique.keys().copied().collect();
            let stored = store.vectors(&profile.fingerprint, &hashes).unwrap_or_else(|err| {
                tracing::warn!(error = &err as &dyn std::error::Error, "stored vectors cannot be read");
                HashMap::new()
            });
            (stored, order, unique)
        })
        .await?;
        let known: HashMap<TextHash, Embedded> =
            stored.into_iter().filter_map(|(hash, vector)| Some((hash, self.usable(vector)?))).collect();
        let mut missing: Vec<(TextHash, String)> =
            unique.into_iter().filter(|(hash, _)| !known.contains_key(hash)).collect();
        // Texts of like length share a batch, so little is spent on padding.
        missing.sort_by(|(_, a), (_, b)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        Ok(Work { order, known, missing })
    }

    async fn start_documents(&self) -> Result<Worker, EmbedError> {
        let (loader, name) = (Arc::clone(&self.loader), self.profile.name.clone());
        blocking(move || Worker::start(&name, loader()?, 2, DOCUMENT_BATCH)).await?
    }

    async fn keep(&self, rows: Vec<(TextHash, StoredVector)>) -> Result<(), EmbedError> {
        let (store, fingerprint) = (Arc::clone(&self.store), self.profile.fingerprint.clone());
        blocking(move || {
            if let Err(err) = store.put_vectors(&fingerprint, &rows) {
                tracing::warn!(error = &err as &dyn std::error::Error, "new vectors cannot be stored");
            }
        })
        .await
    }

    /// Fresh vectors take this way as well, so that rounding is the same for both.
    fn usable(&self, stored: StoredVector) -> Option<Embedded> {
        let vector = Vector::normalised(stored.components).ok().filter(|vector| vector.dim() == self.profile.dim)?;
        Some(Embedded { vector, truncated: stored.truncated })
    }
}

/// What [`Encoder::embed_documents`] has and what it lacks.
struct Work {
    /// One per text.
    order: Vec<TextHash>,
    known: HashMap<TextHash, Embedded>,
    missing: Vec<(TextHash, String)>,
}

fn assemble(order: &[TextHash], known: &HashMap<TextHash, Embedded>, embedded_now: usize) -> Documents {
    let of_text = |hash| known.get(hash).expect("each text was stored or has just been embedded");
    Documents {
        vectors: order.iter().map(|hash| of_text(hash).vector.clone()).collect(),
        embedded_now,
        truncated: order.iter().filter(|hash| of_text(hash).truncated).count(),
        is_truncated: order.iter().map(|hash| of_text(hash).truncated).collect(),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, EmbedError> {
    // Fails only when the runtime is shutting down or the work panicked.
    tokio::task::spawn_blocking(work).await.map_err(|_| EmbedError::Stopped)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::embed::testing::{HASHING_MAX_CHARS, hashing_encoder};
    use crate::embed::{ModelError, testing};
    use crate::types::vector::dot;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(10))
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn quiet(_: usize, _: usize) {}

    #[tokio::test]
    async fn stored_vectors_are_reused_and_equal_to_fresh_ones() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Arc::new(Store::open(&dir.path().join("store.db")).unwrap());
        let encoder = |store| hashing_encoder("hashing", &["zh", "en"], 64, store);
        let long = "长".repeat(HASHING_MAX_CHARS + 1);
        let cards = texts(&["cancel an order", "退货退款", "cancel an order", &long, ""]);
        let heard = Mutex::new(Vec::new());
        let progress = |done, total| heard.lock().unwrap().push((done, total));

        let fresh = encoder(open()).embed_documents(&cards, &progress).await.unwrap();
        assert_eq!((fresh.embedded_now, fresh.truncated, fresh.vectors.len()), (4, 1, 5));
        assert_eq!(fresh.vectors[0], fresh.vectors[2]);
        assert_eq!(*heard.lock().unwrap(), [(0, 5), (5, 5)]);

        let again = encoder(open()).embed_documents(&cards, &quiet).await.unwrap();
        assert_eq!(again, Documents { embedded_now: 0, ..fresh.clone() });
        let more = encoder(open()).embed_documents(&texts(&["new", "退货退款"]), &quiet).await.unwrap();
        assert_eq!((more.embedded_now, &more.vectors[1]), (1, &fresh.vectors[1]));
        let none = encoder(open()).embed_documents(&[], &quiet).await.unwrap();
        assert_eq!((none.vectors.len(), none.embedded_now), (0, 0));
    }

    #[tokio::test]
    async fn progress_counts_texts_and_a_useless_stored_vector_is_made_anew() {
        let store = Arc::new(Store::in_memory().unwrap());
        let encoder = hashing_encoder("hashing", &["en"], 16, Arc::clone(&store));
        let cards: Vec<String> = (0..40).map(|i| format!("tool {}", i / 2)).collect();
        let heard = Mutex::new(Vec::new());
        let progress = |done, total| heard.lock().unwrap().push((done, total));
        let fresh = encoder.embed_documents(&cards, &progress).await.unwrap();
        assert_eq!(*heard.lock().unwrap(), [(0, 40), (32, 40), (40, 40)]);

        let hash = TextHash::from(Sha256::digest("tool 3"));
        for components in [vec![0.0; 16], vec![1.0; 3], vec![f32::NAN; 16]] {
            let broken = StoredVector { components, truncated: false };
            store.put_vectors(&encoder.profile.fingerprint, &[(hash, broken)]).unwrap();
            let again = encoder.embed_documents(&cards, &quiet).await.unwrap();
            assert_eq!(again, Documents { embedded_now: 1, ..fresh.clone() });
        }
    }

    #[tokio::test]
    async fn queries_have_a_deadline_and_near_texts_are_near() {
        let encoder = hashing_encoder("hashing", &["zh", "en"], 256, Arc::new(Store::in_memory().unwrap()));
        let late = encoder.embed_query("anything", Deadline::after(Duration::ZERO)).await;
        assert!(matches!(late, Err(EmbedError::Deadline)));
        for (query, near, far) in
            [("refund my order", "refund an order", "play some jazz"), ("查物流", "物流", "开发票")]
        {
            let mut vectors = Vec::new();
            for text in [query, near, far] {
                vectors.push(encoder.embed_query(text, soon()).await.unwrap().vector);
            }
            let similarity = |i: usize| dot(vectors[0].as_slice(), vectors[i].as_slice());
            assert!(similarity(1) > similarity(2) + 0.2, "{query}: {} {}", similarity(1), similarity(2));
        }
    }

    /// A model whose prefix can be seen, and whose document session fails to load the first time.
    struct Echo(Arc<Mutex<Vec<String>>>);

    impl Model for Echo {
        fn embed(&mut self, texts: &[&str]) -> Result<Vec<Embedded>, ModelError> {
            self.0.lock().unwrap().extend(texts.iter().map(|text| (*text).to_owned()));
            let vector = Vector::normalised(vec![1.0]).unwrap();
            Ok(texts.iter().map(|_| Embedded { vector: vector.clone(), truncated: false }).collect())
        }
        fn dim(&self) -> usize {
            1
        }
    }

    #[tokio::test]
    async fn prefixes_are_added_and_a_failed_document_session_is_tried_again() {
        let (seen, loads) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(0));
        let models = Arc::clone(&seen);
        let loader: Loader = Arc::new(move || match loads.fetch_add(1, Ordering::Relaxed) {
            1 => Err(EmbedError::Model { name: "echo".to_owned(), message: "file is gone".to_owned() }),
            _ => Ok(Box::new(Echo(Arc::clone(&models)))),
        });
        let profile = Profile {
            name: "echo".to_owned(),
            dim: 1,
            languages: vec!["en".to_owned()],
            prefix: Prefix { query: "query: ".to_owned(), passage: "passage: ".to_owned() },
            fusion: None,
            confidence: None,
            fingerprint: "echo".to_owned(),
        };
        let store = Arc::new(Store::in_memory().unwrap());
        let encoder = Encoder::start(profile, loader, &testing::settings(), store, Arc::default()).unwrap();
        encoder.embed_query("退款", soon()).await.unwrap();
        let failed = encoder.embed_documents(&texts(&["refund"]), &quiet).await.unwrap_err();
        assert_eq!(failed.to_string(), "model echo: file is gone");
        assert_eq!(encoder.embed_documents(&texts(&["refund"]), &quiet).await.unwrap().embedded_now, 1);
        assert_eq!(*seen.lock().unwrap(), ["query: 退款", "passage: refund"]);
    }
}
