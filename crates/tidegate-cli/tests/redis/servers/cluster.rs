//! A cluster: masters that share the slots, each with a replica if that is asked for.

use std::time::Duration;

use super::{Maker, Redis, Reply, Talk, free_port, wait_for};

/// A running cluster.
pub(crate) struct Cluster {
    pub(crate) masters: Vec<Redis>,
    /// The replica of each master, if there are any.
    pub(crate) replicas: Vec<Redis>,
}

const SLOTS: usize = 16_384;

impl Cluster {
    /// Three masters.
    pub(crate) fn start() -> Self {
        Self::with(&[], false)
    }

    /// Three masters with a replica each, of which one takes over soon after its master is gone.
    pub(crate) fn with_replicas(settings: &[&str]) -> Self {
        Self::with(settings, true)
    }

    fn with(settings: &[&str], replicated: bool) -> Self {
        let masters: Vec<Redis> = (0..3).map(|_| node(settings)).collect();
        for (index, master) in masters.iter().enumerate() {
            let first = SLOTS * index / masters.len();
            let last = SLOTS * (index + 1) / masters.len() - 1;
            master.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            master.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        let replicas: Vec<Redis> =
            masters.iter().filter(|_| replicated).map(|_| node(settings)).collect();
        for other in masters[1..].iter().chain(&replicas) {
            meet(&masters[0], other);
        }
        let cluster = Self { masters, replicas };
        let count = cluster.masters.len() + cluster.replicas.len();
        for node in cluster.nodes() {
            wait_for("every node knows every other", || {
                (known(node) == count && state(node) == "ok").then_some(())
            });
        }
        for (master, replica) in cluster.masters.iter().zip(&cluster.replicas) {
            let id = master.ask(&["CLUSTER", "MYID"]);
            replica.ask(&["CLUSTER", "REPLICATE", id.text()]);
        }
        for replica in &cluster.replicas {
            wait_for("the replica follows", || {
                let info = replica.ask(&["INFO", "replication"]);
                info.text().contains("master_link_status:up").then_some(())
            });
        }
        cluster
    }

    /// As a store's URL.
    pub(crate) fn url(&self) -> String {
        let addresses: Vec<_> =
            self.nodes().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    fn nodes(&self) -> impl Iterator<Item = &Redis> {
        self.masters.iter().chain(&self.replicas)
    }

    /// Waits until the replica of a master has taken over.
    pub(crate) fn wait_for_failover(&self, index: usize) {
        let replica = &self.replicas[index];
        wait_for("the replica takes over", || {
            let mut talk = Talk::connect(replica.port, Duration::from_secs(1)).ok()?;
            let Ok(Reply::List(role)) = talk.ask(&["ROLE"]) else { return None };
            (role[0].text() == "master" && state(replica) == "ok").then_some(())
        });
    }
}

fn node(settings: &[&str]) -> Redis {
    let bus = free_port().to_string();
    let own =
        ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", &bus];
    Redis::made_by(Maker::Redis, &[&own, settings].concat())
}

fn meet(one: &Redis, other: &Redis) {
    let port = other.port.to_string();
    let bus = other.ask(&["CONFIG", "GET", "cluster-port"]);
    one.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, bus.list()[1].text()]);
}

fn field(node: &Redis, name: &str) -> String {
    let info = node.ask(&["CLUSTER", "INFO"]);
    let start = format!("{name}:");
    let line = info.text().lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_default().trim().to_owned()
}

fn state(node: &Redis) -> String {
    field(node, "cluster_state")
}

fn known(node: &Redis) -> usize {
    field(node, "cluster_known_nodes").parse().unwrap_or(0)
}
