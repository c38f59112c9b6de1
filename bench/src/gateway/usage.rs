//! What processes use: CPU time and memory, as the system counts them.

use std::fs::read_to_string;

/// A process and those that it has started.
pub(super) struct Family(Vec<u32>);

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cpu {
    /// All of it, to the nanosecond.
    pub(super) all: f64,
    /// That in user space, and both together: in hundredths of a second, good for the share only.
    user: f64,
    both: f64,
}

impl Cpu {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            all: self.all - before.all,
            user: self.user - before.user,
            both: self.both - before.both,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            user: self.user + other.user,
            both: self.both + other.both,
        }
    }

    /// The part that was spent in user space.
    pub(super) fn user_share(self) -> f64 {
        if self.both > 0.0 { self.user / self.both } else { 0.0 }
    }
}

impl Family {
    /// Those that there are now.
    pub(super) fn of(id: u32) -> Self {
        let mut all = vec![id];
        let entries = std::fs::read_dir("/proc").expect("a system with /proc");
        let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        all.extend(
            ids.filter(|other| fields(*other).get(1).is_some_and(|it| *it == f64::from(id))),
        );
        Self(all)
    }

    /// What they have used until now.
    pub(super) fn cpu(&self) -> Cpu {
        let mut cpu = Cpu::default();
        for id in &self.0 {
            let tasks =
                std::fs::read_dir(format!("/proc/{id}/task")).expect("the process is there");
            for task in tasks.flatten() {
                // A thread that ends meanwhile is one that does nothing for requests.
                let text = read_to_string(task.path().join("schedstat")).unwrap_or_default();
                let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
                cpu.all += ns.unwrap_or(0.0) / 1e9;
            }
            let fields = fields(*id);
            let ticks = |at: usize| fields.get(at).copied().unwrap_or(0.0) / 100.0;
            cpu.user += ticks(11);
            cpu.both += ticks(11) + ticks(12);
        }
        cpu
    }

    /// Their memory in MB; what several share is counted once (PSS).
    pub(super) fn memory_mb(&self) -> f64 {
        let pss = |id: &u32| {
            let text = read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        self.0.iter().filter_map(pss).sum::<f64>() * 1024.0 / 1e6
    }
}

/// What `/proc/ID/stat` has behind the name; a letter counts as 0.
fn fields(id: u32) -> Vec<f64> {
    let stat = read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(") ") else { return Vec::new() };
    rest.split(' ').map(|field| field.trim().parse().unwrap_or(0.0)).collect()
}

/// What the whole machine has done since, and how much of it somebody else.
pub(super) struct Others {
    busy: f64,
    ours: f64,
    all: f64,
}

impl Others {
    pub(super) fn now() -> Self {
        let stat = read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).take(8).filter_map(|it| it.parse().ok()).collect();
        let all: f64 = ticks.iter().sum();
        // Idle, and waiting for disks.
        let idle: f64 = ticks.iter().skip(3).take(2).sum();
        // This process and all that it has started and waited for.
        let ours = fields(std::process::id()).iter().skip(11).take(4).sum();
        Self { busy: all - idle, ours, all }
    }

    /// The share of the machine that others took since then. Children have to have ended.
    pub(super) fn share_since(&self, before: &Self) -> f64 {
        let (busy, ours) = (self.busy - before.busy, self.ours - before.ours);
        ((busy - ours) / (self.all - before.all).max(1.0)).max(0.0)
    }
}
