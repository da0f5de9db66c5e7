//! What this machine can run, decided once per process.
//!
//! [`Cpu::decide`] is one pure function over the registers that CPUID and XGETBV return, so that tests feed it tables. Two
//! things have to agree before AVX2 or AVX-512 code may run: the CPU has the instructions, and the operating system saves
//! what they use of the registers when it switches threads. Asking the CPU alone crashes on the machines where they differ.
//! On AArch64 the operating system answers both questions at once, and tells the sizes of caches.
//!
//! `PKTJIT_ENGINE` is read here too, because it is just as fixed for the life of the process.

#[cfg(any(test, not(target_arch = "x86_64")))]
use std::fs;
#[cfg(any(test, not(target_arch = "x86_64")))]
use std::path::Path;
use std::sync::OnceLock;

use pktjit_jit::{Caches, Features, Generator, Isa, Target};

/// What a machine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Whether AVX2 code runs, or what is missing.
    pub avx2: Result<(), &'static str>,
    /// Whether AVX-512 code runs where AVX2 code does, or what is missing.
    pub avx512: Result<(), &'static str>,
    /// Whether NEON code runs, or what is missing.
    pub neon: Result<(), &'static str>,
    /// Extensions of x86-64 that machine code may use besides.
    pub features: Features,
    /// Cache sizes of one core.
    pub caches: Caches,
}

/// The registers that the decision is made from, as the instructions return them; 0 where a leaf does not exist.
#[derive(Clone, Debug, Default)]
struct CpuidLeaves {
    /// Leaf 0: EBX, EDX, ECX, which spell the vendor.
    vendor: [u8; 12],
    /// Leaf 1.
    leaf1_eax: u32,
    /// Leaf 1.
    leaf1_ecx: u32,
    /// Leaf 7, subleaf 0.
    leaf7_ebx: u32,
    /// Which register states the operating system saves; means nothing unless OSXSAVE is set.
    xcr0: u64,
    /// EAX, EBX and ECX of each subleaf of leaf 4, or of 0x8000_001D, which has the same form.
    caches: Vec<[u32; 3]>,
}

/// What machine code has to be for.
const HOST_ISA: Option<Isa> = if cfg!(target_arch = "x86_64") {
    Some(Isa::X86_64)
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    Some(Isa::AArch64)
} else if cfg!(target_arch = "riscv64") {
    Some(Isa::Riscv64)
} else if cfg!(target_arch = "s390x") {
    Some(Isa::S390x)
} else {
    None
};

/// What the planner assumes where the CPU does not tell.
const DEFAULT_CACHES: Caches = Target::x86_64_avx2().caches;

impl Cpu {
    /// This machine.
    #[must_use]
    pub fn host() -> &'static Self {
        static HOST: OnceLock<Cpu> = OnceLock::new();
        HOST.get_or_init(detect)
    }

    /// What code for this machine is made for: for AVX2, or for NEON.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn target(&self) -> Result<Target, &'static str> {
        if self.neon.is_ok() {
            return Ok(Target {
                caches: self.caches,
                ..Target::aarch64_neon()
            });
        }
        self.avx2.map(|()| Target {
            isa: Isa::X86_64,
            generator: Generator::Own,
            features: self.features,
            max_vector_bits: 256,
            caches: self.caches,
        })
    }

    /// What AVX-512 code for this machine is made for.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn avx512_target(&self) -> Result<Target, &'static str> {
        let mut target = self.target()?;
        self.avx512?;
        target.features.avx512 = true;
        target.max_vector_bits = 512;
        Ok(target)
    }

    /// What Cranelift's code for this machine is made for.
    ///
    /// # Errors
    /// Where there is none.
    pub fn cranelift_target(&self) -> Result<Target, &'static str> {
        if cfg!(not(feature = "cranelift")) {
            return Err("this build is without Cranelift");
        }
        let isa = HOST_ISA.ok_or("Cranelift has no code for this machine")?;
        Ok(Target {
            features: self.features,
            caches: self.caches,
            ..Target::cranelift(isa)
        })
    }

    /// Whether code that was made for `target` runs here.
    #[must_use]
    pub fn runs(&self, target: &Target) -> bool {
        let (asked, here) = (target.features, self.features);
        let has_basis = match (target.generator, target.isa) {
            (Generator::Own, Isa::AArch64) => self.neon.is_ok(),
            (Generator::Own, _) => self.avx2.is_ok(),
            (Generator::Cranelift, _) => true,
        };
        HOST_ISA == Some(target.isa)
            && has_basis
            && [
                (asked.ssse3, here.ssse3),
                (asked.sse41, here.sse41),
                (asked.avx, here.avx),
                (asked.avx2, here.avx2),
                (asked.bmi1, here.bmi1),
                (asked.bmi2, here.bmi2),
                (asked.movbe, here.movbe),
                (asked.popcnt, here.popcnt),
                (asked.avx512, self.avx512.is_ok()),
            ]
            .iter()
            .all(|&(asked, here)| here || !asked)
    }

    #[cfg_attr(
        not(any(test, target_arch = "x86_64")),
        expect(dead_code, reason = "only x86-64 has CPUID")
    )]
    fn decide(cpuid: &CpuidLeaves) -> Self {
        let leaf1 = |bit: u32| cpuid.leaf1_ecx >> bit & 1 == 1;
        let leaf7 = |bit: u32| cpuid.leaf7_ebx >> bit & 1 == 1;
        let (sse3, ssse3, sse41) = (leaf1(0), leaf1(9), leaf1(19));
        let (movbe, popcnt, osxsave, avx) = (leaf1(22), leaf1(23), leaf1(27), leaf1(28));
        let (bmi1, avx2, bmi2) = (leaf7(3), leaf7(5), leaf7(8));
        // Bit 1 is the state of the xmm registers, bit 2 that of the upper halves of the ymm registers.
        let saves_ymm = cpuid.xcr0 & 0b110 == 0b110;
        // F, DQ, BW, VL.
        let avx512 = [16, 17, 30, 31].into_iter().all(leaf7);
        // Bits 5 to 7: mask registers, upper halves of zmm0 to zmm15, and zmm16 to zmm31.
        let saves_zmm = saves_ymm && cpuid.xcr0 & 0xe0 == 0xe0;
        let has_ymm = osxsave && saves_ymm;
        Self {
            avx2: if !(avx && avx2) {
                Err("the CPU has no AVX2")
            } else if !has_ymm {
                Err("the operating system does not save the AVX registers")
            } else {
                Ok(())
            },
            avx512: if !avx512 {
                Err("the CPU has no AVX-512 with F, BW, DQ and VL")
            } else if !(osxsave && saves_zmm) {
                Err("the operating system does not save the AVX-512 registers")
            } else {
                Ok(())
            },
            neon: Err("this is not an AArch64 machine"),
            features: Features {
                ssse3: sse3 && ssse3,
                sse41,
                avx: has_ymm && avx,
                avx2: has_ymm && avx && avx2,
                bmi1,
                bmi2,
                movbe,
                popcnt,
                fast_pext: bmi2 && cpuid.has_fast_pext(),
                avx512: false,
            },
            caches: cpuid.caches(),
        }
    }
}

impl CpuidLeaves {
    /// `pext` takes one step on Intel, and on AMD since family 19h (Zen 3); before, microcode takes some 250 cycles.
    fn has_fast_pext(&self) -> bool {
        let base = self.leaf1_eax >> 8 & 0xf;
        let extended = self.leaf1_eax >> 20 & 0xff;
        let family = if base == 0xf { base + extended } else { base };
        match &self.vendor {
            b"GenuineIntel" => true,
            b"AuthenticAMD" => family >= 0x19,
            _ => false,
        }
    }

    fn caches(&self) -> Caches {
        const DATA: u32 = 1;
        const UNIFIED: u32 = 3;
        let mut caches = DEFAULT_CACHES;
        for &[eax, ebx, ecx] in &self.caches {
            let ways = u64::from(ebx >> 22) + 1;
            let partitions = u64::from(ebx >> 12 & 0x3ff) + 1;
            let line = u64::from(ebx & 0xfff) + 1;
            let sets = u64::from(ecx) + 1;
            // The widths of the fields sum to 64 bits, and all ones would be 2^64.
            let Some(bytes) = (ways * partitions * line)
                .checked_mul(sets)
                .and_then(|bytes| usize::try_from(bytes).ok())
            else {
                continue;
            };
            match (eax >> 5 & 0b111, eax & 0b1_1111) {
                (1, DATA | UNIFIED) => caches.l1d = bytes,
                (2, DATA | UNIFIED) => caches.l2 = bytes,
                (3, DATA | UNIFIED) => caches.l3 = bytes,
                _ => {}
            }
        }
        caches
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Cpu {
    use raw_cpuid::cpuid;

    /// # Safety
    /// CPUID reports OSXSAVE.
    #[target_feature(enable = "xsave")]
    unsafe fn xcr0() -> u64 {
        // SAFETY: register 0 exists wherever the instruction does, which the caller has checked.
        unsafe { std::arch::x86_64::_xgetbv(0) }
    }

    let leaf0 = cpuid!(0);
    let [ebx, edx, ecx] = [leaf0.ebx, leaf0.edx, leaf0.ecx].map(u32::to_le_bytes);
    let mut vendor = [0; 12];
    for (slot, &byte) in vendor.iter_mut().zip([ebx, edx, ecx].as_flattened()) {
        *slot = byte;
    }
    let leaf1 = cpuid!(1);
    let max_extended = cpuid!(0x8000_0000_u32).eax;
    // Leaf 4 is empty on AMD, whose own leaf has the same form.
    let cache_leaf = if vendor == *b"GenuineIntel" {
        Some(4).filter(|&leaf| leaf <= leaf0.eax)
    } else {
        Some(0x8000_001D).filter(|&leaf| leaf <= max_extended)
    };
    // Subleaves end at one without a cache; the bound is for emulators that repeat the last one for ever.
    let caches = cache_leaf.map_or(Vec::new(), |leaf| {
        (0..16_u32)
            .map(|subleaf| cpuid!(leaf, subleaf))
            .take_while(|cache| cache.eax & 0b1_1111 != 0)
            .map(|cache| [cache.eax, cache.ebx, cache.ecx])
            .collect()
    });
    Cpu::decide(&CpuidLeaves {
        vendor,
        leaf1_eax: leaf1.eax,
        leaf1_ecx: leaf1.ecx,
        leaf7_ebx: if leaf0.eax >= 7 {
            cpuid!(7_u32, 0_u32).ebx
        } else {
            0
        },
        xcr0: if leaf1.ecx >> 27 & 1 == 1 {
            // SAFETY: bit 27 is OSXSAVE: the CPU has XGETBV and the operating system has switched it on.
            unsafe { xcr0() }
        } else {
            0
        },
        caches,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Cpu {
    Cpu {
        avx2: Err("this is not an x86-64 machine"),
        avx512: Err("this is not an x86-64 machine"),
        neon: neon(),
        features: Features::NONE,
        caches: caches_in(Path::new("/sys/devices/system/cpu/cpu0/cache")),
    }
}

/// What Linux tells of the caches of a core, in a folder for each of them; the default for a level that it does not tell.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn caches_in(folder: &Path) -> Caches {
    let mut caches = DEFAULT_CACHES;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let size = read("size");
        let kibibytes = size.trim().strip_suffix('K').map(str::parse::<usize>);
        let Some(Ok(kibibytes @ 1..=MOST_KIBIBYTES)) = kibibytes else {
            continue;
        };
        let level = match (read("level").trim(), read("type").trim()) {
            ("1", "Data" | "Unified") => &mut caches.l1d,
            ("2", "Data" | "Unified") => &mut caches.l2,
            ("3", "Data" | "Unified") => &mut caches.l3,
            _ => continue,
        };
        *level = kibibytes << 10;
    }
    caches
}

/// Far above any cache, and far below what a number of bytes cannot hold.
#[cfg(any(test, not(target_arch = "x86_64")))]
const MOST_KIBIBYTES: usize = 1 << 20;

/// The operating system tells, which has to save the registers; it hands on what the kernel found out about all cores.
#[cfg(not(target_arch = "x86_64"))]
fn neon() -> Result<(), &'static str> {
    // Code is little-endian everywhere, numbers in registers' lanes are not.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    return match std::arch::is_aarch64_feature_detected!("neon") {
        true => Ok(()),
        false => Err("the CPU has no NEON, or the operating system does not save its registers"),
    };
    #[cfg(not(all(target_arch = "aarch64", target_endian = "little")))]
    Err("this is not a little-endian AArch64 machine")
}

/// What `PKTJIT_ENGINE` says, if it says anything.
pub(crate) fn engine_override() -> Option<&'static str> {
    static OVERRIDE: OnceLock<Option<String>> = OnceLock::new();
    OVERRIDE
        .get_or_init(|| {
            let value = std::env::var_os("PKTJIT_ENGINE")?;
            Some(value.to_string_lossy().into_owned())
        })
        .as_deref()
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OSXSAVE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const AVX2: u32 = 1 << 5;

    fn leaves(leaf1_ecx: u32, leaf7_ebx: u32, xcr0: u64) -> CpuidLeaves {
        CpuidLeaves {
            vendor: *b"GenuineIntel",
            leaf1_ecx,
            leaf7_ebx,
            xcr0,
            ..CpuidLeaves::default()
        }
    }

    #[test]
    fn caches_are_those_that_the_operating_system_tells() {
        let folder = std::env::temp_dir().join(format!("pktjit-caches-{}", std::process::id()));
        for (cache, files) in [
            (
                "index0",
                [("level", "1\n"), ("type", "Data\n"), ("size", "64K\n")],
            ),
            (
                "index1",
                [
                    ("level", "1\n"),
                    ("type", "Instruction\n"),
                    ("size", "48K\n"),
                ],
            ),
            (
                "index2",
                [("level", "2\n"), ("type", "Unified\n"), ("size", "2048K\n")],
            ),
            (
                "index3",
                [
                    ("level", "3\n"),
                    ("type", "Unified\n"),
                    ("size", "18446744073709551615K\n"),
                ],
            ),
            (
                "index4",
                [("level", "4\n"), ("type", "Unified\n"), ("size", "9K\n")],
            ),
        ] {
            fs::create_dir_all(folder.join(cache)).unwrap();
            for (name, text) in files {
                fs::write(folder.join(cache).join(name), text).unwrap();
            }
        }
        let found = caches_in(&folder);
        let nothing = caches_in(&folder.join("index9"));
        fs::remove_dir_all(&folder).unwrap();
        let expected = Caches {
            l1d: 64 << 10,
            l2: 2048 << 10,
            ..DEFAULT_CACHES
        };
        assert_eq!((found, nothing), (expected, DEFAULT_CACHES));
    }

    #[test]
    fn avx2_wants_both_the_cpu_and_the_operating_system() {
        for (leaf1, leaf7, xcr0, expected) in [
            (OSXSAVE | AVX, AVX2, 0x7, true),
            (OSXSAVE | AVX, AVX2, 0xe7, true),
            (OSXSAVE | AVX, AVX2, 0x6, true),
            (AVX, AVX2, 0x7, false),
            (OSXSAVE | AVX, AVX2, 0x3, false),
            (OSXSAVE | AVX, AVX2, 0x5, false),
            (OSXSAVE | AVX, AVX2, 0x0, false),
            (OSXSAVE, AVX2, 0x7, false),
            (OSXSAVE | AVX, 0, 0x7, false),
            (0, 0, 0, false),
        ] {
            let cpu = Cpu::decide(&leaves(leaf1, leaf7, xcr0));
            assert_eq!(
                cpu.avx2.is_ok(),
                expected,
                "{leaf1:#x} {leaf7:#x} {xcr0:#x}"
            );
            assert_eq!(cpu.target().is_ok(), expected);
        }
    }

    /// Hypervisors hide bits of either side, and an operating system may save ymm registers alone.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx512_wants_all_four_extensions_and_all_three_states() {
        let four = AVX2 | 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31;
        for (leaf1, leaf7, xcr0, expected) in [
            (OSXSAVE | AVX, four, 0xe7, true),
            (OSXSAVE | AVX, four, 0xe6, true),
            (OSXSAVE | AVX, four, 0x2e7, true),
            (OSXSAVE | AVX, four, 0x07, false),
            (OSXSAVE | AVX, four, 0x27, false),
            (OSXSAVE | AVX, four, 0x67, false),
            (OSXSAVE | AVX, four, 0xc7, false),
            (OSXSAVE | AVX, four, 0xe3, false),
            (AVX, four, 0xe7, false),
            (OSXSAVE, four, 0xe7, false),
            (OSXSAVE | AVX, four & !AVX2, 0xe7, false),
            (OSXSAVE | AVX, four & !(1 << 16), 0xe7, false),
            (OSXSAVE | AVX, four & !(1 << 17), 0xe7, false),
            (OSXSAVE | AVX, four & !(1 << 30), 0xe7, false),
            (OSXSAVE | AVX, four & !(1 << 31), 0xe7, false),
            (OSXSAVE | AVX, AVX2, 0xe7, false),
        ] {
            let cpu = Cpu::decide(&leaves(leaf1, leaf7, xcr0));
            let target = cpu.avx512_target();
            assert_eq!(target.is_ok(), expected, "{leaf1:#x} {leaf7:#x} {xcr0:#x}");
            assert!(!cpu.runs(&Target::x86_64_avx512()), "no BMI here");
            if let Ok(target) = target {
                assert!(cpu.runs(&target));
                assert_eq!(
                    (target.lanes(), target.to_string()),
                    (16, "x86_64-avx512".into())
                );
            }
        }
    }

    #[test]
    fn one_bit_of_leaf_1_switches_one_feature() {
        for bit in 0..32 {
            let cpu = Cpu::decide(&leaves(1 << bit, 0, 0));
            let expected = Features {
                sse41: bit == 19,
                movbe: bit == 22,
                popcnt: bit == 23,
                ..Features::default()
            };
            assert_eq!(cpu.features, expected, "bit {bit}");
            assert!(cpu.avx2.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn one_bit_of_leaf_7_switches_one_feature() {
        for bit in 0..32 {
            let cpu = Cpu::decide(&leaves(OSXSAVE | AVX, 1 << bit, 0x7));
            let expected = Features {
                avx: true,
                avx2: bit == 5,
                bmi1: bit == 3,
                bmi2: bit == 8,
                fast_pext: bit == 8,
                ..Features::default()
            };
            assert_eq!(cpu.features, expected, "bit {bit}");
            assert_eq!(cpu.avx2.is_ok(), bit == 5, "bit {bit}");
        }
    }

    #[test]
    fn pext_is_slow_on_amd_before_zen_3() {
        for (vendor, leaf1_eax, expected) in [
            (b"GenuineIntel", 0x0003_06c3, true),  // Haswell, family 6
            (b"AuthenticAMD", 0x0080_0f11, false), // Zen 1, family 17h
            (b"AuthenticAMD", 0x0083_0f10, false), // Zen 2, family 17h
            (b"AuthenticAMD", 0x00a2_0f10, true),  // Zen 3, family 19h
            (b"AuthenticAMD", 0x00b4_0f40, true),  // Zen 5, family 1Ah
            (b"HygonGenuine", 0x0090_0f22, false), // Zen 1 under licence, family 18h
            (b"CentaurHauls", 0x0000_06f2, false), // not known
        ] {
            let cpuid = CpuidLeaves {
                vendor: *vendor,
                leaf1_eax,
                leaf7_ebx: 1 << 8,
                ..CpuidLeaves::default()
            };
            assert_eq!(
                Cpu::decide(&cpuid).features.fast_pext,
                expected,
                "{leaf1_eax:#x}"
            );
        }
    }

    #[test]
    fn cache_sizes_are_products_of_their_fields() {
        // L1 data 48 KiB of 12 ways, L1 code 32 KiB, L2 2 MiB of 16 ways, L3 30 MiB of 12 ways.
        let cpuid = CpuidLeaves {
            caches: vec![
                [0x21, 11 << 22 | 63, 63],
                [0x22, 7 << 22 | 63, 63],
                [0x43, 15 << 22 | 63, 2047],
                [0x63, 11 << 22 | 63, 40959],
            ],
            ..CpuidLeaves::default()
        };
        let expected = Caches {
            l1d: 48 << 10,
            l2: 2 << 20,
            l3: 30 << 20,
        };
        assert_eq!(cpuid.caches(), expected);
    }

    #[test]
    fn absurd_cache_sizes_are_ignored() {
        let cpuid = CpuidLeaves {
            caches: vec![[0x21, u32::MAX, u32::MAX]],
            ..CpuidLeaves::default()
        };
        assert_eq!(cpuid.caches(), DEFAULT_CACHES);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn code_for_more_than_the_cpu_has_does_not_run_there() {
        let cpu = Cpu::decide(&leaves(OSXSAVE | AVX, AVX2, 0x7));
        let plain = cpu.target().unwrap();
        assert!(cpu.runs(&plain));
        for set in [
            |features: &mut Features| features.ssse3 = true,
            |features: &mut Features| features.sse41 = true,
            |features: &mut Features| features.bmi1 = true,
            |features: &mut Features| features.bmi2 = true,
            |features: &mut Features| features.movbe = true,
            |features: &mut Features| features.popcnt = true,
            |features: &mut Features| features.avx512 = true,
        ] {
            let mut target = plain;
            set(&mut target.features);
            assert!(!cpu.runs(&target), "{:?}", target.features);
        }
        let without = Cpu::decide(&CpuidLeaves::default());
        assert!(!without.runs(&plain));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn detection_agrees_with_the_standard_library() {
        let cpu = Cpu::host();
        assert_eq!(cpu.avx2.is_ok(), is_x86_feature_detected!("avx2"));
        let four = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        assert_eq!(cpu.avx512_target().is_ok(), four);
        if cpu.avx2.is_ok() {
            assert_eq!(cpu.features.bmi1, is_x86_feature_detected!("bmi1"));
            assert_eq!(cpu.features.bmi2, is_x86_feature_detected!("bmi2"));
            assert_eq!(cpu.features.movbe, is_x86_feature_detected!("movbe"));
            assert_eq!(cpu.features.popcnt, is_x86_feature_detected!("popcnt"));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn every_core_gives_the_same_answer() {
        let size = std::mem::size_of::<libc::cpu_set_t>();
        for core in 0..std::thread::available_parallelism().unwrap().get() {
            // SAFETY: the set is plain data that lives until the call returns; only this thread is moved.
            let pinned = unsafe {
                let mut only: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(core, &mut only);
                libc::sched_setaffinity(0, size, &only)
            };
            // A core that this process may not use cannot answer differently either.
            if pinned == 0 {
                assert_eq!(detect(), *Cpu::host(), "core {core}");
            }
        }
    }
}
