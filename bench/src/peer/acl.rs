//! DPDK's `rte_acl`: multi-bit tries over all fields, walked by several keys at once. `acl.c` holds the calls.
//!
//! Its tables lie on 2 MiB pages where the machine has some to give away (`echo 1024 > /proc/sys/vm/nr_hugepages`), as DPDK
//! wants it. Keys are handed over behind pointers, since its functions take nothing else; filling these in is part of the
//! time, as it is of every program that calls them.

use std::ffi::c_void;
use std::fs;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use pktjit::MISS;
use pktjit_fuzz::r#gen::lists::Rule;

use super::Peer;
use crate::measure::BATCH;

// SAFETY: the signatures are those of `acl.c`. Those that take nothing but numbers may be called whatever these are.
unsafe extern "C" {
    safe fn acl_start(huge_pages: bool, mib: u32) -> i32;
    safe fn acl_new(number: u32, rules: u32) -> Option<NonNull<c_void>>;
    safe fn acl_bytes() -> u64;
    fn acl_add(
        acl: NonNull<c_void>,
        result: u32,
        priority: i32,
        value: *const u32,
        length: *const u32,
    ) -> i32;
    fn acl_build(acl: NonNull<c_void>) -> i32;
    fn acl_offers(acl: NonNull<c_void>, algorithm: i32) -> bool;
    fn acl_classify(
        acl: NonNull<c_void>,
        keys: *const *const u8,
        results: *mut u32,
        n: u32,
        algorithm: i32,
    ) -> i32;
    fn acl_free(acl: NonNull<c_void>);
}

/// The algorithms, by their names in results and their numbers in `rte_acl.h`.
const ALGORITHMS: [(&str, i32); 5] = [
    ("rte_acl-scalar", 1),
    ("rte_acl-sse", 2),
    ("rte_acl-avx2", 3),
    ("rte_acl-avx512x16", 6),
    ("rte_acl-avx512x32", 7),
];

/// Memory without huge pages, in MiB.
const SMALL_PAGES_MIB: u32 = 2048;

/// The result of a key that no rule matches; rows are counted from one.
const NONE: u32 = 0;

/// Starts DPDK once for the whole program, and tells on which pages its tables lie.
///
/// # Errors
/// Where it does not start.
pub fn pages() -> Result<&'static str, String> {
    static PAGES: OnceLock<Option<&str>> = OnceLock::new();
    let start = || {
        let free = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
        let free = fs::read_to_string(free).unwrap_or_default();
        let has_huge_pages = free.trim().parse().is_ok_and(|pages: u32| pages > 0);
        let pages = if has_huge_pages {
            "2 MiB pages"
        } else {
            "4 KiB pages"
        };
        (acl_start(has_huge_pages, SMALL_PAGES_MIB) == 0).then_some(pages)
    };
    PAGES.get_or_init(start).ok_or("DPDK does not start".into())
}

/// The tries of a list.
pub struct Acl {
    context: NonNull<c_void>,
    bytes: usize,
    build_ms: f64,
}

impl Acl {
    /// The tries of `rules`, of which the first one that matches wins.
    ///
    /// # Errors
    /// Where DPDK does not start, or has no memory for the rules.
    pub fn build(rules: &[Rule]) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        pages()?;
        let start = Instant::now();
        let before = acl_bytes();
        let count = rules.len() as u32;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let context = acl_new(number, count).ok_or("rte_acl has no memory for the rules")?;
        let mut acl = Self {
            context,
            bytes: 0,
            build_ms: 0.0,
        };
        for (rule, row) in rules.iter().zip(0..) {
            let [source, destination, sport, dport, proto] = *rule;
            let len = |(lo, hi): (u32, u32)| (lo ^ hi).leading_zeros();
            let value = [proto.0, source.0, destination.0, sport.0, dport.0];
            let mask = if proto.0 == proto.1 { 0xff } else { 0 };
            let length = [mask, len(source), len(destination), sport.1, dport.1];
            // SAFETY: the context is ours until it is dropped, and both arrays have a number for each field.
            let added = unsafe {
                let priority = (count - row) as i32;
                acl_add(context, row + 1, priority, value.as_ptr(), length.as_ptr())
            };
            if added != 0 {
                return Err(format!("rte_acl refuses rule {row}: {added}"));
            }
        }
        // SAFETY: the context is ours, and nobody else uses it yet.
        let built = unsafe { acl_build(context) };
        if built != 0 {
            return Err(format!("rte_acl cannot build {count} rules: {built}"));
        }
        acl.build_ms = start.elapsed().as_secs_f64() * 1e3;
        acl.bytes = acl_bytes().saturating_sub(before) as usize;
        Ok(acl)
    }

    /// Milliseconds that it took.
    #[must_use]
    pub fn build_ms(&self) -> f64 {
        self.build_ms
    }

    /// All ways to walk the tries that this machine offers.
    #[must_use]
    pub fn algorithms(self) -> Vec<AclCall> {
        let acl = Rc::new(self);
        let offered = ALGORITHMS.into_iter().filter(|&(_, number)| {
            // SAFETY: the context was built, and nobody looks up yet.
            unsafe { acl_offers(acl.context, number) }
        });
        let call = |(name, number)| AclCall {
            acl: Rc::clone(&acl),
            name,
            number,
        };
        offered.map(call).collect()
    }
}

impl Drop for Acl {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and this is its last use.
        unsafe { acl_free(self.context) }
    }
}

/// One algorithm.
pub struct AclCall {
    acl: Rc<Acl>,
    name: &'static str,
    number: i32,
}

impl Peer for AclCall {
    fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    fn lookup(&mut self, key: &[u8]) -> u32 {
        let mut row = [MISS];
        self.lookup_batch(key, key.len(), &mut row);
        row[0]
    }

    #[inline]
    fn lookup_batch(&mut self, keys: &[u8], stride: usize, out: &mut [u32]) {
        for (keys, out) in keys.chunks(BATCH * stride).zip(out.chunks_mut(BATCH)) {
            let mut pointers = [std::ptr::null(); BATCH];
            for (pointer, key) in pointers.iter_mut().zip(keys.chunks_exact(stride)) {
                *pointer = key.as_ptr();
            }
            // SAFETY: as many pointers are filled in as `out` has slots, each to the 16 bytes of a key; the context was built,
            // and offers the algorithm.
            unsafe {
                let n = out.len() as u32;
                let (acl, number) = (self.acl.context, self.number);
                acl_classify(acl, pointers.as_ptr(), out.as_mut_ptr(), n, number);
            }
            for row in out {
                *row = if *row == NONE { MISS } else { *row - 1 };
            }
        }
    }

    fn bytes(&self) -> usize {
        self.acl.bytes
    }
}
