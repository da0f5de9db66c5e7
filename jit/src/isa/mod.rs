//! One folder per instruction set, each with the same files: `abi`, `regs`, `lower`, `emit`. What does not depend on the
//! instruction set is beside them: `inst` and `regs` (register assignment), `uses` and `staged` (what lowering asks).

pub(crate) mod a64;
mod frame;
mod inst;
mod lower;
mod regs;
mod staged;
mod uses;
pub(crate) mod x64;
