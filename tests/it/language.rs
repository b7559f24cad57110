//! Utterances typed wrong, in another script, or in another language than the cards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pointsman::decision::{Decision, Degraded, Outcome};
use pointsman::pipeline::RouteRequest;
use pointsman::text::Language;
use pointsman::types::{Caller, Deadline};
use serde::Deserialize;

use crate::support::shop::Shop;

#[derive(Deserialize)]
struct Row {
    query: String,
    gold: Vec<String>,
    lang: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    cards: String,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn rows(name: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(data(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn request(utterance: &str) -> RouteRequest {
    RouteRequest { utterance: utterance.into(), ..RouteRequest::default() }
}

/// Place of a right tool in the ranking, from 0.
async fn place(shop: &Shop, row: &Row) -> Option<usize> {
    let (caller, deadline) = (Caller::local(), Deadline::after(Duration::from_secs(60)));
    let ranking = shop.router.rank(&request(&row.query), &caller, deadline).await.unwrap();
    ranking.candidates.iter().position(|candidate| row.gold.iter().any(|gold| candidate.tool.as_str() == gold))
}

/// Shares of rows in percent with a right tool first, and among the first five.
#[derive(Default, Debug)]
struct Recall {
    rows: usize,
    first: usize,
    five: usize,
}

impl Recall {
    fn add(&mut self, place: Option<usize>) {
        self.rows += 1;
        self.first += usize::from(place == Some(0));
        self.five += usize::from(place.is_some_and(|place| place < 5));
    }

    #[track_caller]
    fn at_least(&self, what: &str, first: usize, five: usize) {
        let reached = self.first * 100 >= first * self.rows && self.five * 100 >= five * self.rows;
        assert!(reached && self.rows > 0, "{what}: {self:?}, expected {first} % first and {five} % among five");
    }
}

#[tokio::test]
async fn what_is_typed_wrong_is_found() {
    let shop = Shop::start(&[]).await;
    let mut recall: BTreeMap<String, Recall> = BTreeMap::new();
    for row in rows("typed.jsonl") {
        let place = place(&shop, &row).await;
        println!("{} {place:?} {}", row.kind, row.query);
        recall.entry(row.kind.clone()).or_default().add(place);
        recall.entry(row.lang).or_default().add(place);
    }
    println!("{recall:#?}");
    for (kind, first, five) in [
        ("traditional", 75, 100),
        ("homophone", 70, 90),
        ("pinyin", 70, 90),
        ("slip", 70, 90),
        ("zh", 75, 90),
        ("en", 70, 90),
    ] {
        recall[kind].at_least(kind, first, five);
    }

    // The decision says what was read, and arguments stay as typed.
    let decision = shop.ask(request("退宽到帐没 SO-20260301548342")).await;
    assert!(decision.trace.notes.contains(&"read 退宽 as 退款".to_owned()), "{:?}", decision.trace.notes);
    let decision = shop.ask(request("tuikuan zenme hai mei dao")).await;
    assert_eq!(decision.language, Language::Zh);
    assert!(decision.trace.notes.iter().any(|note| note.starts_with("read tuikuan")), "{:?}", decision.trace.notes);
    let decision = shop.ask(request("有没有兰牙耳机")).await;
    let Outcome::Call { calls } = &decision.outcome else { panic!("{:?}", decision.outcome) };
    assert_eq!(calls[0].arguments["keyword"], "蓝牙耳机");

    unsupported_languages_call_nothing(&shop).await;
}

/// Whoever writes in a language no encoder declares gets no tool on a guess, unless it is named.
async fn unsupported_languages_call_nothing(shop: &Shop) {
    let is_call = |decision: &Decision| matches!(decision.outcome, Outcome::Call { .. });
    for utterance in [
        "Где моя посылка SO-20260301548342",
        "Отмените заказ SO-20260301548342",
        "أين طلبي SO-20260301548342",
        "注文をキャンセルしたいです",
        "내 택배 어디에 있어요",
        "พัสดุของฉันอยู่ที่ไหน",
        "où est mon colis, s'il vous plaît",
        "je voudrais annuler ma commande SO-20260301548342",
        "quiero cancelar mi pedido SO-20260301548342",
        "wo ist mein Paket",
        "list coupons, por favor, quiero ver mis cupones",
    ] {
        let decision = shop.ask(request(utterance)).await;
        assert!(!is_call(&decision), "{utterance}: {:?}", decision.outcome);
        assert!(decision.degraded.contains(&Degraded::UnsupportedLanguage), "{utterance}");
        assert_eq!(decision.language, Language::Other, "{utterance}");
    }
    let decision = shop.ask(request("пожалуйста, list_coupons")).await;
    assert!(is_call(&decision), "{:?}", decision.outcome);
    for utterance in ["refund?", "wher is my pakage", "wo de kuaidi dao na le", "我在优の品买的鞋能退吗"] {
        let decision = shop.ask(request(utterance)).await;
        assert!(!decision.degraded.contains(&Degraded::UnsupportedLanguage), "{utterance}");
    }
}

#[tokio::test]
async fn cards_in_the_other_language_are_found() {
    let mut recall: BTreeMap<String, Recall> = BTreeMap::new();
    for cards in ["en", "zh"] {
        let shop = Shop::of(&data(&format!("cross.{cards}.jsonl")), &[]).await;
        for row in rows("cross.jsonl").iter().filter(|row| row.cards == cards) {
            let place = place(&shop, row).await;
            println!("{cards} {} {place:?} {}", row.lang, row.query);
            recall.entry(format!("{} for {cards}", row.lang)).or_default().add(place);
        }
    }
    println!("{recall:#?}");
    for (kind, first, five) in
        [("zh for en", 60, 85), ("en for zh", 55, 80), ("mixed for en", 60, 80), ("mixed for zh", 50, 80)]
    {
        recall[kind].at_least(kind, first, five);
    }
}
