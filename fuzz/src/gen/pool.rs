//! The values that a program being written may still use, kept few.

use pktjit_ir::ValueId;
use pktjit_ir::program::Type;
use quickcheck::{Arbitrary, Gen};

use super::pick;

/// Most scalars and rows that are live at once in most programs: engines hold these in registers that no caller needs.
pub const FEW_LIVE_SCALARS: usize = 4;
/// Most scalars and rows that are live at once in any program: engines may have to save registers.
pub const MAX_LIVE_SCALARS: usize = 9;
/// Most lanes and masks that are live at once.
pub const MAX_LIVE_VECTORS: usize = 10;

/// Room that a pool leaves for what only helps to make one value.
const HELPERS: usize = 1;

/// The values that later instructions may use.
#[derive(Clone)]
pub(super) struct Pool {
    /// Most scalars and rows that are live at once.
    max_scalars: usize,
    /// The pinned ones come first.
    pub(super) values: Vec<(ValueId, Type)>,
    /// How many values must not be dropped.
    pub(super) pinned: usize,
}

pub(super) fn is_vector(ty: Type) -> bool {
    matches!(ty, Type::Lanes(_) | Type::Mask(_))
}

impl Pool {
    pub(super) fn new(max_scalars: usize) -> Self {
        Self {
            max_scalars,
            values: Vec::new(),
            pinned: 0,
        }
    }

    /// How many values of a sort there is room for.
    pub(super) fn room(&self, vectors: bool) -> usize {
        let live = if vectors {
            MAX_LIVE_VECTORS
        } else {
            self.max_scalars
        };
        live - HELPERS
    }

    fn count(&self, vectors: bool) -> usize {
        self.values
            .iter()
            .filter(|&&(_, ty)| is_vector(ty) == vectors)
            .count()
    }

    pub(super) fn pinned_count(&self, vectors: bool) -> usize {
        let pinned = &self.values[..self.pinned];
        pinned
            .iter()
            .filter(|&&(_, ty)| is_vector(ty) == vectors)
            .count()
    }

    /// Adds a value, in the place of another of its sort where there are too many.
    pub(super) fn add(&mut self, g: &mut Gen, value: ValueId, ty: Type) {
        let vectors = is_vector(ty);
        while self.count(vectors) >= self.room(vectors) {
            let droppable: Vec<usize> = (self.pinned..self.values.len())
                .filter(|&i| is_vector(self.values[i].1) == vectors)
                .collect();
            self.values.remove(pick(g, &droppable));
        }
        self.values.push((value, ty));
    }

    /// Pins a few values and drops the others. One scalar and some vectors always stay droppable, beside `reserved`
    /// scalars that the caller will pin.
    pub(super) fn cut_down(&mut self, g: &mut Gen, reserved: usize) {
        let mut kept = self.values[..self.pinned].to_vec();
        let mut scalars = self.pinned_count(false) + reserved;
        let mut vectors = self.pinned_count(true);
        for &(value, ty) in &self.values[self.pinned..] {
            let (count, most) = match is_vector(ty) {
                true => (&mut vectors, self.room(true) / 2),
                false => (&mut scalars, self.room(false) - 1),
            };
            if *count < most && bool::arbitrary(g) {
                *count += 1;
                kept.push((value, ty));
            }
        }
        self.pinned = kept.len();
        self.values = kept;
    }

    pub(super) fn pin_last(&mut self) {
        if let Some(last) = self.values.pop() {
            self.values.insert(self.pinned, last);
            self.pinned += 1;
        }
    }
}
