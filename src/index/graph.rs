//! Navigable graph over the distinct vectors of an index, after Malkov and Yashunin's HNSW.
//!
//! Owns: finding rows that are probably near, and every guard the graph library needs: it may panic, lose links, and
//! isolate equal vectors from the rest. It builds; [`super::walk`] searches.
//! Does not know: exact similarities and result order ([`super::dense`] computes both for the rows found here).
//!
//! Source: Malkov and Yashunin, Efficient and robust approximate nearest neighbor search using HNSW graphs, 2016.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hnsw_rs::anndists::dist::distances::Distance;
use hnsw_rs::hnsw::Hnsw;
use sha2::{Digest, Sha256};

use super::dense::IndexError;
use super::walk::Links;
use crate::types::Vector;
use crate::types::vector::dot;

/// Links of a point in the upper layers, twice as many in the lowest.
const CONNECTIONS: usize = 32;
const _: () = assert!(CONNECTIONS <= 256, "the library ends the process above 256");
/// Beam width while inserting.
const EF_CONSTRUCTION: usize = 100;
/// More layers than the library would ever fill at this number of connections.
const LAYERS: usize = 16;
/// Narrowest beam of a search.
const MIN_EF_SEARCH: usize = 64;
/// One row in this many may be outside the graph, or one point in this many without a row, before it is built anew.
const REBUILD_AT_SHARE: usize = 20;

/// Immutable once built; searches from several threads at once are fine.
pub(super) struct Graph {
    points: Arc<Points>,
    /// Rows that share the vector of each point, ascending; none for a vector that is no longer there. More equal
    /// vectors than a point has links would link only among themselves and could neither be found nor left, so each
    /// distinct vector is one point.
    rows_of: Vec<Vec<usize>>,
    /// Rows no walk reaches, ascending; they are always handed on.
    outside: Vec<usize>,
}

/// What the rows of several catalogs may share.
struct Points {
    links: Links,
    /// The rows the graph was built for, and which of them each point is.
    vectors: Arc<Vec<Vector>>,
    row: Vec<usize>,
    by_print: HashMap<Print, usize>,
    /// Points without a path from a start, ascending.
    unreachable: Vec<usize>,
}

/// SHA-256 of a vector's components, to the bit.
type Print = [u8; 32];

impl Graph {
    /// Points are inserted one after the other in an order that only the vectors decide: parallel insertion is faster,
    /// but gives another graph in each run. `None` as soon as `go_on` says no.
    ///
    /// # Errors
    /// [`IndexError::Build`] if the library panics.
    pub(super) fn build(rows: &Arc<Vec<Vector>>, go_on: &dyn Fn() -> bool) -> Result<Option<Self>, IndexError> {
        let (by_print, rows_of) = group_equal(rows);
        let row: Vec<usize> = rows_of.iter().map(|rows| rows[0]).collect();
        let built = guarded(|| {
            let mut hnsw = Hnsw::new(CONNECTIONS, row.len(), LAYERS, EF_CONSTRUCTION, ClampedCosine);
            // Free places are filled up. Without it the variations of a card link to it and to little else.
            hnsw.set_keeping_pruned(true);
            for (point, row) in row.iter().enumerate() {
                if !go_on() {
                    return None;
                }
                hnsw.insert((rows[*row].as_slice(), point));
            }
            Some(links(&hnsw, row.len()))
        });
        let Some(links) = built.map_err(IndexError::Build)? else { return Ok(None) };
        let unreachable = links.unreachable();
        let points = Points { links, vectors: Arc::clone(rows), row, by_print, unreachable };
        Ok(Some(Self::over(Arc::new(points), rows_of, Vec::new())))
    }

    /// The same points for other rows: vectors that are gone stand for none, new ones are outside.
    pub(super) fn adopted(&self, rows: &[Vector]) -> Self {
        let Points { vectors, row, by_print, .. } = &*self.points;
        // Most rows are the very vectors the graph was built for: a look at where they are saves hashing them.
        let here: HashMap<usize, usize> =
            row.iter().enumerate().map(|(point, row)| (vectors[*row].address(), point)).collect();
        let mut rows_of = vec![Vec::new(); self.rows_of.len()];
        let mut outside = Vec::new();
        for (row, vector) in rows.iter().enumerate() {
            match here.get(&vector.address()).or_else(|| by_print.get(&print(vector))) {
                Some(point) => rows_of[*point].push(row),
                None => outside.push(row),
            }
        }
        Self::over(Arc::clone(&self.points), rows_of, outside)
    }

    fn over(points: Arc<Points>, rows_of: Vec<Vec<usize>>, mut outside: Vec<usize>) -> Self {
        outside.extend(points.unreachable.iter().flat_map(|point| &rows_of[*point]));
        outside.sort_unstable();
        Self { points, rows_of, outside }
    }

    /// Whether walking still saves more than scanning what is outside costs.
    pub(super) fn holds_most(&self) -> bool {
        let rows: usize = self.rows_of.iter().map(Vec::len).sum();
        self.outside.len() < rows / 2
    }

    /// Whether so much has changed since the points were inserted that inserting again pays.
    pub(super) fn is_worn(&self) -> bool {
        let empty = self.rows_of.iter().filter(|rows| rows.is_empty()).count();
        let unreachable: usize = self.points.unreachable.iter().map(|point| self.rows_of[*point].len()).sum();
        empty.max(self.outside.len() - unreachable) * REBUILD_AT_SHARE > self.rows_of.len()
    }

    /// Rows that are probably among the `k` nearest to `query`; only rows for which `allowed` is true.
    pub(super) fn near(&self, query: &Vector, k: usize, allowed: &[bool]) -> Found {
        let Points { links, vectors, row, .. } = &*self.points;
        // Everything the beam holds is handed on: the exact ranking afterwards settles near ties.
        let beam = links.walk(
            self.ef_search(k),
            |point| dot(query.as_slice(), vectors[row[point]].as_slice()),
            |point| self.rows_of[point].iter().any(|row| allowed[*row]),
        );
        let open = |row: &&usize| allowed[**row];
        Found {
            beam: beam.iter().flat_map(|point| &self.rows_of[*point]).filter(open).copied().collect(),
            outside: self.outside.iter().filter(open).copied().collect(),
        }
    }

    /// Beam width: the more points there are, the more of them are about as near as the nearest. Utterances need much
    /// more than queries near a card (docs/MEASUREMENTS.md).
    pub(super) fn ef_search(&self, k: usize) -> usize {
        MIN_EF_SEARCH.max(k.saturating_mul(2)).max(6 * self.rows_of.len().isqrt())
    }
}

/// What a search hands on, in no particular order; no row twice.
pub(super) struct Found {
    /// Rows the walk kept as the best it saw.
    pub(super) beam: Vec<usize>,
    /// Rows no walk can see.
    pub(super) outside: Vec<usize>,
}

/// Cosine distance of unit vectors. The library's own dot distance panics when rounding takes a product above 1, its
/// cosine distance adds up in another order than our exact scan.
struct ClampedCosine;

impl Distance<f32> for ClampedCosine {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        // `max` also turns NaN, on which the library panics, into 0.
        (1.0 - dot(a, b)).max(0.0)
    }
}

/// Points, and the rows of each: rows of equal vectors are one point. They are numbered by print, so that neighbours
/// are far apart and the same vectors are the same points in whatever rows.
///
/// Catalogs list alike tools together. Inserted in that order, the members of a large family take up each other's links
/// before anything else is there to link to: of four families of 300, 356 points could not be reached.
fn group_equal(rows: &[Vector]) -> (HashMap<Print, usize>, Vec<Vec<usize>>) {
    let mut groups: BTreeMap<Print, Vec<usize>> = BTreeMap::new();
    for (row, vector) in rows.iter().enumerate() {
        groups.entry(print(vector)).or_default().push(row);
    }
    let by_print = groups.keys().enumerate().map(|(point, print)| (*print, point)).collect();
    (by_print, groups.into_values().collect())
}

fn print(vector: &Vector) -> Print {
    let mut digest = Sha256::new();
    for component in vector.as_slice() {
        digest.update(component.to_le_bytes());
    }
    digest.finalize().into()
}

/// The links of the lowest layer. Points that are in an upper one too are the starts: the library draws them at random,
/// one in as many as there are connections.
fn links(hnsw: &Hnsw<'static, f32, ClampedCosine>, points: usize) -> Links {
    let indexation = hnsw.get_point_indexation();
    let mut of = vec![Vec::new(); points];
    let mut starts = Vec::new();
    for layer in 0..LAYERS {
        for point in indexation.get_layer_iterator(layer) {
            let id = point.get_origin_id();
            if layer > 0 || points <= CONNECTIONS {
                starts.push(id as u32);
            }
            of[id] = point.get_neighborhood_id()[0].iter().map(|hit| hit.d_id as u32).collect();
        }
    }
    if starts.is_empty() && points > 0 {
        starts.push(0);
    }
    starts.sort_unstable();
    Links::new(of, starts)
}

/// Runs `work`, turning a panic into its message.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Unwind safe: a graph whose building panicked is dropped.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Numbers, clustered};
    use super::*;

    #[test]
    fn products_above_one_are_no_negative_distance() {
        let mut numbers = Numbers::new(1);
        let vectors: Vec<Vector> = (0..200).map(|_| numbers.near(&[0.0; 384], 1.0)).collect();
        let beyond = |vector: &&Vector| dot(vector.as_slice(), vector.as_slice()) > 1.0;
        assert!(vectors.iter().filter(beyond).count() > 0, "rounding goes beyond 1 for some");
        assert!(vectors.iter().all(|v| ClampedCosine.eval(v.as_slice(), v.as_slice()) >= 0.0));
        assert_eq!(ClampedCosine.eval(&[f32::NAN], &[1.0]), 0.0);
    }

    const GO_ON: &dyn Fn() -> bool = &|| true;

    fn built(rows: &[Vector]) -> Graph {
        Graph::build(&Arc::new(rows.to_vec()), GO_ON).unwrap().unwrap()
    }

    #[test]
    fn points_no_walk_reaches_are_handed_on() {
        let rows = clustered(2, 50, 16, 0.1, 1);
        let whole = built(&rows);
        assert_eq!(whole.outside, [0usize; 0]);
        // The same points, the last thirty cut off.
        let points = Points {
            links: Links::new((0..70).map(|point| vec![(point + 1) % 70]).chain(vec![vec![]; 30]).collect(), vec![3]),
            vectors: Arc::clone(&whole.points.vectors),
            row: whole.points.row.clone(),
            by_print: whole.points.by_print.clone(),
            unreachable: (70..100).collect(),
        };
        assert_eq!(points.links.unreachable(), points.unreachable);
        let cut = Graph::over(Arc::new(points), whole.rows_of.clone(), Vec::new());
        let lost: Vec<usize> = whole.rows_of[70..].iter().flatten().copied().collect();
        let mut outside = cut.near(&rows[lost[0]], 1, &[true; 100]).outside;
        assert_eq!(outside, cut.outside);
        outside.retain(|row| lost.contains(row));
        assert_eq!(outside.len(), 30);
        assert!(!cut.is_worn(), "inserting again would cut them off again");
    }

    #[test]
    fn equal_vectors_are_one_point_and_found_together() {
        let mut rows = clustered(1, 80, 8, 1.0, 4);
        rows.extend(vec![rows[3].clone(); 100]);
        let graph = built(&rows);
        assert_eq!(graph.rows_of.len(), 80);
        let equal: Vec<usize> = std::iter::once(3).chain(80..180).collect();
        assert!(graph.rows_of.contains(&equal));
        let mut found = graph.near(&rows[3], 1, &[true; 180]).beam;
        found.retain(|row| equal.contains(row));
        assert_eq!(found.len(), 101);
    }

    #[test]
    fn the_same_vectors_are_the_same_graph_in_whatever_rows() {
        for n in [0, 1, 2, 150] {
            let rows = clustered(1, n, 4, 1.0, 9);
            let reversed: Vec<Vector> = rows.iter().rev().cloned().collect();
            let (forwards, backwards) = (built(&rows), built(&reversed));
            let mut all: Vec<usize> = forwards.rows_of.iter().flatten().copied().collect();
            let mirrored: Vec<usize> = backwards.rows_of.iter().flatten().map(|row| n - 1 - row).collect();
            assert_eq!(all, mirrored);
            for query in rows.iter().take(5) {
                let [one, other] = [&forwards, &backwards].map(|graph| graph.near(query, 3, &vec![true; n]).beam);
                assert!(one.iter().eq(other.iter().map(|row| n - 1 - row).collect::<Vec<_>>().iter()));
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..n), "{n}");
        }
    }

    #[test]
    fn building_ends_when_it_is_told_to() {
        let rows = clustered(1, 50, 4, 1.0, 9);
        let asked = std::cell::Cell::new(0);
        let ten_times = || {
            asked.set(asked.get() + 1);
            asked.get() <= 10
        };
        assert!(Graph::build(&Arc::new(rows), &ten_times).unwrap().is_none());
        assert_eq!(asked.get(), 11);
    }

    #[test]
    fn a_graph_serves_rows_that_moved_went_and_came() {
        let old = clustered(4, 50, 16, 0.2, 6);
        let graph = built(&old);
        assert!(!graph.is_worn());
        // Two rows are new, the first ten are gone, and so every row has another number.
        let new = clustered(1, 2, 16, 1.0, 77);
        let rows: Vec<Vector> = new.iter().chain(&old[10..]).cloned().collect();
        let adopted = graph.adopted(&rows);
        assert_eq!(adopted.outside, [0, 1]);
        let found = adopted.near(&rows[100], 20, &[true; 192]);
        assert!(found.beam.contains(&100) && found.beam.iter().all(|row| (2..192).contains(row)));
        assert_eq!(found.outside, [0, 1]);
        assert!(!adopted.is_worn(), "ten of 200 points stand for nothing");
        assert!(adopted.adopted(&rows[3..]).is_worn(), "eleven do");
        // Everything came back.
        let again = adopted.adopted(&old);
        assert_eq!((again.outside.len(), again.rows_of), (0, graph.rows_of));
    }

    #[test]
    fn a_panic_in_the_library_is_an_error() {
        assert_eq!(guarded(|| 1), Ok(1));
        assert_eq!(guarded(|| -> u8 { panic!("dot >= 0.") }), Err("dot >= 0.".to_owned()));
        assert_eq!(guarded(|| -> u8 { panic!("layer {}", 3) }), Err("layer 3".to_owned()));
    }

    #[test]
    fn the_beam_widens_with_size_and_k() {
        let graph = |points: usize| Graph {
            points: Arc::new(Points {
                links: Links::new(vec![], vec![]),
                vectors: Arc::new(vec![]),
                row: vec![],
                by_print: HashMap::new(),
                unreachable: vec![],
            }),
            rows_of: vec![vec![]; points],
            outside: vec![],
        };
        assert_eq!(graph(100).ef_search(5), 64);
        assert_eq!(graph(100).ef_search(50), 100);
        assert_eq!(graph(40_000).ef_search(5), 1_200);
        assert_eq!(graph(40_000).ef_search(256), 1_200);
        assert_eq!(graph(0).ef_search(usize::MAX), usize::MAX);
    }
}
