use super::*;

/// Tools with the hashes of their cards, as one publication has them.
type Cards<'a> = [(&'a str, &'a str)];

fn publish(store: &Store, follows: u64, all: &Cards<'_>, changed: Option<&[&str]>, keep: usize) -> Recorded {
    let json = |tool: &str| format!("{{\"name\":\"{tool}\"}}");
    let version = NewVersion { follows, digest: "d", cause: "put", facts: "{}", all, changed, json: &json, keep };
    let publication = Publication { version: Some(version), ..Publication::new(UnixMs(7)) };
    store.publish(&publication).unwrap()
}

fn at(store: &Store, generation: u64) -> Option<Vec<(String, String)>> {
    store.cards_at(generation).unwrap().map(|cards| cards.into_iter().collect())
}

fn owned(cards: &Cards<'_>) -> Option<Vec<(String, String)>> {
    Some(cards.iter().map(|(tool, hash)| ((*tool).to_owned(), (*hash).to_owned())).collect())
}

#[test]
fn every_kept_version_is_found_again_and_what_is_older_goes_with_its_texts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = Store::open(&path).unwrap();
    let first = [("a", "a1"), ("b", "b1"), ("退款", "t1")];
    let second = [("a", "a2"), ("b", "b1"), ("退款", "t1")];
    let third = [("a", "a2"), ("退款", "t1")];
    let fourth = [("a", "a2"), ("b", "b2"), ("退款", "t1")];
    assert_eq!(publish(&store, 0, &first, None, 3), Recorded { generation: Some(1), shared: false });
    assert_eq!(publish(&store, 1, &second, Some(&["a"]), 3).generation, Some(2));
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.last_version().unwrap().unwrap().generation, 2);
    assert_eq!(publish(&store, 2, &third, Some(&["b"]), 3).generation, Some(3));
    assert_eq!(store.removed_cards().unwrap(), BTreeMap::from([("b".to_owned(), "b1".to_owned())]));
    assert_eq!((at(&store, 1), at(&store, 2), at(&store, 3)), (owned(&first), owned(&second), owned(&third)));
    let a1 = || store.card_texts(["a1"]).unwrap().len();
    assert_eq!(a1(), 1);

    assert_eq!(publish(&store, 3, &fourth, Some(&["b"]), 2).generation, Some(4));
    let kept: Vec<u64> = store.versions().unwrap().iter().map(|version| version.generation).collect();
    assert_eq!(kept, [4, 3]);
    assert_eq!((at(&store, 2), at(&store, 3), at(&store, 4)), (None, owned(&third), owned(&fourth)));
    assert_eq!(a1(), 0, "no version refers to it");
    assert_eq!(store.card_texts(["a2", "b1", "b2", "t1"]).unwrap().len(), 4);
    let change = ChangeRow { tool: "b".into(), before: None, after: Some("b2".into()) };
    assert_eq!(store.changes_of(4).unwrap(), [change]);
    assert_eq!(store.served_cards().unwrap().len(), 3);
}

#[test]
fn two_processes_on_one_file_keep_a_history_that_fits_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let (one, two) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
    publish(&one, 0, &[("a", "a1")], None, 9);
    let seen = publish(&two, 1, &[("a", "a1"), ("b", "b1")], Some(&["b"]), 9);
    assert_eq!(seen, Recorded { generation: Some(2), shared: false });
    // The first does not know of `b`.
    let seen = publish(&one, 1, &[("a", "a2")], Some(&["a"]), 9);
    assert_eq!(seen, Recorded { generation: Some(3), shared: true });
    assert_eq!(at(&one, 3), owned(&[("a", "a2")]));
    assert_eq!(at(&one, 2), owned(&[("a", "a1"), ("b", "b1")]));
    assert_eq!(at(&two, 1), owned(&[("a", "a1")]));
}

#[test]
fn all_of_a_publication_is_written_or_nothing() {
    let store = Store::in_memory().unwrap();
    publish(&store, 0, &[("a", "a1")], None, 9);
    let put = [("a".to_owned(), "{}".to_owned())];
    let approved = [("a".to_owned(), "a2".to_owned(), "{}".to_owned())];
    let settings = [("registry.rollback", Some("x".to_owned()))];
    let json = |_: &str| "{}".to_owned();
    let all = [("a", "a2")];
    let version = || NewVersion {
        follows: 1,
        digest: "d",
        cause: "approve",
        facts: "{}",
        all: &all,
        changed: Some(&["a"]),
        json: &json,
        keep: 9,
    };
    let publication = || Publication {
        version: Some(version()),
        cards: CardsChange { put: &put, ..CardsChange::default() },
        approved: &approved,
        settings: &settings,
        ..Publication::new(UnixMs(9))
    };
    // The last statement of all fails.
    let broken = |on: bool| {
        let sql = if on {
            "CREATE TRIGGER broken BEFORE INSERT ON version BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        } else {
            "DROP TRIGGER broken"
        };
        store.with(|connection| connection.execute_batch(sql)).unwrap();
    };
    broken(true);
    assert!(store.publish(&publication()).is_err());
    assert_eq!((store.cards().unwrap().len(), store.approvals().unwrap().len()), (0, 0));
    assert_eq!((store.setting("registry.rollback").unwrap(), at(&store, 1)), (None, owned(&[("a", "a1")])));
    broken(false);
    store.publish(&publication()).unwrap();
    assert_eq!((store.cards().unwrap().len(), store.approvals().unwrap()["a"].as_str()), (1, "a2"));
    assert_eq!((store.setting("registry.rollback").unwrap().as_deref(), at(&store, 2)), (Some("x"), owned(&all)));
    let revoked = ["a".to_owned()];
    let settings = [("registry.rollback", None)];
    let undo = Publication { revoked: &revoked, settings: &settings, ..Publication::new(UnixMs(9)) };
    assert_eq!(store.publish(&undo).unwrap().generation, None);
    assert_eq!((store.approvals().unwrap().len(), store.setting("registry.rollback").unwrap()), (0, None));
}

proptest::proptest! {
    /// Whatever is published, each version that is kept holds exactly what was served.
    #[test]
    fn undoing_leads_to_what_was_served(
        states in proptest::collection::vec(proptest::collection::btree_map("[a-d]", "[x-z]", 0..4), 1..8),
        keep in 1usize..5,
    ) {
        let store = Store::in_memory().unwrap();
        let mut before = BTreeMap::new();
        for (nth, state) in states.iter().enumerate() {
            let all: Vec<(&str, &str)> = state.iter().map(|(tool, hash)| (tool.as_str(), hash.as_str())).collect();
            let names: BTreeSet<&str> = before.keys().chain(state.keys()).map(String::as_str).collect();
            let names: Vec<&str> = names.into_iter().collect();
            publish(&store, nth as u64, &all, Some(&names), keep);
            before = state.clone();
        }
        for (nth, state) in states.iter().enumerate() {
            let found = store.cards_at(nth as u64 + 1).unwrap();
            let kept = nth + keep >= states.len();
            proptest::prop_assert_eq!(found.as_ref(), kept.then_some(state));
            let texts = store.card_texts(state.values().map(String::as_str)).unwrap();
            proptest::prop_assert!(!kept || state.values().all(|hash| texts.contains_key(hash)));
        }
    }
}
