//! Hierarchical navigable small world graph over the distinct vectors of an index.
//!
//! Owns: finding rows that are probably near, and every guard the graph library needs: it may panic, lose rows, and
//! isolate equal vectors from the rest.
//! Does not know: exact similarities and result order ([`super::dense`] computes both for the rows found here).
//!
//! Source: Malkov and Yashunin, Efficient and robust approximate nearest neighbor search using HNSW graphs, 2016.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hnsw_rs::anndists::dist::distances::Distance;
use hnsw_rs::hnsw::Hnsw;

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

/// Immutable once built; searches from several threads at once are fine.
pub(super) struct Graph {
    hnsw: Hnsw<'static, f32, ClampedCosine>,
    /// Rows that share the vector of each point, ascending. More equal vectors than a point has links would link only
    /// among themselves and could neither be found nor left, so each distinct vector is one point.
    rows_of: Vec<Vec<usize>>,
    /// Points no walk from the entry reaches; they are always handed on.
    unreachable: Vec<usize>,
}

impl Graph {
    /// Points are inserted one after the other in a fixed order: parallel insertion is faster, but gives another graph
    /// in each run.
    ///
    /// # Errors
    /// [`IndexError::Build`] if the library panics.
    pub(super) fn build(rows: &[Vector]) -> Result<Self, IndexError> {
        let rows_of = group_equal(rows);
        let order = spread_order(rows_of.len());
        Self::insert(rows, rows_of, order)
    }

    fn insert(
        rows: &[Vector],
        rows_of: Vec<Vec<usize>>,
        order: impl Iterator<Item = usize>,
    ) -> Result<Self, IndexError> {
        let built = guarded(|| {
            let hnsw = Hnsw::new(CONNECTIONS, rows_of.len(), LAYERS, EF_CONSTRUCTION, ClampedCosine);
            for point in order {
                hnsw.insert((rows[rows_of[point][0]].as_slice(), point));
            }
            let unreachable = unreachable_points(&hnsw, rows_of.len());
            (hnsw, unreachable)
        });
        let (hnsw, unreachable) = built.map_err(IndexError::Build)?;
        Ok(Self { hnsw, rows_of, unreachable })
    }

    /// Rows that are probably among the `k` nearest to `query`; only rows for which `allowed` is true.
    ///
    /// # Errors
    /// [`IndexError::Search`] if the library panics.
    pub(super) fn near(&self, query: &Vector, k: usize, allowed: &[bool]) -> Result<Found, IndexError> {
        let ef = self.ef_search(k);
        let any_allowed = |point: &usize| self.rows_of[*point].iter().any(|row| allowed[*row]);
        // Everything the beam holds is asked for: the exact ranking afterwards settles near ties.
        let beam = guarded(|| self.hnsw.search_filter(query.as_slice(), ef, ef, Some(&any_allowed)))
            .map_err(IndexError::Search)?;
        let rows = |points: &mut dyn Iterator<Item = usize>| {
            points.flat_map(|point| self.rows_of[point].iter().copied()).filter(|row| allowed[*row]).collect()
        };
        Ok(Found {
            beam: rows(&mut beam.iter().map(|hit| hit.d_id)),
            unreachable: rows(&mut self.unreachable.iter().copied()),
        })
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
    pub(super) unreachable: Vec<usize>,
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

/// Rows by equal vector, groups in the order of their first row.
fn group_equal(rows: &[Vector]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of: HashMap<Vec<u32>, usize> = HashMap::new();
    for (row, vector) in rows.iter().enumerate() {
        let bits = vector.as_slice().iter().map(|component| component.to_bits()).collect();
        let group = *group_of.entry(bits).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(row);
    }
    groups
}

/// Every number below `n` once, neighbours far apart.
///
/// Catalogs list alike tools together. Inserted in that order, the members of a large family take up each other's links
/// before anything else is there to link to: of four families of 300, 356 points could not be reached.
fn spread_order(n: usize) -> impl Iterator<Item = usize> {
    // Steps of the golden section visit all parts of the range evenly, at every length of the walk.
    let mut step = (n as f64 * 0.618_034) as usize;
    while gcd(step, n) > 1 {
        step += 1;
    }
    (0..n).scan(0, move |at, _| {
        let here = *at;
        *at = (here + step) % n;
        Some(here)
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Points without a path from the entry point in the lowest layer, ascending.
fn unreachable_points(hnsw: &Hnsw<'static, f32, ClampedCosine>, points: usize) -> Vec<usize> {
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

    #[test]
    fn points_no_walk_reaches_are_handed_on() {
        let rows = clustered(3, 150, 16, 0.01, 1);
        let in_row_order = Graph::insert(&rows, group_equal(&rows), 0..rows.len()).unwrap();
        assert!(!in_row_order.unreachable.is_empty(), "families in row order isolate some points");
        let lost = &rows[in_row_order.unreachable[0]];
        let found = in_row_order.near(lost, 1, &vec![true; rows.len()]).unwrap();
        assert_eq!(found.unreachable, in_row_order.unreachable);

        assert_eq!(Graph::build(&rows).unwrap().unreachable, [0usize; 0], "the order of insertion prevents it");
    }

    #[test]
    fn equal_vectors_are_one_point_and_found_together() {
        let mut rows = clustered(1, 80, 8, 1.0, 4);
        rows.extend(vec![rows[3].clone(); 100]);
        let graph = Graph::build(&rows).unwrap();
        assert_eq!(graph.rows_of.len(), 80);
        assert_eq!(graph.rows_of[3], std::iter::once(3).chain(80..180).collect::<Vec<_>>());
        let mut found = graph.near(&rows[3], 1, &[true; 180]).unwrap().beam;
        found.retain(|row| graph.rows_of[3].contains(row));
        assert_eq!(found.len(), 101);
    }

    #[test]
    fn every_point_is_inserted_once() {
        for n in 0..200 {
            let mut order: Vec<usize> = spread_order(n).collect();
            order.sort_unstable();
            assert!(order.into_iter().eq(0..n), "{n}");
        }
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
            hnsw: Hnsw::new(CONNECTIONS, 0, LAYERS, EF_CONSTRUCTION, ClampedCosine),
            rows_of: vec![vec![]; points],
            unreachable: vec![],
        };
        assert_eq!(graph(100).ef_search(5), 64);
        assert_eq!(graph(100).ef_search(50), 100);
        assert_eq!(graph(40_000).ef_search(5), 400);
        assert_eq!(graph(0).ef_search(usize::MAX), usize::MAX);
    }
}
