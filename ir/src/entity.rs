//! Small typed ids for everything that is stored in a vector and referred to by position.
//!
//! An id is four bytes, is never mixed up with an id of another kind, and prints as it is written in the text form.

use std::fmt;

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The id of position `index`.
            #[must_use]
            pub const fn new(index: u32) -> Self {
                Self(index)
            }

            /// The id of position `index`, or `None` where that does not fit 32 bits.
            #[must_use]
            pub fn try_from_usize(index: usize) -> Option<Self> {
                u32::try_from(index).ok().map(Self)
            }

            /// The position that this id names.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The position as the 32 bits that are stored.
            #[must_use]
            pub const fn as_u32(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

entity!(
    /// A rule of a rule set: its position among the rules as they were added, counted from zero.
    ///
    /// Stable for the life of the rule: dropping, merging or reordering other rules does not change it.
    RuleId,
    "rule"
);
entity!(
    /// A field of a key layout, in the order of the layout.
    FieldId,
    "field"
);
entity!(
    /// A value of a program: the result of one instruction, or one block parameter.
    ValueId,
    "v"
);
entity!(
    /// A basic block of a program. Block 0 is the entry.
    BlockId,
    "block"
);
entity!(
    /// A table of a program.
    TableId,
    "table"
);
