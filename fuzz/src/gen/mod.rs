//! What random inputs look like.

pub mod classbench;
mod insts;
mod pool;
pub mod program;
pub mod rules;
mod shrink;
mod table;

use quickcheck::{Arbitrary, Gen};

fn below(g: &mut Gen, n: usize) -> usize {
    usize::arbitrary(g) % n
}

fn pick<T: Copy>(g: &mut Gen, options: &[T]) -> T {
    options[below(g, options.len())]
}
