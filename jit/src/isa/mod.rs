//! One folder per instruction set, each with the same files: `abi`, `regs`, `frame`, `lower`, `emit`. What does not
//! depend on the instruction set is beside them, from the program to the code ([`compile`]): lowering of blocks and
//! values (`lower`, which asks `uses` and `staged`), register assignment (`inst`, `regs`), and the code around a body
//! (`entries`, `frame`).
//!
//! An instruction set stands for itself as the type of its instructions, which implements what those files ask of it:
//! `MachineInst`, `Machine`, `Around` and `InstructionSet`.

pub(crate) mod a64;
mod compile;
mod entries;
mod frame;
mod inst;
mod lower;
mod regs;
mod staged;
mod uses;
pub(crate) mod x64;
