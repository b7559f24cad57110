//! Which tools use what, for everything that has a number.

/// Positions of tools by number, each list ascending.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Where those of each number begin in `of`; one more for the end.
    begin: Vec<u32>,
    of: Vec<u32>,
}

impl Owners {
    /// `used` holds the distinct numbers each tool uses, by position; all are below `count`.
    pub fn new<'a>(used: impl Iterator<Item = &'a [u32]> + Clone, count: usize) -> Self {
        let mut begin = vec![0u32; count + 1];
        for number in used.clone().flatten() {
            begin[*number as usize + 1] += 1;
        }
        for at in 1..begin.len() {
            begin[at] += begin[at - 1];
        }
        let mut next = begin.clone();
        let mut of = vec![0; begin.last().copied().unwrap_or(0) as usize];
        for (position, numbers) in (0..).zip(used) {
            for number in numbers {
                let at = &mut next[*number as usize];
                of[*at as usize] = position;
                *at += 1;
            }
        }
        Self { begin, of }
    }

    /// None for a number that came later.
    pub fn of(&self, number: u32) -> &[u32] {
        let at = number as usize;
        match self.begin.get(at..at + 2) {
            Some(ends) => &self.of[ends[0] as usize..ends[1] as usize],
            None => &[],
        }
    }
}
