//! The encoders that ship with the program, run for real. They take seconds to load, so the tests are few and fat.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Documents, EmbedError, Embedded, Encoder, Encoders, Settings};
use crate::store::Store;
use crate::text::Language;
use crate::types::{Deadline, Vector, vector::dot};

const GOLDEN_MINILM: [f32; 6] = [0.0322, -0.0165, 0.0434, -0.0222, 0.0598, 0.0107];
const GOLDEN_E5_EN: [f32; 6] = [0.0217, -0.0150, -0.0376, -0.0778, 0.0704, -0.0579];
const GOLDEN_E5_ZH_QUERY: [f32; 6] = [0.0752, -0.0181, -0.0359, -0.0202, 0.0950, -0.0455];
const GOLDEN_E5_ZH_PASSAGE: [f32; 6] = [0.0681, -0.0109, -0.0269, -0.0545, 0.0843, -0.0295];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn settings(encoders: &[&str]) -> Settings {
    Settings {
        models_dir: root().join("models"),
        encoders: encoders.iter().map(|name| (*name).to_owned()).collect(),
        onnxruntime: Some(root().join(".runtime/onnxruntime")),
        threads: 1,
        max_batch: 32,
        queue: 64,
    }
}

async fn load(settings: Settings) -> Result<Encoders, EmbedError> {
    let store = Arc::new(Store::in_memory().unwrap());
    tokio::task::spawn_blocking(move || Encoders::load(&settings, store)).await.unwrap()
}

async fn query(encoder: &Encoder, text: &str) -> Embedded {
    encoder.embed_query(text, Deadline::after(Duration::from_secs(60))).await.unwrap()
}

async fn documents(encoder: &Encoder, texts: &[&str]) -> Documents {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    encoder.embed_documents(&texts, &|_, _| ()).await.unwrap()
}

fn cosine(a: &Vector, b: &Vector) -> f32 {
    dot(a.as_slice(), b.as_slice())
}

#[track_caller]
fn check_golden(found: &Vector, first: [f32; 6]) {
    assert!((cosine(found, found) - 1.0).abs() < 1e-5, "length {}", cosine(found, found));
    for (found, expected) in found.as_slice().iter().zip(first) {
        assert!((found - expected).abs() < 0.02, "found {found}, expected {expected}");
    }
}

/// The query is nearer to the first document than to each other.
#[track_caller]
fn check_nearest(query: &Embedded, documents: &Documents) {
    let similarities: Vec<f32> = documents.vectors.iter().map(|document| cosine(&query.vector, document)).collect();
    assert!(similarities[1..].iter().all(|other| similarities[0] > *other), "{similarities:?}");
}

#[tokio::test]
async fn the_english_encoder() {
    let encoders = load(settings(&["minilm-l6-en"])).await.unwrap();
    let encoder = encoders.for_language(Language::Zh).expect("the only one serves all");
    assert_eq!((encoder.name(), encoder.dim(), encoder.languages()), ("minilm-l6-en", 384, &["en".to_owned()][..]));
    assert!(encoder.supports(Language::En) && !encoder.supports(Language::Zh) && !encoder.supports(Language::Other));

    // Golden components come from ONNX Runtime's own Python interface and a plain mean.
    let parcel = query(encoder, "Where is my parcel?").await;
    check_golden(&parcel.vector, GOLDEN_MINILM);
    let cards = documents(encoder, &["Track a shipment", "Cancel an order", "Play music", "Where is my parcel?"]).await;
    check_nearest(&parcel, &Documents { vectors: cards.vectors[..3].to_vec(), ..cards.clone() });

    // No prefix, no dependence on the batch, on padding or on the session.
    assert!(cosine(&cards.vectors[3], &parcel.vector) > 0.9999);
    let texts: Vec<String> = (0..20).map(|i| format!("refund order {i} {}", "and more ".repeat(i * 5))).collect();
    let batch = encoder.embed_documents(&texts, &|_, _| ()).await.unwrap();
    for (text, vector) in texts.iter().zip(&batch.vectors) {
        assert!(cosine(&query(encoder, text).await.vector, vector) > 0.9999, "{text}");
    }

    // 256 tokens are read, two of them special, although the tokenizer's file says 128.
    assert!(!query(encoder, &"order ".repeat(254)).await.truncated);
    let cut = query(encoder, &"order ".repeat(255)).await;
    assert!(cut.truncated);
    assert_ne!(
        query(encoder, &format!("{}late", "order ".repeat(200))).await,
        query(encoder, &"order ".repeat(200)).await
    );
    let huge = documents(encoder, &[&"order ".repeat(300_000), "short", &"x".repeat(50_000)]).await;
    assert_eq!(huge.truncated, 2);
    assert!(cosine(&huge.vectors[0], &cut.vector) > 0.999);

    // Odd input still has a direction.
    for text in ["", " ", "\0\u{200b}\u{feff}", "🛒🛒", "退款"] {
        assert!(!query(encoder, text).await.truncated, "{text:?}");
    }
}

#[tokio::test]
async fn the_chinese_and_english_encoder() {
    let encoders = load(settings(&["minilm-l6-en", "e5-small-zh-en", "minilm-l6-en"])).await.unwrap();
    let names: Vec<&str> = encoders.all().iter().map(|encoder| encoder.name()).collect();
    assert_eq!(names, ["e5-small-zh-en", "minilm-l6-en"]);
    assert_eq!(encoders.for_language(Language::En).unwrap().name(), "minilm-l6-en");
    for language in [Language::Zh, Language::Mixed, Language::Other] {
        assert_eq!(encoders.for_language(language).unwrap().name(), "e5-small-zh-en");
    }

    let encoder = &encoders.all()[0];
    check_golden(&query(encoder, "Where is my parcel?").await.vector, GOLDEN_E5_EN);
    let parcel = query(encoder, "我的快递到哪了").await;
    check_golden(&parcel.vector, GOLDEN_E5_ZH_QUERY);
    let cards = documents(encoder, &["查询物流进度", "取消订单", "播放音乐", "我的快递到哪了"]).await;
    check_golden(&cards.vectors[3], GOLDEN_E5_ZH_PASSAGE);
    check_nearest(&parcel, &Documents { vectors: cards.vectors[..3].to_vec(), ..cards.clone() });
    let english = documents(encoder, &["Track a shipment", "Cancel an order", "Play music"]).await;
    check_nearest(&query(encoder, "Where is my parcel?").await, &english);

    let texts: Vec<String> = (0..20).map(|i| format!("订单 {i} 要退款{}", "，还有别的事".repeat(i * 3))).collect();
    let alone = documents(encoder, &[&texts[0]]).await;
    let batch = encoder.embed_documents(&texts, &|_, _| ()).await.unwrap();
    assert_eq!(batch.embedded_now, 19);
    assert_eq!(batch.vectors[0], alone.vectors[0]);
    let again = load(settings(&["e5-small-zh-en"])).await.unwrap();
    for i in [0, 7, 19] {
        let single = documents(&again.all()[0], &[&texts[i]]).await;
        assert!(cosine(&single.vectors[0], &batch.vectors[i]) > 0.9999, "{}", texts[i]);
    }

    assert!(query(encoder, &"退款和换货".repeat(400)).await.truncated);
    assert!(!query(encoder, &"退款和换货".repeat(20)).await.truncated);
}

#[tokio::test]
async fn what_cannot_be_loaded_says_what_to_do() {
    let message = load(settings(&["no-such-encoder"])).await.err().unwrap().to_string();
    assert!(message.starts_with("model no-such-encoder: cannot read "), "{message}");
    assert!(load(settings(&[])).await.unwrap().all().is_empty());

    // A file that is what its manifest says, but no network.
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("minilm-l6-en");
    std::fs::create_dir(&folder).unwrap();
    for entry in std::fs::read_dir(root().join("models/minilm-l6-en")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    std::fs::write(folder.join("model.onnx"), "no network").unwrap();
    let manifest = std::fs::read_to_string(folder.join("manifest.toml")).unwrap();
    let broken = Settings { models_dir: dir.path().to_owned(), ..settings(&["minilm-l6-en"]) };
    let message = load(broken.clone()).await.err().unwrap().to_string();
    let found = message.split("has SHA-256 ").nth(1).expect("the hash that was found").split(' ').next().unwrap();
    assert_eq!(found.len(), 64);
    let expected = manifest.split("\"model.onnx\" = \"").nth(1).unwrap().split('"').next().unwrap();
    std::fs::write(folder.join("manifest.toml"), manifest.replace(expected, found)).unwrap();
    let message = load(broken.clone()).await.err().unwrap().to_string();
    assert!(message.contains("onnx runtime does not load it"), "{message}");

    // The right network under a manifest of another dimension.
    std::fs::copy(root().join("models/minilm-l6-en/model.onnx"), folder.join("model.onnx")).unwrap();
    std::fs::write(folder.join("manifest.toml"), manifest.replace("dims = 384", "dims = 768")).unwrap();
    let message = load(broken).await.err().unwrap().to_string();
    assert!(message.contains("have 384 components, not 768"), "{message}");

    if !cfg!(feature = "hub") {
        let message = load(settings(&["intfloat/multilingual-e5-small"])).await.err().unwrap().to_string();
        assert!(message.contains("without the `hub` feature"), "{message}");
    }
}
