//! Graphs that are built behind a catalog being served. The runtime of these tests has one thread for tasks, so nothing
//! is built before the test waits for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::embed::Encoders;
use crate::embed::testing::hashing_encoder;
use crate::index::{Mode, Settings};
use crate::registry::{Registry, from_values};
use crate::store::Store;
use crate::types::{IndexKind, ToolId};

fn cards(numbers: std::ops::Range<usize>) -> Registry {
    let card = |n: usize| {
        json!({"name": format!("tool_{n}"), "version": 1, "description": format!("does number {n} 第{n}件事"),
            "side_effect": "read", "timeout_ms": 10, "permissions": []})
    };
    let registry = from_values(&numbers.map(card).collect::<Vec<_>>());
    assert_eq!(registry.quarantined.len(), 0);
    registry
}

async fn first(mode: Mode, registry: Registry) -> CatalogHandle<()> {
    let store = Arc::new(Store::in_memory().unwrap());
    let encoders = Encoders::of(vec![hashing_encoder("words", &["zh", "en"], 16, store)]);
    let settings = Settings { mode, exact_up_to: 40, recall_sample: 0.0 };
    let (builder, keep) = (CatalogBuilder::new(Arc::new(encoders), settings), async |_| Ok::<_, BuildError>(None));
    CatalogHandle::first(builder, registry, (), None, keep, &|_, _| {}).await.unwrap().0
}

async fn publish(handle: &CatalogHandle<()>, registry: Registry) -> Arc<Catalog> {
    handle.publish(async |_| Ok::<_, BuildError>((registry, ())), async |_| Ok(None)).await.unwrap();
    Arc::clone(&handle.load().catalog)
}

async fn with_graph(handle: &CatalogHandle<()>) -> Arc<Catalog> {
    while handle.load().catalog.index_kind() == IndexKind::Exact {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Arc::clone(&handle.load().catalog)
}

/// Each tool is nearest to its own text.
#[track_caller]
fn check_all_found(catalog: &Catalog, numbers: std::ops::Range<usize>) {
    let rows = &catalog.dense["words"];
    for n in numbers {
        let position = catalog.position(&ToolId::new(format!("tool_{n}"))).unwrap();
        let own = rows.index.row(rows.texts[position].start);
        let hits = rows.index.search(own, 1, &|_| true).unwrap();
        assert_eq!(rows.owner[hits[0].0], position, "tool_{n}");
    }
}

#[tokio::test]
async fn a_large_catalog_is_scanned_until_its_graph_is_built() {
    let handle = first(Mode::Auto, cards(0..100)).await;
    let at_once = Arc::clone(&handle.load().catalog);
    assert_eq!(at_once.index_kind(), IndexKind::Exact);
    check_all_found(&at_once, 0..100);
    let later = with_graph(&handle).await;
    assert_eq!(later.version, at_once.version, "the cards are the same");
    check_all_found(&later, 0..100);

    // A few new cards wait for no graph: the next request sees them.
    let more = publish(&handle, cards(0..103)).await;
    assert_eq!((more.index_kind(), more.tools.len()), (IndexKind::Hnsw, 103));
    check_all_found(&more, 0..103);
    // Nor do removed ones linger.
    let fewer = publish(&handle, cards(4..103)).await;
    assert_eq!((fewer.index_kind(), fewer.tools.len()), (IndexKind::Hnsw, 99));
    check_all_found(&fewer, 4..103);

    // Other cards altogether: the old graph says nothing about them.
    let others = publish(&handle, cards(200..300)).await;
    assert_eq!(others.index_kind(), IndexKind::Exact);
    check_all_found(&others, 200..300);
    check_all_found(&*with_graph(&handle).await, 200..300);

    let few = publish(&handle, cards(0..10)).await;
    assert_eq!(few.index_kind(), IndexKind::Exact);
    check_all_found(&few, 0..10);
}

#[tokio::test]
async fn a_graph_for_a_catalog_that_is_gone_is_not_published() {
    let handle = first(Mode::Auto, cards(0..100)).await;
    // Lets the first build begin.
    tokio::task::yield_now().await;
    publish(&handle, cards(100..200)).await;
    let last = publish(&handle, cards(200..300)).await;
    let with = with_graph(&handle).await;
    assert_eq!(with.version, last.version);
    check_all_found(&with, 200..300);
}

#[tokio::test]
async fn a_change_of_few_cards_does_not_end_a_graph_in_the_making() {
    let handle = first(Mode::Auto, cards(0..100)).await;
    // Lets the build begin; what it has begun with is probably not what is served when it ends.
    tokio::task::yield_now().await;
    for most in 101..104 {
        check_all_found(&*publish(&handle, cards(2..most)).await, 2..most);
    }
    let with = with_graph(&handle).await;
    assert_eq!(with.tools.len(), 101);
    check_all_found(&with, 2..103);
}

#[tokio::test]
async fn nothing_goes_on_after_the_handle() {
    let handle = first(Mode::Auto, cards(0..100)).await;
    let catalog = Arc::downgrade(&handle.load().catalog);
    tokio::task::yield_now().await;
    drop(handle);
    while catalog.strong_count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_graph_that_is_asked_for_is_there_from_the_start() {
    let handle = first(Mode::Hnsw, cards(0..10)).await;
    assert_eq!(handle.load().catalog.index_kind(), IndexKind::Hnsw);
    assert_eq!(publish(&handle, cards(0..60)).await.index_kind(), IndexKind::Hnsw);
    let handle = first(Mode::Exact, cards(0..60)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(handle.load().catalog.index_kind(), IndexKind::Exact);
}
