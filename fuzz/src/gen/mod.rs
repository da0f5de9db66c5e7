//! What random inputs look like.

pub mod classbench;
mod insts;
pub mod lists;
mod pool;
pub mod program;
pub mod rules;
mod shrink;
mod table;

use arbitrary::Unstructured;
use quickcheck::{Arbitrary, Gen};

fn below(g: &mut Gen, n: usize) -> usize {
    usize::arbitrary(g) % n
}

fn pick<T: Copy>(g: &mut Gen, options: &[T]) -> T {
    options[below(g, options.len())]
}

/// Where a generator's choices come from: random numbers, or the bytes that a fuzzer varies.
pub trait Choices {
    /// A number from 0 to `max`.
    fn up_to(&mut self, max: u128) -> u128;

    /// Whether all choices from now on are 0.
    fn is_exhausted(&self) -> bool;

    /// A number below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64 {
        self.up_to(u128::from(n) - 1) as u64
    }

    /// One of `options`, which are not empty.
    fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len() as u64) as usize]
    }

    /// One of `items` if there is any.
    fn one_of<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        match items {
            [] => None,
            _ => items.get(self.below(items.len() as u64) as usize),
        }
    }
}

impl Choices for Gen {
    fn up_to(&mut self, max: u128) -> u128 {
        let any = u128::arbitrary(self);
        max.checked_add(1).map_or(any, |n| any % n)
    }

    fn is_exhausted(&self) -> bool {
        false
    }
}

/// Takes as many bytes as `max` has, and 0 where no byte is left.
impl Choices for Unstructured<'_> {
    fn up_to(&mut self, max: u128) -> u128 {
        self.int_in_range(0..=max).unwrap_or(0)
    }

    fn is_exhausted(&self) -> bool {
        self.is_empty()
    }
}
