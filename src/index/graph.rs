//! Hierarchical navigable small world graph over the distinct vectors of an index.
//!
//! Owns: finding rows that are probably near, and every guard the graph library needs: it may panic, lose rows, and
//! isolate equal vectors from the rest.
//! Does not know: exact similarities and result order ([`super::dense`] computes both for the rows found here).
//!
//! Source: Malkov and Yashunin, Efficient and robust approximate nearest neighbor search using HNSW graphs, 2016.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hnsw_rs::anndists::dist::distances::Distance;
use hnsw_rs::hnsw::Hnsw;
use sha2::{Digest, Sha256};

use super::dense::IndexError;
use crate::types::Vector;
use crate::types::vector::dot;

/// Links of a point in the upper layers, twice as many in the lowest.
const CONNECTIONS: usize = 32;
const _: () = assert!(CONNECTIONS <= 256, "the library ends the process above 256");
/// Beam width while inserting.
const EF_CONSTRUCTION: usize = 200;
/// More layers than the library would ever fill at this number of connections.
const LAYERS: usize = 16;
/// Narrowest beam of a search.
const MIN_EF_SEARCH: usize = 64;
/// One row in this many may be outside the graph, or one point in this many without a row, before it is built anew.
const REBUILD_AT_SHARE: usize = 20;

type Library = Hnsw<'static, f32, ClampedCosine>;

/// Immutable once built; searches from several threads at once are fine.
pub(super) struct Graph {
    points: Arc<Points>,
    /// Rows that share the vector of each point, ascending; none for a vector that is no longer there, since the
    /// library cannot delete. More equal vectors than a point has links would link only among themselves and could
    /// neither be found nor left, so each distinct vector is one point.
    rows_of: Vec<Vec<usize>>,
    /// Rows no walk from the entry reaches, ascending; they are always handed on.
    outside: Vec<usize>,
}

/// What the rows of several catalogs may share.
struct Points {
    hnsw: Library,
    by_print: HashMap<Print, usize>,
    /// Points without a path from the entry, ascending.
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
    pub(super) fn build(rows: &[Vector], go_on: &dyn Fn() -> bool) -> Result<Option<Self>, IndexError> {
        let groups = group_equal(rows);
        let order = spread_order(&groups);
        Self::insert(rows, groups, order, go_on)
    }

    fn insert(
        rows: &[Vector],
        groups: Groups,
        order: impl IntoIterator<Item = usize>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, IndexError> {
        let Groups { rows_of, by_print, .. } = groups;
        let built = guarded(|| {
            let mut hnsw = Hnsw::new(CONNECTIONS, rows_of.len(), LAYERS, EF_CONSTRUCTION, ClampedCosine);
            // Free links are filled up. Without it a card's variations link to that card and to little else.
            hnsw.set_keeping_pruned(true);
            for point in order {
                if !go_on() {
                    return None;
                }
                hnsw.insert((rows[rows_of[point][0]].as_slice(), point));
            }
            let unreachable = unreachable_points(&hnsw, rows_of.len());
            Some((hnsw, unreachable))
        });
        let Some((hnsw, unreachable)) = built.map_err(IndexError::Build)? else { return Ok(None) };
        Ok(Some(Self::over(Arc::new(Points { hnsw, by_print, unreachable }), rows_of, Vec::new())))
    }

    /// The same points for other rows: vectors that are gone lead nowhere, new ones are outside.
    pub(super) fn adopted(&self, rows: &[Vector]) -> Self {
        let mut rows_of = vec![Vec::new(); self.rows_of.len()];
        let mut outside = Vec::new();
        for (row, vector) in rows.iter().enumerate() {
            match self.points.by_print.get(&print(vector)) {
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
    ///
    /// # Errors
    /// The library's words if it panics.
    pub(super) fn near(&self, query: &Vector, k: usize, allowed: &[bool]) -> Result<Found, String> {
        let ef = self.ef_search(k);
        let any_allowed = |point: &usize| self.rows_of[*point].iter().any(|row| allowed[*row]);
        // Everything the beam holds is asked for: the exact ranking afterwards settles near ties.
        let beam = guarded(|| {
            // With a filter the library walks on where it could stop.
            if (0..self.rows_of.len()).all(|point| any_allowed(&point)) {
                self.points.hnsw.search(query.as_slice(), ef, ef)
            } else {
                self.points.hnsw.search_filter(query.as_slice(), ef, ef, Some(&any_allowed))
            }
        })?;
        let of_beam = beam.iter().flat_map(|hit| self.rows_of[hit.d_id].iter());
        let open = |rows: &mut dyn Iterator<Item = &usize>| rows.copied().filter(|row| allowed[*row]).collect();
        Ok(Found { beam: open(&mut of_beam.into_iter()), outside: open(&mut self.outside.iter()) })
    }

    /// Beam width: the descent through the upper layers takes one step a layer, so the larger the graph, the further
    /// from the goal the walk in the lowest layer starts.
    pub(super) fn ef_search(&self, k: usize) -> usize {
        MIN_EF_SEARCH.max(k.saturating_mul(2)).max(2 * self.rows_of.len().isqrt())
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

struct Groups {
    /// Rows by equal vector, groups in the order of their first row.
    rows_of: Vec<Vec<usize>>,
    /// By group.
    prints: Vec<Print>,
    by_print: HashMap<Print, usize>,
}

fn group_equal(rows: &[Vector]) -> Groups {
    let mut groups = Groups { rows_of: Vec::new(), prints: Vec::new(), by_print: HashMap::new() };
    for (row, vector) in rows.iter().enumerate() {
        let print = print(vector);
        let group = *groups.by_print.entry(print).or_insert(groups.rows_of.len());
        if group == groups.rows_of.len() {
            groups.rows_of.push(Vec::new());
            groups.prints.push(print);
        }
        groups.rows_of[group].push(row);
    }
    groups
}

fn print(vector: &Vector) -> Print {
    let mut digest = Sha256::new();
    for component in vector.as_slice() {
        digest.update(component.to_le_bytes());
    }
    digest.finalize().into()
}

/// Every group once, neighbours far apart, the same for the same vectors in whatever rows.
///
/// Catalogs list alike tools together. Inserted in that order, the members of a large family take up each other's links
/// before anything else is there to link to: of four families of 300, 356 points could not be reached.
fn spread_order(groups: &Groups) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.prints.len()).collect();
    order.sort_unstable_by_key(|group| groups.prints[*group]);
    order
}

/// Points without a path from the entry point in the lowest layer, ascending.
fn unreachable_points(hnsw: &Library, points: usize) -> Vec<usize> {
    let indexation = hnsw.get_point_indexation();
    let mut links = vec![Vec::new(); points];
    let mut entry = None;
    for layer in 0..LAYERS {
        for (rank, point) in indexation.get_layer_iterator(layer).enumerate() {
            // The entry is the first point of the highest layer in use.
            if rank == 0 {
                entry = Some(point.get_origin_id());
            }
            links[point.get_origin_id()] = point.get_neighborhood_id()[0].iter().map(|hit| hit.d_id).collect();
        }
    }
    let mut reached = vec![false; points];
    let mut open: Vec<usize> = entry.into_iter().collect();
    while let Some(point) = open.pop() {
        if !std::mem::replace(&mut reached[point], true) {
            open.extend(&links[point]);
        }
    }
    (0..points).filter(|point| !reached[*point]).collect()
}

/// Runs `work`, turning a panic into its message.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Unwind safe: a graph whose building panicked is dropped, and a search changes nothing.
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
        Graph::build(rows, GO_ON).unwrap().unwrap()
    }

    #[test]
    fn points_no_walk_reaches_are_handed_on() {
        let rows = clustered(3, 150, 16, 0.01, 1);
        let in_row_order = Graph::insert(&rows, group_equal(&rows), 0..rows.len(), GO_ON).unwrap().unwrap();
        assert!(!in_row_order.outside.is_empty(), "families in row order isolate some points");
        let lost = &rows[in_row_order.outside[0]];
        let found = in_row_order.near(lost, 1, &vec![true; rows.len()]).unwrap();
        assert_eq!(found.outside, in_row_order.outside);
        assert!(!in_row_order.is_worn(), "inserting again in the same order would isolate them again");

        assert_eq!(built(&rows).outside, [0usize; 0], "the order of insertion prevents it");
    }

    #[test]
    fn equal_vectors_are_one_point_and_found_together() {
        let mut rows = clustered(1, 80, 8, 1.0, 4);
        rows.extend(vec![rows[3].clone(); 100]);
        let graph = built(&rows);
        assert_eq!(graph.rows_of.len(), 80);
        assert_eq!(graph.rows_of[3], std::iter::once(3).chain(80..180).collect::<Vec<_>>());
        let mut found = graph.near(&rows[3], 1, &[true; 180]).unwrap().beam;
        found.retain(|row| graph.rows_of[3].contains(row));
        assert_eq!(found.len(), 101);
    }

    #[test]
    fn every_point_is_inserted_once_wherever_its_row_stands() {
        for n in [0, 1, 2, 150] {
            let mut rows = clustered(1, n, 4, 1.0, 9);
            let inserted = |rows: &[Vector]| -> Vec<Vector> {
                spread_order(&group_equal(rows)).into_iter().map(|point| rows[point].clone()).collect()
            };
            let mut order = spread_order(&group_equal(&rows));
            let forwards = inserted(&rows);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..n), "{n}");
            rows.reverse();
            assert_eq!(inserted(&rows), forwards);
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
        assert!(Graph::build(&rows, &ten_times).unwrap().is_none());
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
        let found = adopted.near(&rows[100], 20, &[true; 192]).unwrap();
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
                hnsw: Hnsw::new(CONNECTIONS, 0, LAYERS, EF_CONSTRUCTION, ClampedCosine),
                by_print: HashMap::new(),
                unreachable: vec![],
            }),
            rows_of: vec![vec![]; points],
            outside: vec![],
        };
        assert_eq!(graph(100).ef_search(5), 64);
        assert_eq!(graph(100).ef_search(50), 100);
        assert_eq!(graph(40_000).ef_search(5), 400);
        assert_eq!(graph(0).ef_search(usize::MAX), usize::MAX);
    }
}
