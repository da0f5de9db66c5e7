//! What code is generated for: plain data. Nothing in this crate asks the CPU; `pktjit` does and fills this in.

use std::fmt;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// x86-64 with the System V calling convention.
    X86_64,
    /// 64-bit Arm, little-endian, with NEON, which every one has.
    AArch64,
    /// 64-bit RISC-V with multiplication, floating-point numbers, atomic and compressed instructions.
    Riscv64,
    /// IBM z/Architecture, big-endian.
    S390x,
}

/// What makes the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generator {
    /// The generator of this crate for the instruction set, if there is one.
    Own,
    /// [Cranelift](https://cranelift.dev), with vectors of 128 bits or none.
    Cranelift,
}

/// Instruction-set extensions of x86-64. Code of our own generator always has those up to AVX2; each other one has a plain
/// substitute. Code for AArch64 uses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Features {
    /// SSE3 and SSSE3.
    pub ssse3: bool,
    /// SSE4.1.
    pub sse41: bool,
    /// AVX, whose registers the operating system saves.
    pub avx: bool,
    /// AVX2.
    pub avx2: bool,
    /// `tzcnt`, `andn`.
    pub bmi1: bool,
    /// `pext`, `shlx`, `rorx`.
    pub bmi2: bool,
    /// `movbe`.
    pub movbe: bool,
    /// `popcnt`.
    pub popcnt: bool,
    /// Whether `pext` runs in one step; it is microcoded on AMD before Zen 3.
    pub fast_pext: bool,
    /// AVX-512 F, BW, DQ and VL: no server CPU has one of the last three without the others.
    pub avx512: bool,
}

impl Features {
    /// None of them.
    pub const NONE: Self = Self {
        ssse3: false,
        sse41: false,
        avx: false,
        avx2: false,
        bmi1: false,
        bmi2: false,
        movbe: false,
        popcnt: false,
        fast_pext: false,
        avx512: false,
    };
}

/// Sizes of the caches that one core sees, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Caches {
    /// First level, data.
    pub l1d: usize,
    /// Second level.
    pub l2: usize,
    /// Third level.
    pub l3: usize,
}

/// The machine that code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Instruction set.
    pub isa: Isa,
    /// What makes the code.
    pub generator: Generator,
    /// Extensions that may be used.
    pub features: Features,
    /// Width of the widest vector register that may be used; what is no such width counts as the next narrower one.
    pub max_vector_bits: u16,
    /// Cache sizes, for the planner.
    pub caches: Caches,
}

impl Target {
    /// The named target `x86_64-avx2`: AVX2 with BMI1, BMI2, MOVBE, POPCNT and fixed cache sizes, the same on every host.
    #[must_use]
    pub const fn x86_64_avx2() -> Self {
        Self {
            isa: Isa::X86_64,
            generator: Generator::Own,
            features: Features {
                ssse3: true,
                sse41: true,
                avx: true,
                avx2: true,
                bmi1: true,
                bmi2: true,
                movbe: true,
                popcnt: true,
                fast_pext: true,
                avx512: false,
            },
            max_vector_bits: 256,
            caches: Caches {
                l1d: 32 << 10,
                l2: 1 << 20,
                l3: 32 << 20,
            },
        }
    }

    /// The named target `x86_64-avx512`: the one above with AVX-512 F, BW, DQ and VL and 512-bit registers.
    #[must_use]
    pub const fn x86_64_avx512() -> Self {
        let mut target = Self::x86_64_avx2();
        target.features.avx512 = true;
        target.max_vector_bits = 512;
        target
    }

    /// The named target `aarch64-neon`: NEON and fixed cache sizes, the same on every host.
    #[must_use]
    pub const fn aarch64_neon() -> Self {
        Self {
            generator: Generator::Own,
            ..Self::cranelift(Isa::AArch64)
        }
    }

    /// The named targets of Cranelift: each instruction set as its oldest machines have it.
    #[must_use]
    pub const fn cranelift(isa: Isa) -> Self {
        Self {
            isa,
            generator: Generator::Cranelift,
            features: Features::NONE,
            max_vector_bits: 128,
            caches: Self::x86_64_avx2().caches,
        }
    }

    /// Lanes of 32 bits that programs are best made for. Code with registers of 128 bits has eight of them in two.
    #[must_use]
    pub const fn lanes(&self) -> u8 {
        match self.generator {
            Generator::Own if self.features.avx512 && self.max_vector_bits >= 512 => 16,
            _ => 8,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.generator, self.isa) {
            (Generator::Own, Isa::AArch64) => "aarch64-neon",
            (Generator::Own, _) if self.features.avx512 => "x86_64-avx512",
            (Generator::Own, _) => "x86_64-avx2",
            (Generator::Cranelift, Isa::X86_64) => "x86_64-unknown-linux-gnu",
            (Generator::Cranelift, Isa::AArch64) => "aarch64-unknown-linux-gnu",
            (Generator::Cranelift, Isa::Riscv64) => "riscv64gc-unknown-linux-gnu",
            (Generator::Cranelift, Isa::S390x) => "s390x-unknown-linux-gnu",
        })
    }
}
