//! Leaves: rows of rules that are compared at once, shared by the cells that select them.
//!
//! What is too much in a leaf is harmless, since lanes compare exactly. So neighbouring cells, which have rules in common,
//! become one as long as they fit, and what is then still small fills up other leaves. A leaf never changes: a cell names
//! it by its number.

use crate::structure::lists::Lists;

/// The leaf of each cell, and the rules of each leaf.
pub(super) struct Leaves {
    pub(super) of_cell: Vec<u32>,
    pub(super) leaves: Vec<Vec<u32>>,
}

impl Leaves {
    /// Packs cells of at most `capacity` rules into leaves of as many.
    pub(super) fn pack(cells: &Lists<u32>, capacity: usize) -> Self {
        // Or rules would vanish silently: no more than that is compared.
        debug_assert!(cells.iter().all(|cell| cell.len() <= capacity));
        // Runs of neighbours, and the run of each cell.
        let mut runs: Vec<Vec<u32>> = Vec::new();
        let mut run_of_cell = Vec::with_capacity(cells.len());
        for cell in cells.iter() {
            let joined = runs.last().and_then(|last| union(last, cell, capacity));
            match (joined, runs.last_mut()) {
                (Some(joined), Some(last)) => *last = joined,
                _ => runs.push(cell.to_vec()),
            }
            run_of_cell.push(runs.len() - 1);
        }
        // The longest first, each to the leaf where it leaves the least room.
        let mut by_length: Vec<usize> = (0..runs.len()).collect();
        by_length.sort_by_key(|&run| std::cmp::Reverse(runs[run].len()));
        let mut leaves: Vec<Vec<u32>> = Vec::new();
        let mut with_room: Vec<Vec<u32>> = vec![Vec::new(); capacity + 1];
        let mut leaf_of_run = vec![0; runs.len()];
        for run in by_length {
            let own = std::mem::take(&mut runs[run]);
            let leaf = (own.len()..=capacity).find_map(|room| with_room[room].pop());
            let leaf = leaf.unwrap_or_else(|| {
                leaves.push(Vec::with_capacity(capacity));
                leaves.len() as u32 - 1
            });
            leaf_of_run[run] = leaf;
            let rules = &mut leaves[leaf as usize];
            rules.extend(own);
            with_room[capacity - rules.len()].push(leaf);
        }
        let of_cell = run_of_cell
            .into_iter()
            .map(|run| leaf_of_run[run])
            .collect();
        Self { of_cell, leaves }
    }
}

/// What two ascending lists hold together, if that is at most `most`.
fn union(a: &[u32], b: &[u32], most: usize) -> Option<Vec<u32>> {
    if a.len().max(b.len()) > most {
        return None;
    }
    let mut joined = Vec::with_capacity(most);
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    while let Some(next) = [a.peek(), b.peek()].into_iter().flatten().min().copied() {
        if joined.len() == most {
            return None;
        }
        joined.push(next);
        a.next_if_eq(&next);
        b.next_if_eq(&next);
    }
    Some(joined)
}
