//! A state that is spent equals no state: stores may forget it and nobody can tell.

use crate::support::{Key, Step, config, history, limits, nanos, start, unsteady_history};
use proptest::prelude::*;

/// Waits until the state may be forgotten, not a tick less, then lets a remembering and a
/// forgetful key live through the same future.
fn forgetting_goes_unnoticed(mut key: Key, future: &[Step]) -> Result<(), TestCaseError> {
    let Some(state) = key.state.clone() else { return Ok(()) };
    let limit = key.limit.clone();
    let after = nanos(limit.forget_after(&state, &key.ask()).unwrap());
    if after > 1 << 62 {
        return Ok(());
    }
    if after > 0 {
        key.now += after - 1;
        prop_assert!(!limit.is_spent(&state, &key.ask()), "spent before {}", after);
        key.now += 1;
    }
    prop_assert!(limit.is_spent(&state, &key.ask()), "not spent after {}", after);
    let mut forgetful = Key { state: None, ..key.clone() };
    for (index, step) in future.iter().enumerate() {
        let (act, remembered) = key.step(step);
        let (_, forgotten) = forgetful.step(step);
        prop_assert_eq!(remembered, forgotten, "step {}, {:?} at {}", index, act, key.now);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn of_plain_limits(
        spec in limits::plain(), start in start(), past in unsteady_history(),
        future in history(),
    ) {
        forgetting_goes_unnoticed(Key::after(spec, start, &past), &future)?;
    }

    #[test]
    fn of_soft_limits(
        spec in limits::any_soft(), start in start(), past in unsteady_history(),
        future in history(),
    ) {
        forgetting_goes_unnoticed(Key::after(spec, start, &past), &future)?;
    }

    #[test]
    fn of_limits_that_start_below_full(
        spec in limits::any_cautious(), start in start(), past in unsteady_history(),
        future in history(),
    ) {
        forgetting_goes_unnoticed(Key::after(spec, start, &past), &future)?;
    }

    #[test]
    fn of_warm_ups(
        spec in limits::warm_ups(), start in start(), past in unsteady_history(),
        future in history(),
    ) {
        forgetting_goes_unnoticed(Key::after(spec, start, &past), &future)?;
    }
}
