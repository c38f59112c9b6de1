//! Nanoseconds per check, rivals taking turns.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::rivals::{BASE, NAMES, Path, Rival, build};
use crate::workload::{KeyBuffer, WORKLOADS, Workload};

#[derive(Clone, Copy, PartialEq)]
pub enum Length {
    /// Only to see that everything runs: small tables, figures that mean nothing.
    Smoke,
    Quick,
    Full,
}

pub fn run(length: Length) {
    let (rounds, checks) = match length {
        Length::Smoke => (1, 20_000),
        Length::Quick => (3, 400_000),
        Length::Full => (5, 1_000_000),
    };
    for (path, title) in [(Path::Allow, "all admitted"), (Path::Deny, "all but the first refused")]
    {
        for threads in [1, 2] {
            if path == Path::Deny && threads == 2 {
                continue;
            }
            println!("\n## Wall ns per check, {threads} thread(s), {title}");
            println!(
                "median of {rounds} rounds [least-most], x = ratio to {BASE} in the same run\n"
            );
            let most = if length == Length::Smoke { 10_000 } else { u32::MAX };
            let workloads: Vec<Workload> =
                WORKLOADS.into_iter().filter(|workload| workload.keys <= most).collect();
            table(&workloads, path, threads, rounds, checks);
        }
    }
}

/// All rivals under one workload, all admitted.
pub fn case(workload: &str, threads: usize, rounds: usize) {
    println!("\n## Wall ns per check, {threads} thread(s), all admitted");
    println!("median of {rounds} rounds [least-most], x = ratio to {BASE} in the same run\n");
    table(&[named(workload)], Path::Allow, threads, rounds, 1_000_000);
}

/// One rival under one workload, all admitted.
pub fn only(rival: &str, workload: &str, threads: usize) {
    let workload = named(workload);
    let orders = orders(&workload, threads);
    let limiter = build(rival, workload.keys, Path::Allow);
    warm_up(limiter.as_ref(), &workload);
    for _ in 0..5 {
        let time = measure(limiter.as_ref(), &orders, 4_000_000);
        println!("{rival}, {}, {threads} thread(s): {time:.1} ns", workload.name);
    }
}

fn named(workload: &str) -> Workload {
    WORKLOADS.into_iter().find(|known| known.name == workload).expect("a workload")
}

/// The order of keys for each thread.
fn orders(workload: &Workload, threads: usize) -> Vec<Vec<u32>> {
    (0..threads).map(|seed| workload.order(seed as u64)).collect()
}

/// Every key once, so that tables have grown before anything is measured.
fn warm_up(rival: &dyn Rival, workload: &Workload) {
    let mut key = KeyBuffer::new();
    (0..workload.keys).for_each(|number| {
        black_box(rival.ask(&mut key, number));
    });
}

fn table(workloads: &[Workload], path: Path, threads: usize, rounds: usize, checks: usize) {
    print!("| rival |");
    workloads.iter().for_each(|workload| print!(" {} |", workload.name));
    println!("\n| --- |{}", " --- |".repeat(workloads.len()));
    let columns: Vec<Vec<Vec<f64>>> =
        workloads.iter().map(|workload| column(workload, path, threads, rounds, checks)).collect();
    let base = NAMES.iter().position(|name| *name == BASE).expect("the base is a rival");
    for (index, name) in NAMES.iter().enumerate() {
        print!("| {name} |");
        for column in &columns {
            let (least, middle, most) = spread(&column[index]);
            let (_, against, _) = spread(&column[base]);
            print!(" {middle:.0} [{least:.0}-{most:.0}] {:.2}x |", middle / against);
        }
        println!();
    }
}

/// The times of all rivals under one workload, by rival and round.
fn column(
    workload: &Workload,
    path: Path,
    threads: usize,
    rounds: usize,
    checks: usize,
) -> Vec<Vec<f64>> {
    let orders = orders(workload, threads);
    let rivals: Vec<Box<dyn Rival>> =
        NAMES.iter().map(|name| build(name, workload.keys, path)).collect();
    for rival in &rivals {
        warm_up(rival.as_ref(), workload);
    }
    let mut times = vec![Vec::new(); rivals.len()];
    for _ in 0..rounds {
        for (rival, times) in rivals.iter().zip(&mut times) {
            times.push(measure(rival.as_ref(), &orders, checks));
        }
    }
    times
}

/// Wall nanoseconds per check: the time of a run, divided by the checks of all threads together.
fn measure(rival: &dyn Rival, orders: &[Vec<u32>], checks: usize) -> f64 {
    let barrier = Barrier::new(orders.len());
    let longest: Duration = std::thread::scope(|scope| {
        let threads: Vec<_> = orders
            .iter()
            .map(|order| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut key = KeyBuffer::new();
                    barrier.wait();
                    let start = Instant::now();
                    for number in order.iter().cycle().take(checks) {
                        black_box(rival.ask(&mut key, *number));
                    }
                    start.elapsed()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).max().unwrap_or_default()
    });
    longest.as_nanos() as f64 / (checks * orders.len()) as f64
}

fn spread(times: &[f64]) -> (f64, f64, f64) {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}
