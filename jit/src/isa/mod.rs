//! One folder per instruction set, each with the same files: `abi`, `regs`, `lower`, `emit`.

pub(crate) mod x64;
