//! What chance allows a count to be.

/// The numbers between which a binomial count lies with a probability of 99.9 %: each tail
/// has at most half of the rest. Sums the distribution up from 0.
pub fn interval(trials: f64, probability: f64) -> (f64, f64) {
    let tail = 0.0005;
    let (mut low, mut sum) = (None, 0.0);
    let mut log = trials * (-probability).ln_1p();
    let odds = (probability / (1.0 - probability)).ln();
    let mut count = 0.0;
    loop {
        sum += log.exp();
        if low.is_none() && sum > tail {
            low = Some(count);
        }
        if sum >= 1.0 - tail {
            return (low.unwrap_or(0.0), count);
        }
        log += ((trials - count) / (count + 1.0)).ln() + odds;
        count += 1.0;
    }
}
