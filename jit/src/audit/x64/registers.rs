//! Numbers and sets of general registers.

use iced_x86::Register;

/// How many general registers there are.
pub(super) const COUNT: usize = 16;

/// The number of a general register, whatever part of it is named.
pub(super) fn general(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

/// A set of general registers.
#[derive(Clone, Copy, Default)]
pub(super) struct Registers(u16);

impl Registers {
    pub(super) fn insert(&mut self, register: usize) {
        self.0 |= 1 << register;
    }

    pub(super) fn contains(self, register: usize) -> bool {
        self.0 >> register & 1 == 1
    }
}
