//! What all rules want alike of some bits of the key: compared once, with few wide loads, and not looked up.

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::key::KeyLayout;
use crate::program::BinaryOp;
use crate::structure::windows::windows;

/// Bits of the key, and what they must be.
pub(crate) struct Common {
    care: Vec<u8>,
    wanted: Vec<u8>,
    /// Whether one bit must be 0 and 1, so that no key is as wanted.
    is_impossible: bool,
}

impl Common {
    /// Nothing about keys of `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            care: vec![0; len],
            wanted: vec![0; len],
            is_impossible: false,
        }
    }

    /// Takes those bytes out of `care` in whose bits all `keys` agree.
    pub(crate) fn take<'a>(care: &mut [u8], mut keys: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut common = Self::new(care.len());
        let Some(first) = keys.next() else {
            return common;
        };
        let mut varying = vec![0; care.len()];
        for key in keys {
            for (varying, (a, b)) in varying.iter_mut().zip(key.iter().zip(first)) {
                *varying |= a ^ b;
            }
        }
        for (at, care) in care.iter_mut().enumerate() {
            if *care & varying[at] == 0 {
                common.want(at, std::mem::take(care), first[at]);
            }
        }
        common
    }

    /// Asks for `value` in the bits `care` of the byte at `at`.
    pub(crate) fn want(&mut self, at: usize, care: u8, value: u8) {
        self.is_impossible |= (self.wanted[at] ^ value) & self.care[at] & care != 0;
        self.care[at] |= care;
        self.wanted[at] |= value & care;
    }

    /// Asks for `value` in the bits `care` of a field.
    pub(crate) fn want_field(&mut self, layout: &KeyLayout, id: FieldId, care: u128, value: u128) {
        let bytes = layout.field_bytes(id, care).into_iter();
        let bytes = bytes.zip(layout.field_bytes(id, value));
        for (at, (care, value)) in (layout.offset(id)..).zip(bytes) {
            self.want(at, care, value);
        }
    }

    /// Emits the comparison; yields a scalar that is 0 where the key is as wanted, `None` where nothing is.
    pub(crate) fn emit(&self, b: &mut ProgramBuilder) -> Option<ValueId> {
        if self.is_impossible {
            return Some(b.constant(1));
        }
        windows(self.care.iter().copied()).fold(None, |differing, window| {
            let x = window.emit(b, &self.care);
            let bits = b.binary_const(BinaryOp::Xor, x, window.read(&self.wanted));
            Some(differing.map_or(bits, |before| b.binary(BinaryOp::Or, before, bits)))
        })
    }

    /// Machine instructions: a load, its comparison, and joining it to those before.
    pub(crate) fn instructions(&self) -> f64 {
        3.0 * windows(self.care.iter().copied()).count() as f64
    }
}
