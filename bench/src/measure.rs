//! Times several ways to do the same, in turns.
//!
//! A machine is never quiet: clocks change, neighbours come and go. So the ways take turns within one run, and what counts
//! is the difference between a way and the first one in the same round. Times are those that the thread was running,
//! medians over the rounds; the interval is Student's over the paired differences.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

use crate::peer::Peer;
use crate::workload::Keys;

/// Keys of one batch.
pub const BATCH: usize = 32;

/// How lookups follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One key a call; calls do not wait for each other.
    Single,
    /// [`BATCH`] keys a call.
    Batch,
    /// One key a call; where the next key lies depends on the answer.
    Latency,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Single, Self::Batch, Self::Latency];

    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Batch => "batch",
            Self::Latency => "latency",
        }
    }
}

/// Makes so many lookups, and returns something that depends on all of them.
pub type Loop<'a> = Box<dyn FnMut(usize) -> u32 + 'a>;

/// A peer behind a pointer, which still has a loop made for it alone: nothing is called by pointer within the loop.
pub trait Timed: Peer {
    /// The loop over `keys`.
    fn timed_loop<'a>(&'a mut self, mode: Mode, keys: &'a Keys) -> Loop<'a>;
}

impl<P: Peer> Timed for P {
    fn timed_loop<'a>(&'a mut self, mode: Mode, keys: &'a Keys) -> Loop<'a> {
        match mode {
            Mode::Single => in_passes(keys, move |count| {
                keys.first(count)
                    .fold(0, |sum, key| self.lookup(key).wrapping_add(sum))
            }),
            Mode::Batch => in_passes(keys, move |count| {
                let mut elements = [0; BATCH];
                let bytes = &keys.bytes[..count * keys.stride];
                for batch in bytes.chunks(BATCH * keys.stride) {
                    let elements = &mut elements[..batch.len() / keys.stride];
                    self.lookup_batch(batch, keys.stride, elements);
                    black_box(elements);
                }
                elements[0]
            }),
            Mode::Latency => in_passes(keys, move |count| {
                // Zero, but the compiler cannot know: the address of a key waits for the answer before it.
                let zero = black_box(0);
                (0..count).fold(0, |element, i| {
                    let start = i * keys.stride + (element as usize & zero);
                    self.lookup(&keys.bytes[start..][..keys.stride])
                })
            }),
        }
    }
}

/// Makes a loop over any number of keys from one over as many as there are.
fn in_passes<'a>(keys: &Keys, mut pass: impl FnMut(usize) -> u32 + 'a) -> Loop<'a> {
    let len = keys.len();
    Box::new(move |mut count| {
        let mut sum = 0u32;
        while count > 0 {
            let now = count.min(len);
            sum = sum.wrapping_add(pass(now));
            count -= now;
        }
        sum
    })
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples of each way.
    pub rounds: usize,
    /// Nanoseconds that a sample takes at least, about.
    pub sample_ns: f64,
}

impl Effort {
    /// For figures to publish.
    pub const FULL: Self = Self {
        rounds: 41,
        sample_ns: 4e6,
    };
    /// For a look.
    pub const QUICK: Self = Self {
        rounds: 15,
        sample_ns: 5e5,
    };
}

/// What came out for one way.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// Median nanoseconds a lookup.
    pub ns: f64,
    /// Half the width of the 95 % interval of the mean difference to the first way; for that, of its own mean.
    pub ci95: f64,
}

/// Times `ways` in turns.
pub fn in_turns(ways: &mut [Loop<'_>], effort: Effort) -> Vec<Estimate> {
    let counts: Vec<usize> = ways.iter_mut().map(|way| count(way, effort)).collect();
    let mut samples = vec![Vec::with_capacity(effort.rounds); ways.len()];
    for round in 0..effort.rounds {
        for turn in 0..ways.len() {
            // Nobody always runs behind the same other.
            let way = (turn + round) % ways.len();
            samples[way].push(time(&mut ways[way], counts[way]));
        }
    }
    estimates(&samples)
}

/// The estimates for samples of several ways, taken in rounds.
#[must_use]
pub fn estimates(samples: &[Vec<f64>]) -> Vec<Estimate> {
    let estimate = |(way, own): (usize, &Vec<f64>)| {
        let pairs = own.iter().zip(&samples[0]);
        let differences: Vec<f64> = match way {
            0 => own.clone(),
            _ => pairs.map(|(own, first)| own - first).collect(),
        };
        Estimate {
            ns: median(own),
            ci95: half_width(&differences),
        }
    };
    samples.iter().enumerate().map(estimate).collect()
}

/// How many lookups make a sample long enough; those before it warm the caches.
pub fn count(way: &mut Loop<'_>, effort: Effort) -> usize {
    let first = time(way, 4 * BATCH);
    let lookups = |ns: f64| ((effort.sample_ns / ns.max(0.1)) as usize).clamp(4 * BATCH, 1 << 24);
    let again = time(way, lookups(first).min(1 << 14));
    lookups(again).next_multiple_of(BATCH)
}

/// Nanoseconds a lookup, while this thread ran.
fn time(way: &mut Loop<'_>, count: usize) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let start = now();
    black_box(way(count));
    (now() - start) / count as f64
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => 0.0,
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

/// Half the width of Student's 95 % interval of the mean.
fn half_width(samples: &[f64]) -> f64 {
    let n = samples.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let freedom = n - 1.0;
    // Cornish and Fisher's expansion of the quantile; within 1 % from 5 degrees of freedom on.
    let t = 1.960 + 2.372 / freedom + 2.823 / freedom.powi(2);
    t * (squares / freedom / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_ministat() {
        // t(9) = 2.262; the standard deviation of 1..=10 is 3.0277.
        let samples: Vec<f64> = (1..=10).map(f64::from).collect();
        assert!((half_width(&samples) - 2.262 * 3.0277 / 10f64.sqrt()).abs() < 0.02);
    }

    #[test]
    fn a_constant_distance_has_no_width_however_noisy_the_rounds_are() {
        let first = vec![1.0, 9.0, 2.0, 5.0];
        let other = first.iter().map(|sample| sample + 3.0).collect();
        let [_, other] = estimates(&[first, other])[..] else {
            panic!("two ways went in");
        };
        assert_eq!((other.ns, other.ci95), (6.5, 0.0));
    }
}
