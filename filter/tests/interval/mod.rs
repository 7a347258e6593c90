//! The interval that chance allows for a count.

/// Weights below this part of the greatest do not count.
const NEGLIGIBLE: f64 = 1e-20;

/// Returns the numbers between which a binomial count lies with a probability of 99.9 %.
pub fn interval(trials: f64, probability: f64) -> (f64, f64) {
    interval_at(trials, probability, 0.999)
}

/// Returns the numbers between which a binomial count lies with a probability of `confidence`. Each
/// tail has at most half of the rest. Sums the distribution up, out from its mode. The time is
/// proportional to its width.
pub fn interval_at(trials: f64, probability: f64, confidence: f64) -> (f64, f64) {
    let odds = probability / (1.0 - probability);
    let mode = (trials * probability).floor();
    let (mut first, mut weight) = (mode, 1.0);
    let mut weights = Vec::new();
    while first > 0.0 && weight > NEGLIGIBLE {
        weight *= first / ((trials - first + 1.0) * odds);
        first -= 1.0;
        weights.push(weight);
    }
    weights.reverse();
    let (mut last, mut weight) = (mode, 1.0);
    while weight > NEGLIGIBLE {
        weights.push(weight);
        weight *= (trials - last) / (last + 1.0) * odds;
        last += 1.0;
    }

    let tail = (1.0 - confidence) / 2.0 * weights.iter().sum::<f64>();
    let within = |weights: &mut dyn Iterator<Item = &f64>| {
        let mut sum = 0.0;
        let is_tail = |weight: &&f64| {
            sum += **weight;
            sum <= tail
        };
        weights.take_while(is_tail).count() as f64
    };
    let low = first + within(&mut weights.iter());
    let high = first + weights.len() as f64 - 1.0 - within(&mut weights.iter().rev());
    (low, high)
}
