//! What a request asks of a limit, in the script's numbers.

use tidegate_core::{Taken, Windows};

use super::{Terms, UNITS_MOST, put, put_all, split_nanos};

impl Terms {
    /// Writes the units that are asked for, and what goes with them.
    pub(crate) fn put_units(&self, out: &mut Vec<u8>, units: u64, windows: Option<&Windows>) {
        let n = units.min(UNITS_MOST) as f64;
        match self {
            Self::Block => {}
            Self::Bucket(ticks) => {
                let (whole, rest) = ticks.of_units(units);
                put_all(out, [whole, rest]);
            }
            Self::FixedWindow => {
                put(out, n);
                // Without a calendar no window ends after now, which is what the script looks at.
                let edges = windows.map_or([0.0; 3], |windows| {
                    let [_, edges @ ..] = windows.edges;
                    edges.map(|edge| split_nanos(edge.as_nanos()).0)
                });
                put_all(out, edges);
            }
            Self::WarmUp { .. } => {
                put(out, n);
                let (whole, rest) = self.steady_price(units);
                put_all(out, [whole, rest]);
            }
            Self::Interval | Self::SlidingCounter | Self::SlidingLog | Self::Concurrency => {
                put(out, n);
            }
        }
    }

    /// Writes what is to be given back. A mark that does not stand at a whole microsecond was
    /// not made by this store, and fits nothing.
    pub(crate) fn put_taking(&self, out: &mut Vec<u8>, taken: &Taken) {
        let n = taken.cost.min(UNITS_MOST) as f64;
        let at = match u64::try_from(taken.mark) {
            Ok(nanos) if nanos % 1000 == 0 => split_nanos(nanos).0,
            _ => -1.0,
        };
        match self {
            Self::Block => {}
            Self::Bucket(ticks) => {
                let ((q, r), (dq, dr)) = (ticks.split(taken.mark), ticks.of_units(taken.cost));
                put_all(out, [q, r, dq, dr]);
            }
            Self::Interval => {
                let since = (taken.mark >> 64) as u64;
                let units = (taken.mark as u64).min(UNITS_MOST);
                put_all(out, [split_nanos(since).0, units as f64, n]);
            }
            Self::FixedWindow | Self::SlidingCounter | Self::SlidingLog => {
                put_all(out, [at, n]);
            }
            Self::Concurrency => {
                out.extend_from_slice(&taken.mark.to_le_bytes());
                put(out, n);
            }
            Self::WarmUp { .. } => {
                let paid_at = u64::try_from(taken.mark).unwrap_or(u64::MAX);
                let ((q, r), (dq, dr)) = (split_nanos(paid_at), self.steady_price(taken.cost));
                put_all(out, [q, r, dq, dr]);
            }
        }
    }

    /// What a warm-up gives back for so many units.
    fn steady_price(&self, n: u64) -> (f64, f64) {
        let Self::WarmUp { units, interval } = self else { return (0.0, 0.0) };
        let nanos = u128::from(n) * u128::from(*interval) / u128::from(*units);
        split_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
