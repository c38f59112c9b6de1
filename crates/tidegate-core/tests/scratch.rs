//! scratch
use std::time::Duration;
use tidegate_core::*;
fn at(n: u64) -> Ask {
    Ask::at(Timestamp::from_nanos(n))
}
fn ns(n: u64) -> Duration {
    Duration::from_nanos(n)
}
fn check(l: &Limit, s: &mut Option<State>, t: u64, n: u64) -> Decision {
    let f = l.fits(s.as_ref(), &at(t), n);
    l.settle(s, &at(t), n, if f { Action::Take } else { Action::Refuse })
}
#[test]
fn a_initial_lockout() {
    let l = Limit::token_bucket(Rate::new(1, ns(1))).burst(5).initial(0).build().unwrap();
    let mut s = None;
    println!("{:?}", check(&l, &mut s, 0, 1));
    for t in [9, 10, 11, 12, 13, 20, 100] {
        println!(
            "t={t} forget {:?} spent {} {:?}",
            l.forget_after(s.as_ref().unwrap(), &at(t)),
            l.is_spent(s.as_ref().unwrap(), &at(t)),
            l.peek(s.as_ref(), &at(t), 1)
        );
    }
    for t in 100..110 {
        let d = check(&l, &mut s, t, 1);
        println!("t={t} {} {:?}", d.allowed, d.retry);
    }
}
#[test]
fn b_give_back_two() {
    let l = Limit::token_bucket(Rate::new(1, ns(1))).burst(10).build().unwrap();
    let mut s = None;
    let _ = check(&l, &mut s, 0, 5);
    let b = l.taken(s.as_ref().unwrap(), &at(0), 5);
    let _ = check(&l, &mut s, 0, 5);
    let a = l.taken(s.as_ref().unwrap(), &at(0), 5);
    let _ = l.give_back(&mut s, &at(0), &b);
    println!("{:?}", check(&l, &mut s, 5, 5));
    println!("{:?}", l.give_back(&mut s, &at(7), &a));
}
#[test]
fn c_max_time() {
    for l in [
        Limit::fixed_window(Rate::new(1, ns(10))),
        Limit::fixed_window(Rate::new(1, ns(10))).align(Align::FirstRequest),
        Limit::concurrency(1).lease(ns(10)),
        Limit::sliding_log(Rate::new(1, ns(10))),
        Limit::sliding_counter(Rate::new(1, ns(10))),
        Limit::per_second(1),
        Limit::per_second(1).refill(Refill::Interval),
    ] {
        let l = l.build().unwrap();
        let mut s = None;
        let mut n = 0;
        for h in 0..5 {
            let ask = Ask { holder: h, ..at(u64::MAX) };
            if l.fits(s.as_ref(), &ask, 1) {
                n += 1;
                let _ = l.settle(&mut s, &ask, 1, Action::Take);
            }
        }
        println!("{l}: {n}");
    }
}
#[test]
fn d_inherit_debt() {
    let old = Limit::per_second(10).refill(Refill::Interval).build().unwrap();
    let new = Limit::per_second(20).refill(Refill::Interval).build().unwrap();
    let mut s = None;
    let _ = old.settle(&mut s, &at(0), 15, Action::Force);
    let s2 = new.inherit(&old, s.as_ref().unwrap(), &at(0), Inherit::Used);
    println!("{:?}", new.peek(s2.as_ref(), &at(0), 0).remaining);
}
#[test]
fn e_foreign() {
    let old = Limit::per_second(10).build().unwrap();
    let new = Limit::sliding_log(Rate::per_second(20)).build().unwrap();
    let mut s = None;
    let _ = check(&old, &mut s, 0, 1);
    println!("{:?}", new.peek(s.as_ref(), &at(0), 1));
}
#[test]
fn f_conc_back() {
    let l = Limit::concurrency(2).lease(ns(10)).build().unwrap();
    let mut s = None;
    for (t, h) in [(20, 1), (5, 2), (20, 3), (20, 4)] {
        let ask = Ask { holder: h, ..at(t) };
        let f = l.fits(s.as_ref(), &ask, 1);
        println!("{t} {h} {f}");
        if f {
            let _ = l.settle(&mut s, &ask, 1, Action::Take);
        }
    }
    let none = Limit::concurrency(2).without_lease().build().unwrap();
    println!("{:?}", none.peek(None, &at(0), 1));
}
