//! How long until EC2 is asked again: ever longer, up to a cap, and never for all masters at the same moment.

use std::time::Duration;

/// The first pause, before its jitter.
const FIRST: Duration = Duration::from_secs(2);
/// The longest, while a volume is on its way.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest after the account was throttled.
const LONGEST_THROTTLED: Duration = Duration::from_secs(60);

/// Pauses that double, each taken at random from its upper half. The same seed gives the same pauses.
#[derive(Debug, Clone)]
pub struct Backoff {
    attempt: u32,
    random: u64,
    #[cfg(test)]
    jitter: bool,
}

/// Why it is waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Something is on its way.
    Watching,
    /// EC2 has taken an AttachVolume: the kernel shows the device before EC2 would say anything new.
    Arriving,
    /// The account asks for fewer requests.
    Throttled,
}

impl Backoff {
    pub fn new(seed: u64) -> Self {
        Backoff {
            attempt: 0,
            random: seed,
            #[cfg(test)]
            jitter: true,
        }
    }

    /// Each pause at its longest.
    #[cfg(test)]
    pub(super) fn without_jitter() -> Self {
        Backoff { jitter: false, ..Backoff::new(0) }
    }

    /// Something moved: what comes next may come soon.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    /// The next pause.
    pub fn pause(&mut self, pace: Pace) -> Duration {
        let (head_start, longest) = match pace {
            Pace::Watching => (0, LONGEST),
            Pace::Arriving => (2, LONGEST),
            // Asking again after two seconds is what throttles.
            Pace::Throttled => (2, LONGEST_THROTTLED),
        };
        let doublings = self.attempt.max(head_start).min(16);
        self.attempt = self.attempt.max(head_start).saturating_add(1);
        let whole = FIRST.saturating_mul(1_u32 << doublings).min(longest);
        #[cfg(test)]
        if !self.jitter {
            return whole;
        }
        let half = whole.checked_div(2).unwrap_or_default();
        let span = u64::try_from(half.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        half.saturating_add(Duration::from_millis(self.next_random().checked_rem(span).unwrap_or(0)))
    }

    /// SplitMix64: enough to keep machines apart, which is all that is wanted.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(seed: u64, pace: Pace) -> Vec<Duration> {
        let mut backoff = Backoff::new(seed);
        (0..12).map(|_| backoff.pause(pace)).collect()
    }

    #[test]
    fn pauses_grow_to_the_cap_and_stay_in_their_upper_half() {
        for seed in 0..200 {
            for (pace, longest) in
                [(Pace::Watching, LONGEST), (Pace::Arriving, LONGEST), (Pace::Throttled, LONGEST_THROTTLED)]
            {
                let all = pauses(seed, pace);
                assert!(all.iter().all(|pause| *pause >= FIRST / 2 && *pause <= longest), "{all:?}");
                assert!(all.iter().skip(8).all(|pause| *pause >= longest / 2), "{all:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_pauses_and_another_one_others() {
        assert_eq!(pauses(7, Pace::Watching), pauses(7, Pace::Watching));
        assert_ne!(pauses(7, Pace::Watching), pauses(8, Pace::Watching));
    }

    #[test]
    fn after_throttling_nobody_asks_again_at_once_and_after_news_everybody_may() {
        let mut backoff = Backoff::new(1);
        assert!(backoff.pause(Pace::Throttled) >= Duration::from_secs(4));
        backoff.reset();
        assert!(backoff.pause(Pace::Arriving) >= Duration::from_secs(4));
        backoff.reset();
        assert!(backoff.pause(Pace::Watching) <= FIRST);
    }
}
