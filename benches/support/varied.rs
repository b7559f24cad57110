//! Many cards and their vectors without embedding many: the vectors vary real ones.

use std::collections::BTreeMap;

use pointsman::store::{Store, StoredVector};
use sha2::{Digest, Sha256};

use super::*;

/// So many cards are embedded; all others vary their vectors.
pub const EMBEDDED: usize = 500;
/// How far a component may move, as a share of a component of even length.
const SPREAD: f32 = 0.6;

/// A router over the first `count` cards, once [`prepare`] has been called for as many.
pub async fn start(count: usize, flags: &[(&str, &str)]) -> Arc<Router> {
    let path = store().display().to_string();
    let flags: Vec<(&str, &str)> = flags.iter().copied().chain([("store.path", path.as_str())]).collect();
    let mut settings = settings(&flags);
    settings.registries = vec![registry(count)];
    settings.stored_cards = false;
    // One text per card; each encoder is heard of once when it has nothing to do.
    let heard = |done, total| assert!(done % count == 0, "only {done} of {total} vectors are in the store");
    Router::start(settings, &heard).await.expect("the router starts; run `make setup` first")
}

/// Where the vectors are kept between runs.
fn store() -> PathBuf {
    target("scale-vectors.db")
}

fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(name)
}

/// Card number `n`; `edition` only changes how long it may take.
pub fn card(n: usize, edition: u64) -> serde_json::Value {
    card_saying(n, edition, &what(n))
}

fn card_saying(n: usize, edition: u64, what: &str) -> serde_json::Value {
    serde_json::json!({
        "name": format!("scale_tool_{n}"),
        "description": {"what": what},
        "parameters": {
            "type": "object",
            "properties": {
                "order_id": {"type": "string", "description": "Number of the order 订单号", "pattern": "^SO-[0-9]+$"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": format!("At most so many of kind {}", n % 97)},
                "state": {"type": "string", "enum": ["open", "closed", "已完成"]},
            },
            "required": ["order_id"],
        },
        "side_effect": "read", "timeout_ms": 1_000 + edition, "permissions": [],
    })
}

fn what(n: usize) -> String {
    let line = CARDS.lines().nth(n % 10_000).unwrap_or_default();
    described(line, n)
}

fn described(line: &str, n: usize) -> String {
    let card: serde_json::Value = serde_json::from_str(line).expect("bench cards are JSON");
    let text = pointsman::text::simplify_text(card["description"].as_str().unwrap_or_default().trim());
    if n < 10_000 { text } else { format!("{text} {}", n / 10_000) }
}

/// What an encoder reads of card number `n`.
fn text(n: usize, what: &str) -> String {
    format!("scale tool {n}: {what}")
}

/// The first `count` cards as a registry file.
pub fn registry(count: usize) -> PathBuf {
    target(&format!("scale-cards-{count}.json"))
}

/// Writes registry files for 500, 10,000 and `most` cards, and a store with the vectors of all.
pub fn prepare(most: usize) {
    let whats = all_whats(most);
    for count in [EMBEDDED, 10_000, most] {
        let tools: Vec<serde_json::Value> = (0..count).map(|n| card_saying(n, 0, &whats[n])).collect();
        let registry = serde_json::json!({"registry": "scale", "tools": tools});
        std::fs::write(self::registry(count), registry.to_string()).expect("target/ is writable");
    }
    let path = store().display().to_string();
    let flags = [("store.path", path.as_str())];
    let mut settings = settings(&flags);
    settings.stored_cards = false;
    drop(runtime().block_on(router(registry(EMBEDDED), settings)));
    let store = Store::open(&store()).expect("the store can be opened");
    for (model, prefix) in models(&whats) {
        vary(&store, &model, prefix, &whats);
    }
}

fn all_whats(most: usize) -> Vec<String> {
    let lines: Vec<&str> = CARDS.lines().collect();
    (0..most).map(|n| described(lines[n % lines.len()], n)).collect()
}

type Hash = [u8; 32];

fn hash(prefix: &str, text: &str) -> Hash {
    Sha256::digest(format!("{prefix}{text}")).into()
}

/// The encoders that have vectors of the embedded cards, and what they put in front of a text.
fn models(whats: &[String]) -> BTreeMap<String, &'static str> {
    let connection = rusqlite::Connection::open(store()).expect("the store can be opened");
    let mut statement = connection.prepare("SELECT fingerprint FROM model").expect("the store has models");
    let names = statement.query_map([], |row| row.get::<_, String>(0)).expect("the store has models");
    let names: Vec<String> = names.map(|name| name.expect("a name is text")).collect();
    let store = Store::open(&store()).expect("the store can be opened");
    let first = text(0, &whats[0]);
    let mut found = BTreeMap::new();
    for name in names {
        let prefixed = ["", "passage: "].into_iter().find(|prefix| {
            let wanted = [hash(prefix, &first)];
            store.vectors(&name, &wanted).is_ok_and(|vectors| !vectors.is_empty())
        });
        if let Some(prefix) = prefixed {
            found.insert(name, prefix);
        }
    }
    assert!(!found.is_empty(), "the first cards have vectors");
    found
}

fn vary(store: &Store, model: &str, prefix: &str, whats: &[String]) {
    let hashes: Vec<Hash> = (0..whats.len()).map(|n| hash(prefix, &text(n, &whats[n]))).collect();
    let known = store.vectors(model, &hashes).expect("the store can be read");
    let base: Vec<&StoredVector> = hashes[..EMBEDDED.min(whats.len())].iter().map(|hash| &known[hash]).collect();
    let missing: Vec<usize> = (0..whats.len()).filter(|n| !known.contains_key(&hashes[*n])).collect();
    for part in missing.chunks(1_000) {
        let rows: Vec<(Hash, StoredVector)> =
            part.iter().map(|n| (hashes[*n], moved(base[n % base.len()], *n))).collect();
        store.put_vectors(model, &rows).expect("the store can be written");
    }
}

/// A vector near `base`, another one for each `seed`.
fn moved(base: &StoredVector, seed: usize) -> StoredVector {
    let mut state = seed as u64;
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let even = (base.components.len() as f32).sqrt().recip();
    let components = base.components.iter().map(|component| component + SPREAD * even * next()).collect();
    StoredVector { components, truncated: false }
}
