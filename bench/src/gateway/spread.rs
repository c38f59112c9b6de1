//! Many measurements in a few numbers.

/// The value below which a share of all lies; 0 if there are none.
pub(super) fn at(sorted: &[f64], share: f64) -> f64 {
    let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// The middle one and the quartiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) middle: f64,
    pub(super) high: f64,
}

impl Spread {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut all: Vec<f64> = values.into_iter().collect();
        all.sort_by(f64::total_cmp);
        Self { low: at(&all, 0.25), middle: at(&all, 0.5), high: at(&all, 0.75) }
    }
}
