//! Times several ways to do the same, in turns. `pktjit bench` and the crate `pktjit-bench` share it.
//!
//! A machine is never quiet: clocks change, neighbours come and go. So the ways take turns within one run, and what counts
//! is the difference between a way and the first one in the same round. Times are those that the thread was running,
//! medians over the rounds; the interval is Student's over the paired differences.

use std::hint::black_box;

/// Keys of one batch: what a network card delivers at once.
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

/// Makes so many lookups, and returns something that depends on all of them. The next call goes on where the last one
/// stopped, so that all keys have their turn even where lookups are slow.
pub type Loop<'a> = Box<dyn FnMut(usize) -> u32 + 'a>;

/// The loop of [`Mode::Single`] over keys of `stride` bytes; `lookup` is given one.
pub fn single<'a>(
    keys: &'a [u8],
    stride: usize,
    mut lookup: impl FnMut(&[u8]) -> u32 + 'a,
) -> Loop<'a> {
    in_passes(keys, stride, move |keys| {
        let keys = keys.chunks_exact(stride);
        keys.fold(0, |sum, key| lookup(key).wrapping_add(sum))
    })
}

/// The loop of [`Mode::Batch`] over keys of `stride` bytes; `lookup` is given at most [`BATCH`], and as many slots.
pub fn batch<'a>(
    keys: &'a [u8],
    stride: usize,
    mut lookup: impl FnMut(&[u8], &mut [u32]) + 'a,
) -> Loop<'a> {
    in_passes(keys, stride, move |keys| {
        let mut rows = [0; BATCH];
        for keys in keys.chunks(BATCH * stride) {
            let rows = &mut rows[..keys.len() / stride];
            lookup(keys, rows);
            black_box(rows);
        }
        rows[0]
    })
}

/// The loop of [`Mode::Latency`] over keys of `stride` bytes; `lookup` is given one.
pub fn latency<'a>(
    keys: &'a [u8],
    stride: usize,
    mut lookup: impl FnMut(&[u8]) -> u32 + 'a,
) -> Loop<'a> {
    in_passes(keys, stride, move |keys| {
        // Zero, but the compiler cannot know: the address of a key waits for the answer before it.
        let zero = black_box(0);
        (0..keys.len() / stride).fold(0, |row, i| {
            let start = i * stride + (row as usize & zero);
            lookup(&keys[start..][..stride])
        })
    })
}

/// Makes a loop over any number of keys from one over a part of those that there are.
fn in_passes<'a>(
    keys: &'a [u8],
    stride: usize,
    mut pass: impl FnMut(&[u8]) -> u32 + 'a,
) -> Loop<'a> {
    let mut left = keys;
    Box::new(move |mut count| {
        let mut sum = 0u32;
        while count > 0 && !keys.is_empty() {
            if left.is_empty() {
                left = keys;
            }
            let now;
            (now, left) = left.split_at(left.len().min(count * stride));
            sum = sum.wrapping_add(pass(now));
            count -= now.len() / stride;
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
    let first = time(way, BATCH);
    let lookups = |ns: f64| ((effort.sample_ns / ns.max(0.1)) as usize).clamp(BATCH, 1 << 24);
    let again = time(way, lookups(first).min(1 << 14));
    lookups(again).next_multiple_of(BATCH)
}

/// Nanoseconds a lookup, while this thread ran.
fn time(way: &mut Loop<'_>, count: usize) -> f64 {
    let start = clock();
    black_box(way(count));
    (clock() - start) / count as f64
}

/// Nanoseconds that this thread has been running.
#[cfg(target_os = "linux")]
fn clock() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds since the first call: elsewhere there is no clock of the thread that all systems have.
#[cfg(not(target_os = "linux"))]
fn clock() -> f64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_secs_f64() * 1e9
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

    #[test]
    fn every_loop_goes_on_where_it_stopped_and_starts_again_behind_the_last_key() {
        let keys: Vec<u8> = (0..6).collect();
        let expected = [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]].concat();
        for mode in Mode::ALL {
            let mut seen = Vec::new();
            let mut lookup = |key: &[u8]| {
                seen.extend_from_slice(key);
                0
            };
            let mut way = match mode {
                Mode::Single => single(&keys, 2, lookup),
                Mode::Batch => batch(&keys, 2, move |keys, rows| {
                    assert_eq!(keys.len(), 2 * rows.len());
                    lookup(keys);
                }),
                Mode::Latency => latency(&keys, 2, lookup),
            };
            way(1);
            way(4);
            drop(way);
            assert_eq!(seen, expected, "{mode:?}");
        }
    }
}
