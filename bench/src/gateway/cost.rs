//! What a request costs a proxy, beside nginx and beside itself without limits.
//!
//! A second of one, a second of the other, in turns and in alternating order: the ratio of two
//! neighbours says more than that of two averages on a machine that others use as well.

use super::client::{Target, saturate};
use super::servers::{
    Case, Setting, bare, floor_proxy, haproxy_proxy, nginx_proxy, nginx_saying_all, tidegate_proxy,
    upstream,
};
use super::spread::Spread;
use super::usage::{Cpu, Family};
use super::wrk::{self, CONNECTIONS, Seen};
use super::{ONE_RUN, Plan};
use crate::service::child::Child;

/// A proxy that runs, and what was measured of it.
struct Rival {
    name: &'static str,
    child: Child,
    family: Family,
    runs: Vec<Run>,
    /// CPU per request as a ratio to that of the neighbour.
    ratios: Vec<f64>,
}

/// What one load did.
#[derive(Clone, Copy, Debug)]
struct Run {
    seen: Seen,
    cpu: Cpu,
}

impl Run {
    /// Microseconds per request are seconds per million.
    fn cpu_us(&self) -> f64 {
        self.cpu.all * 1e6 / self.seen.requests
    }
}

impl Rival {
    /// A proxy that has shown that it does what it is there for.
    fn new(name: &'static str, case: Case, child: Child) -> Self {
        let target = Target {
            address: child.address.clone(),
            path: "/".to_owned(),
            connections: CONNECTIONS,
        };
        let answers = &saturate(&[target], std::time::Duration::from_millis(200))[0];
        let is_right = match case {
            Case::Refused => !answers.refused.is_empty() && !answers.admitted.is_empty(),
            _ => answers.refused.is_empty() && !answers.admitted.is_empty(),
        };
        assert!(
            is_right,
            "{name}, {}: {} admitted and {} refused",
            case.name(),
            answers.admitted.len(),
            answers.refused.len()
        );
        let family = Family::of(child.id());
        Self { name, child, family, runs: Vec::new(), ratios: Vec::new() }
    }

    fn run(&mut self, setting: Setting) -> f64 {
        let before = self.family.cpu();
        let seen = wrk::load(setting, &self.child.address, ONE_RUN);
        let run = Run { seen, cpu: self.family.cpu().since(before) };
        self.runs.push(run);
        run.cpu_us()
    }

    fn spread(&self, of: impl Fn(&Run) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(of))
    }
}

/// Everybody beside nginx, in all settings.
pub(super) fn run(plan: &Plan) {
    for setting in plan.settings {
        let upstream = upstream(*setting);
        let mut tables: Vec<(Case, Rival, Vec<Rival>)> = plan
            .cases
            .iter()
            .map(|case| {
                let address = &upstream.address;
                let base = Rival::new("nginx", *case, nginx_proxy(*setting, *case, address));
                (*case, base, rivals(*setting, *case, address))
            })
            .collect();
        for round in 0..plan.rounds {
            for (_, base, rivals) in &mut tables {
                take_turns(*setting, base, rivals, round);
            }
        }
        for (case, base, rivals) in &tables {
            print(&format!("Proxies with {}, {}", case.name(), setting.name()), base, rivals);
        }
    }
}

fn rivals(setting: Setting, case: Case, upstream: &str) -> Vec<Rival> {
    let mut rivals = vec![Rival::new("tidegate", case, tidegate_proxy(setting, case, upstream))];
    if let Some(child) = haproxy_proxy(setting, case, upstream) {
        rivals.push(Rival::new("haproxy", case, child));
    }
    // Where the gap comes from is asked where times are steadiest.
    if setting == Setting::ONE_CORE {
        let saying = nginx_saying_all(setting, case, upstream);
        rivals.push(Rival::new("nginx that says as much", case, saying));
        rivals.push(Rival::new("hyper alone", case, floor_proxy(setting, case, upstream)));
    }
    if case == Case::NoLimit {
        rivals.push(Rival::new("bare hyper", case, bare(setting, upstream)));
    }
    rivals
}

/// Each of them right before or right after a run of the base; the other way round next time.
fn take_turns(setting: Setting, base: &mut Rival, rivals: &mut [Rival], round: usize) {
    for first in (0..rivals.len()).step_by(2) {
        // Two rivals share a neighbour.
        let mut order = vec![Some(first), None];
        order.extend((first + 1 < rivals.len()).then_some(Some(first + 1)));
        if round % 2 == 1 {
            order.reverse();
        }
        let mut neighbour = 0.0;
        let mut costs = Vec::new();
        for who in order {
            match who {
                None => neighbour = base.run(setting),
                Some(at) => costs.push((at, rivals[at].run(setting))),
            }
        }
        for (at, cost) in costs {
            rivals[at].ratios.push(cost / neighbour);
        }
    }
}

fn print(title: &str, base: &Rival, rivals: &[Rival]) {
    println!("\n### {title}\n");
    println!(
        "| server | CPU seconds per million | of it user | ratio [quartiles] | requests per second \
         | p50 | p99 | refused | memory |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for rival in std::iter::once(base).chain(rivals) {
        let cpu = rival.spread(Run::cpu_us);
        let all = rival.runs.iter().fold(Cpu::default(), |sum, run| sum.plus(run.cpu));
        let ratio = match rival.ratios.is_empty() {
            true => "1".to_owned(),
            false => {
                let ratio = Spread::of(rival.ratios.iter().copied());
                format!("**{:.2}x** [{:.2}-{:.2}]", ratio.middle, ratio.low, ratio.high)
            }
        };
        println!(
            "| {} | {:.2} [{:.2}-{:.2}] | {:.1} | {ratio} | {:.0} | {:.0} us | {:.0} us | {:.1} % | {:.1} MB |",
            rival.name,
            cpu.middle,
            cpu.low,
            cpu.high,
            cpu.middle * all.user_share(),
            rival.spread(|run| run.seen.per_second).middle,
            rival.spread(|run| run.seen.p50_us).middle,
            rival.spread(|run| run.seen.p99_us).middle,
            rival.spread(|run| run.seen.refused * 100.0 / run.seen.requests).middle,
            rival.family.memory_mb(),
        );
    }
}

/// Our gateway with a limit beside the same without one.
pub(super) fn limits(plan: &Plan) {
    for setting in plan.limits_settings {
        let upstream = upstream(*setting);
        let ours = |case: Case| {
            Rival::new(case.name(), case, tidegate_proxy(*setting, case, &upstream.address))
        };
        let mut base = ours(Case::NoLimit);
        let mut rivals = [ours(Case::Allowed), ours(Case::Untold)];
        for round in 0..plan.limits_rounds {
            take_turns(*setting, &mut base, &mut rivals, round);
        }
        print(&format!("tidegate with and without limits, {}", setting.name()), &base, &rivals);
    }
}
