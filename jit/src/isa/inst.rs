//! What machine instructions of all ISAs are made of: registers and their files, sizes, conditions, labels.
//!
//! Each ISA declares its instructions with `instructions!`, one value for one machine instruction, before registers are
//! assigned as well as after.

/// A register: physical below 72 (0-31 general, 32-63 vector, 64-71 mask), virtual from there on.
///
/// Which of the files it belongs to is told by the operand's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Reg(u32);

/// The register files, and how much of a register a copy takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// rax ... r15; x0 ... x30
    General,
    /// ymm0 ... ymm15, an xmm register is the low half of one; v0 ... v31
    Vector,
    /// zmm0 ... zmm15: the vector registers with all of their lanes.
    Wide,
    /// k1 ... k7
    Mask,
}

impl Reg {
    /// How many physical registers there are.
    pub(super) const PHYSICAL: usize = 72;

    /// The general register with this encoding.
    pub(super) const fn general(encoding: u8) -> Self {
        Self(encoding as u32 & 31)
    }

    /// The vector register with this encoding.
    pub(super) const fn vector(encoding: u8) -> Self {
        Self(encoding as u32 & 31 | 32)
    }

    /// The mask register with this encoding.
    pub(super) const fn mask(encoding: u8) -> Self {
        Self(encoding as u32 & 7 | 64)
    }

    /// The virtual register with this index.
    pub(super) const fn virtual_register(index: usize) -> Self {
        Self((Self::PHYSICAL + index) as u32)
    }

    /// The index of a virtual register.
    pub(super) fn virtual_index(self) -> Option<usize> {
        (self.0 as usize).checked_sub(Self::PHYSICAL)
    }

    /// Position among the physical registers.
    pub(super) const fn physical_index(self) -> usize {
        self.0 as usize % Self::PHYSICAL
    }

    /// The bits that name a physical register in an instruction.
    pub(super) const fn encoding(self) -> u8 {
        self.0 as u8 & 31
    }
}

/// Operand size of a scalar instruction. A 32-bit result clears the upper half of its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Size {
    /// 32 bits
    S32,
    /// 64 bits
    S64,
}

impl Size {
    /// The narrowest size that holds every number up to `max`.
    pub(super) fn of(max: u64) -> Self {
        if max <= u64::from(u32::MAX) {
            Self::S32
        } else {
            Self::S64
        }
    }
}

/// A place in the code of one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Label(pub(super) u32);

/// Declares an enum of operations together with the list of all of them, which the tests of `emit` walk.
macro_rules! operations {
    ($(#[$meta:meta])* $name:ident { $($operation:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name { $($operation),* }

        impl $name {
            #[cfg(test)]
            #[allow(dead_code, reason = "the tests of some ISAs name each operation")]
            pub(super) const ALL: &[Self] = &[$(Self::$operation),*];
        }
    };
}

operations!(
    /// Number of bytes of a scalar in memory.
    Width { B1, B2, B4, B8 }
);
impl Width {
    /// That of a number of 1, 2, 4 or 8 bytes.
    pub(super) fn of(bytes: u8) -> Self {
        match bytes {
            1 => Self::B1,
            2 => Self::B2,
            4 => Self::B4,
            _ => Self::B8,
        }
    }
}

operations!(
    /// Conditions after a comparison, unsigned.
    Cond { Equal, NotEqual, Below, BelowOrEqual, Above, AboveOrEqual }
);

impl Cond {
    /// The condition that holds where this one does not.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Below => Self::AboveOrEqual,
            Self::BelowOrEqual => Self::Above,
            Self::Above => Self::BelowOrEqual,
            Self::AboveOrEqual => Self::Below,
        }
    }

    /// The condition that holds for (b, a) where this one holds for (a, b).
    pub(super) fn swapped(self) -> Self {
        match self {
            Self::Equal | Self::NotEqual => self,
            Self::Below => Self::Above,
            Self::BelowOrEqual => Self::AboveOrEqual,
            Self::Above => Self::Below,
            Self::AboveOrEqual => Self::BelowOrEqual,
        }
    }
}

pub(super) use operations;

/// Declares the instructions together with the names of all of them: the tests of `emit` insist on a sample of each.
macro_rules! instructions {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $form:ident $({ $($field:ident: $ty:ty),* $(,)? })?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name { $($(#[$doc])* $form $({ $($field: $ty),* })?),* }

        impl $name {
            #[cfg(test)]
            pub(super) const FORMS: &[&str] = &[$(stringify!($form)),*];
        }
    };
}

pub(super) use instructions;

/// How an instruction treats an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Read.
    Use,
    /// Written after all reads.
    Def,
    /// Read, then written.
    Modify,
}
