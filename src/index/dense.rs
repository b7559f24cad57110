//! Nearest rows by cosine similarity: an exact scan, or a graph whose finds are scored exactly.
//!
//! Owns: which of the two answers, and the promise that no row is lost: what the graph cannot vouch for is scanned.
//! Does not know: how a graph is walked ([`super::graph`]).

use std::collections::HashSet;
use std::sync::Arc;

use super::graph::{Found, Graph};
use super::recall::RecallWatch;
use super::{exact, rank};
use crate::telemetry::names;
use crate::types::{IndexKind, Similarity, Vector};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Exact up to [`Settings::exact_up_to`] rows, a graph above as soon as it is built.
    Auto,
    Exact,
    /// A graph from the first request on, however few rows.
    Hnsw,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub mode: Mode,
    /// `auto` scans exactly up to this many vectors.
    pub exact_up_to: usize,
    /// The part of the graph's answers that is compared with the exact ones, from 0 to 1.
    pub recall_sample: f32,
}

impl Settings {
    fn asks_for_graph(&self, rows: usize) -> bool {
        match self.mode {
            Mode::Auto => rows > self.exact_up_to,
            Mode::Exact => false,
            Mode::Hnsw => true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("a vector of {got} components where {expected} are expected")]
    Dimension { expected: usize, got: usize },
    #[error("building the graph failed: {0}")]
    Build(String),
}

/// With fewer than one allowed row in this many, scanning those is cheaper than walking past all the others.
const SCAN_BELOW_SHARE: usize = 4;

/// Rows in the order given to [`DenseIndex::build`]; immutable, and cheap to clone.
#[derive(Clone)]
pub struct DenseIndex {
    /// Each row is an allocation of its own; scanning them was measured as fast as scanning one block.
    rows: Arc<Vec<Vector>>,
    graph: Option<Arc<Graph>>,
    watch: Option<Arc<RecallWatch>>,
}

impl DenseIndex {
    /// Takes minutes for a graph of many thousand rows: run it on a thread that may block.
    ///
    /// # Errors
    /// [`IndexError::Dimension`] if the rows differ in dimension, [`IndexError::Build`] if the graph library fails.
    pub fn build(rows: Vec<Vector>, settings: &Settings) -> Result<Self, IndexError> {
        let index = Self::scan(rows)?;
        let graph = if settings.asks_for_graph(index.len()) { index.with_graph(&|| true)? } else { None };
        Ok(graph.unwrap_or(index))
    }

    /// The index to serve at once where building takes long: the graph that `auto` asks for is the one of `earlier` as
    /// long as most rows are in it, and otherwise left to [`DenseIndex::with_graph`].
    ///
    /// # Errors
    /// As [`DenseIndex::build`].
    pub fn prepare(rows: Vec<Vector>, settings: &Settings, earlier: Option<&Self>) -> Result<Self, IndexError> {
        if settings.mode == Mode::Hnsw {
            return Self::build(rows, settings);
        }
        let index = Self::scan(rows)?;
        Ok(match earlier {
            Some(earlier) => index.adopting(earlier, settings),
            None => index,
        })
    }

    /// The same rows with the graph of `earlier`, if one is asked for and that one holds most of them.
    #[must_use]
    pub fn adopting(&self, earlier: &Self, settings: &Settings) -> Self {
        let graph = earlier.graph.as_ref().filter(|_| settings.asks_for_graph(self.len()));
        let graph = graph.map(|graph| graph.adopted(&self.rows)).filter(Graph::holds_most);
        Self { graph: graph.map(Arc::new), ..self.clone() }
    }

    /// Whether most rows are those of `other`: the very same vectors, not only equal ones.
    pub fn shares_most_rows(&self, other: &Self) -> bool {
        let there: HashSet<usize> = other.rows.iter().map(Vector::address).collect();
        let shared = self.rows.iter().filter(|row| there.contains(&row.address())).count();
        // As for taking over a graph that is built.
        self.len() - shared < shared / 2
    }

    fn scan(rows: Vec<Vector>) -> Result<Self, IndexError> {
        if let Some(first) = rows.first() {
            rows.iter().try_for_each(|row| same_dimension(first, row))?;
        }
        Ok(Self { rows: Arc::new(rows), graph: None, watch: None })
    }

    /// Whether [`DenseIndex::with_graph`] has something to do.
    pub fn needs_graph(&self, settings: &Settings) -> bool {
        settings.asks_for_graph(self.len()) && self.graph.as_ref().is_none_or(|graph| graph.is_worn())
    }

    /// The same rows with a new graph; `None` as soon as `go_on` says no. Takes minutes for many thousand rows.
    ///
    /// # Errors
    /// [`IndexError::Build`] if the graph library fails.
    pub fn with_graph(&self, go_on: &dyn Fn() -> bool) -> Result<Option<Self>, IndexError> {
        let graph = Graph::build(&self.rows, go_on)?;
        Ok(graph.map(|graph| Self { graph: Some(Arc::new(graph)), ..self.clone() }))
    }

    /// Lets `watch` hear of the graph's answers.
    #[must_use]
    pub fn watched(self, watch: Option<Arc<RecallWatch>>) -> Self {
        Self { watch, ..self }
    }

    pub fn kind(&self) -> IndexKind {
        if self.graph.is_some() { IndexKind::Hnsw } else { IndexKind::Exact }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &Vector {
        &self.rows[row]
    }

    /// Exact similarity of every row, in row order.
    ///
    /// # Errors
    /// [`IndexError::Dimension`] if the query comes from another encoder than the rows.
    pub fn scores(&self, query: &Vector) -> Result<Vec<f32>, IndexError> {
        self.check(query)?;
        Ok(self.rows.iter().map(|row| exact::similarity(query, row).get()).collect())
    }

    /// Up to `k` rows for which `allowed` holds, best first, equal similarities by row; similarities are exact also
    /// when a graph found the rows. Fewer than `k` only if fewer are allowed. `allowed` is asked once for each row.
    ///
    /// # Errors
    /// [`IndexError::Dimension`] if the query comes from another encoder than the rows.
    pub fn search(
        &self,
        query: &Vector,
        k: usize,
        allowed: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<Vec<(usize, Similarity)>, IndexError> {
        self.check(query)?;
        let allowed: Vec<bool> = (0..self.rows.len()).map(allowed).collect();
        let allowed_rows = allowed.iter().filter(|allowed| **allowed).count();
        let k = k.min(allowed_rows);
        if let Some(graph) = self.graph.as_ref().filter(|graph| self.walk_pays(graph, k, allowed_rows))
            && let Some(hits) = self.walked(graph, query, k, &allowed)
        {
            return Ok(hits);
        }
        Ok(exact::nearest(&self.rows, query, k, &allowed))
    }

    /// What the graph finds, or `None` where only a scan can tell.
    fn walked(&self, graph: &Graph, query: &Vector, k: usize, allowed: &[bool]) -> Option<Vec<(usize, Similarity)>> {
        let Some(hits) = self.settled(query, k, &graph.near(query, k, allowed)) else {
            metrics::counter!(names::INDEX_RESCANS).increment(1);
            return None;
        };
        if let Some(watch) = &self.watch {
            let rows: Vec<usize> = hits.iter().map(|hit| hit.0).collect();
            watch.answered(&self.rows, query, allowed, &rows);
        }
        Some(hits)
    }

    fn walk_pays(&self, graph: &Graph, k: usize, allowed_rows: usize) -> bool {
        k > 0 && allowed_rows >= self.rows.len() / SCAN_BELOW_SHARE && graph.ef_search(k) < allowed_rows
    }

    /// The best `k` of the rows found, or `None` if rows that belong to them may be missing.
    fn settled(&self, query: &Vector, k: usize, found: &Found) -> Option<Vec<(usize, Similarity)>> {
        let score = |row: &usize| (*row, exact::similarity(query, &self.rows[*row]));
        let mut hits: Vec<_> = found.beam.iter().map(score).collect();
        let worst_of_beam = hits.iter().map(|hit| hit.1).reduce(|a, b| if b < a { b } else { a })?;
        hits.extend(found.outside.iter().map(score));
        let best = rank::best(hits, k);
        // When the worst row of the beam ties with the last one wanted, equal ones with a smaller number may be outside;
        // when it is among the wanted itself, so may better ones.
        let settled = best.last().is_some_and(|last| worst_of_beam < last.1);
        settled.then_some(best)
    }

    fn check(&self, query: &Vector) -> Result<(), IndexError> {
        self.rows.first().map_or(Ok(()), |row| same_dimension(row, query))
    }
}

fn same_dimension(expected: &Vector, got: &Vector) -> Result<(), IndexError> {
    if expected.dim() == got.dim() {
        Ok(())
    } else {
        Err(IndexError::Dimension { expected: expected.dim(), got: got.dim() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::super::sample::{Numbers, clustered};
    use super::*;

    const ALL: &(dyn Fn(usize) -> bool + Sync) = &|_| true;

    fn settings(mode: Mode) -> Settings {
        Settings { mode, exact_up_to: 100, recall_sample: 0.0 }
    }

    fn build(rows: &[Vector], mode: Mode) -> DenseIndex {
        DenseIndex::build(rows.to_vec(), &settings(mode)).unwrap()
    }

    fn vector(components: &[f32]) -> Vector {
        Vector::normalised(components.to_vec()).unwrap()
    }

    fn rows(hits: &[(usize, Similarity)]) -> Vec<usize> {
        hits.iter().map(|hit| hit.0).collect()
    }

    /// Everything in one graph, because building takes long: recall, filters, repetition.
    #[test]
    fn the_graph_finds_what_the_scan_finds() {
        let families = clustered(6, 100, 24, 0.1, 7);
        let (exact, graph, again) =
            (build(&families, Mode::Exact), build(&families, Mode::Hnsw), build(&families, Mode::Hnsw));
        assert_eq!((exact.kind(), graph.kind()), (IndexKind::Exact, IndexKind::Hnsw));
        let mut numbers = Numbers::new(3);
        let (mut found, mut wanted) = (0, 0);
        for row in (0..600).step_by(5) {
            let query = numbers.near(families[row].as_slice(), 0.15);
            for allowed in [ALL, &|row| row % 3 != 0, &|row| row % 100 == 0] {
                let (expect, got) =
                    (exact.search(&query, 10, allowed).unwrap(), graph.search(&query, 10, allowed).unwrap());
                assert_eq!(got, again.search(&query, 10, allowed).unwrap(), "two builds answer alike");
                assert_eq!(got.len(), expect.len());
                assert!(got.iter().all(|hit| allowed(hit.0)));
                wanted += expect.len();
                found += expect.iter().filter(|hit| got.contains(hit)).count();
            }
        }
        assert!(found as f32 / wanted as f32 >= 0.99, "{found} of {wanted}");

        // As many as there are, even the ones the beam would not hold.
        assert_eq!(graph.search(&families[0], usize::MAX, ALL).unwrap(), exact.search(&families[0], 600, ALL).unwrap());
        assert_eq!(graph.search(&families[0], 0, ALL).unwrap(), []);
        assert_eq!(graph.search(&families[0], 5, &|_| false).unwrap(), []);
        assert_eq!(rows(&graph.search(&families[0], 5, &|row| row == 599).unwrap()), [599]);
        // A list in any order allows the same rows.
        let list = [30, 5, 17, 2, 599];
        let expect = exact.search(&families[17], 5, &|row| list.contains(&row)).unwrap();
        assert_eq!(expect.iter().map(|hit| hit.0).collect::<BTreeSet<_>>(), BTreeSet::from(list));
        assert_eq!(graph.search(&families[17], 5, &|row| list.contains(&row)).unwrap(), expect);
    }

    /// Utterances lie between families of tools, and their nearest rows in many of them: harder than a query near a row.
    #[test]
    fn recall_at_ten_has_a_floor_near_rows_and_between_them() {
        let all = clustered(40, 25, 32, 0.25, 12);
        let (exact, graph) = (build(&all, Mode::Exact), build(&all, Mode::Hnsw));
        let mut numbers = Numbers::new(8);
        let (mut found, mut wanted) = ([0, 0], 0);
        for n in 0..100 {
            let [one, other] = [&all[n * 10], &all[(n * 731 + 400) % all.len()]].map(Vector::as_slice);
            let between: Vec<f32> = one.iter().zip(other).map(|(one, other)| one + other).collect();
            wanted += 10;
            for (kind, query) in [numbers.near(one, 0.1), numbers.near(&between, 0.5)].iter().enumerate() {
                let [expect, got] = [&exact, &graph].map(|index| index.search(query, 10, ALL).unwrap());
                found[kind] += expect.iter().filter(|hit| got.contains(hit)).count();
            }
        }
        assert!(found.iter().all(|found| *found as f32 / wanted as f32 >= 0.99), "{found:?} of {wanted}");
    }

    #[test]
    fn a_search_does_not_depend_on_the_order_of_the_rows() {
        let all = clustered(6, 40, 16, 0.2, 31);
        let reversed: Vec<Vector> = all.iter().rev().cloned().collect();
        let (forwards, backwards) = (build(&all, Mode::Hnsw), build(&reversed, Mode::Hnsw));
        for query in clustered(20, 1, 16, 1.0, 5) {
            let hits = forwards.search(&query, 10, ALL).unwrap();
            let mirrored = backwards.search(&query, 10, ALL).unwrap().into_iter().map(|(row, is)| (239 - row, is));
            assert_eq!(hits, mirrored.collect::<Vec<_>>());
            assert_eq!(hits, forwards.search(&query, 10, ALL).unwrap(), "the first answer is the hundredth");
        }
    }

    #[test]
    fn equal_vectors_are_all_found_and_hide_nothing() {
        let mut all = clustered(1, 200, 16, 1.0, 5);
        all.extend(vec![all[7].clone(); 150]);
        let (exact, graph) = (build(&all, Mode::Exact), build(&all, Mode::Hnsw));
        let hits = graph.search(&all[7], 160, ALL).unwrap();
        assert_eq!(rows(&hits[..151]), std::iter::once(7).chain(200..350).collect::<Vec<_>>());
        assert_eq!(hits, exact.search(&all[7], 160, ALL).unwrap());
        for row in [0, 50, 199] {
            assert_eq!(graph.search(&all[row], 3, ALL).unwrap(), exact.search(&all[row], 3, ALL).unwrap());
        }
        // Filtered, an equal row stands in for the one that is not allowed.
        assert_eq!(rows(&graph.search(&all[7], 1, &|row| row != 7).unwrap()), [200]);
    }

    #[test]
    fn rows_of_equal_similarity_come_in_row_order_from_both() {
        // A ring around the query: 180 different vectors, all at the same angle to it.
        let ring: Vec<Vector> = (0..180)
            .map(|row| {
                let mut components = [0.0; 91];
                components[0] = 1.0;
                components[1 + row / 2] = if row % 2 == 0 { 0.5 } else { -0.5 };
                vector(&components)
            })
            .collect();
        let mut query = [0.0; 91];
        query[0] = 1.0;
        for mode in [Mode::Exact, Mode::Hnsw] {
            let index = build(&ring, mode);
            for first in [0, 60, 110] {
                let hits = index.search(&vector(&query), 7, &|row| row >= first).unwrap();
                assert_eq!(rows(&hits), (first..first + 7).collect::<Vec<_>>(), "{mode:?}");
            }
        }
    }

    #[test]
    fn a_walk_that_may_have_missed_rows_does_not_count() {
        let index =
            build(&[vector(&[1.0, 0.0]), vector(&[0.0, 1.0]), vector(&[1.0, 0.0]), vector(&[1.0, 1.0])], Mode::Exact);
        let settled = |k: usize, beam: &[usize], outside: &[usize]| {
            let found = Found { beam: beam.to_vec(), outside: outside.to_vec() };
            index.settled(&vector(&[1.0, 0.1]), k, &found).map(|hits| rows(&hits))
        };
        assert_eq!(settled(2, &[2, 0, 3], &[]), Some(vec![0, 2]));
        assert_eq!(settled(2, &[3, 1], &[0]), Some(vec![0, 3]));
        assert_eq!(settled(2, &[2], &[]), None, "too few");
        assert_eq!(settled(1, &[2, 0], &[]), None, "row 0 only by luck: both tie at the edge of the beam");
        assert_eq!(settled(1, &[2], &[1]), None, "a bad row no walk sees says nothing about the edge of the beam");
        assert_eq!(settled(1, &[], &[1]), None, "nothing found");
    }

    #[test]
    fn another_dimension_is_an_error_not_a_panic() {
        let (two, three) = (vector(&[1.0, 2.0]), vector(&[1.0, 2.0, 3.0]));
        for mode in [Mode::Exact, Mode::Hnsw] {
            let index = build(&[three.clone(), three.clone()], mode);
            let is_dimension = |error: IndexError| matches!(error, IndexError::Dimension { expected: 3, got: 2 });
            assert!(index.search(&two, 1, ALL).is_err_and(is_dimension));
            assert!(index.scores(&two).is_err_and(is_dimension));
            let mixed = DenseIndex::build(vec![three.clone(), two.clone()], &settings(mode));
            assert!(mixed.is_err_and(is_dimension));
        }
    }

    #[test]
    fn nothing_without_a_direction_can_become_a_row_or_a_query() {
        let odd = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE, 1e-30, 1e-7, 1.0, f32::MAX, f32::MIN];
        for a in odd {
            for b in odd {
                if let Ok(vector) = Vector::normalised(vec![a, b]) {
                    assert!((exact::similarity(&vector, &vector).get() - 1.0).abs() < 1e-5, "{a} {b}");
                }
            }
        }
    }

    #[test]
    fn small_and_empty_indices_answer() {
        let query = vector(&[1.0, 0.0]);
        for mode in [Mode::Auto, Mode::Exact, Mode::Hnsw] {
            let empty = build(&[], mode);
            assert!(empty.is_empty());
            assert_eq!(empty.search(&query, 3, ALL).unwrap(), []);
            assert_eq!(empty.scores(&query).unwrap(), [0.0; 0]);
            let one = build(&[vector(&[1.0, 1.0])], mode);
            assert_eq!(rows(&one.search(&query, 3, ALL).unwrap()), [0]);
            assert_eq!(one.scores(&query).unwrap(), [one.search(&query, 1, ALL).unwrap()[0].1.get()]);
            assert_eq!((one.len(), one.row(0)), (1, &vector(&[1.0, 1.0])));
        }
    }

    #[test]
    fn auto_scans_up_to_the_threshold() {
        let rows = clustered(1, 101, 4, 1.0, 2);
        assert_eq!(build(&rows[..100], Mode::Auto).kind(), IndexKind::Exact);
        assert_eq!(build(&rows, Mode::Auto).kind(), IndexKind::Hnsw);
    }

    fn vectors(length: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<Vector>> {
        // Few values, so that equal vectors and equal similarities are frequent.
        let one = prop::collection::vec(-1i8..=1, 5)
            .prop_filter_map("no direction", |c| Vector::normalised(c.into_iter().map(f32::from).collect()).ok());
        prop::collection::vec(one, length)
    }

    proptest! {
        #[test]
        fn a_scan_is_a_sort(all in vectors(1..60), k in 0usize..70, list in prop::collection::vec(0usize..60, 0..60)) {
            let query = all[0].clone();
            let scores = build(&all, Mode::Exact).scores(&query).unwrap();
            let mut expect: Vec<usize> = (0..all.len()).filter(|row| list.contains(row)).collect();
            expect.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            expect.truncate(k);
            let hits = build(&all, Mode::Exact).search(&query, k, &|row| list.contains(&row)).unwrap();
            prop_assert_eq!(rows(&hits), expect);
        }
    }

    proptest! {
        // A fixed seed: the graph may miss a row now and then, and a test may not.
        #![proptest_config(ProptestConfig { cases: 8, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]
        #[test]
        fn both_agree_where_ties_are_frequent(
            all in vectors(160..200),
            k in 1usize..20,
            list in prop::collection::vec(0usize..200, 100..200),
        ) {
            let (exact, graph) = (build(&all, Mode::Exact), build(&all, Mode::Hnsw));
            let sorted: BTreeSet<usize> = list.iter().copied().collect();
            for query in all.iter().take(5) {
                let hits = graph.search(query, k, &|row| list.contains(&row)).unwrap();
                prop_assert_eq!(&hits, &graph.search(query, k, &|row| sorted.contains(&row)).unwrap());
                prop_assert_eq!(hits, exact.search(query, k, &|row| sorted.contains(&row)).unwrap());
            }
        }
    }
}
