//! What code is generated for: plain data. Nothing in this crate asks the CPU; `pktjit` does and fills this in.

use std::fmt;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// x86-64 with the System V calling convention.
    X86_64,
    /// AArch64 with NEON, which every one has, and the procedure call standard of Arm.
    AArch64,
}

/// Instruction-set extensions beyond AVX2, which every x86-64 target here has. Each has a plain substitute. Code for AArch64
/// uses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Features {
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
    /// No extension at all.
    pub const NONE: Self = Self {
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
            features: Features {
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
            isa: Isa::AArch64,
            features: Features::NONE,
            max_vector_bits: 128,
            caches: Self::x86_64_avx2().caches,
        }
    }

    /// Lanes of 32 bits that programs are best made for. Code for NEON has eight of them in two registers.
    #[must_use]
    pub const fn lanes(&self) -> u8 {
        match self.isa {
            Isa::X86_64 if self.features.avx512 && self.max_vector_bits >= 512 => 16,
            Isa::X86_64 | Isa::AArch64 => 8,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.isa {
            Isa::X86_64 if self.features.avx512 => f.write_str("x86_64-avx512"),
            Isa::X86_64 => f.write_str("x86_64-avx2"),
            Isa::AArch64 => f.write_str("aarch64-neon"),
        }
    }
}
