//! A cluster: three masters, slots that move, masters that fail.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::support::*;
use crate::client::{Client, ClientError, ClientOptions, Reply};

/// Masters that share the slots in thirds, and replicas of them.
struct Cluster {
    masters: Vec<Server>,
    replicas: Vec<Server>,
}

impl Cluster {
    fn start(replicas: bool) -> Self {
        let args = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let start = |count| (0..count).map(|_| Server::start(&args)).collect::<Vec<_>>();
        let cluster = Self { masters: start(3), replicas: start(if replicas { 3 } else { 0 }) };
        for (n, master) in cluster.masters.iter().enumerate() {
            let (first, last) = (n * 16_384 / 3, (n + 1) * 16_384 / 3 - 1);
            let words = ["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()];
            assert_eq!(master.ask(&words), bulk("OK"));
            let words = ["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()];
            assert_eq!(master.ask(&words), bulk("OK"));
        }
        for server in cluster.all().skip(1) {
            let port = server.port.to_string();
            let meet = ["CLUSTER", "MEET", "127.0.0.1", &port];
            assert_eq!(cluster.masters[0].ask(&meet), bulk("OK"));
        }
        let count = cluster.all().count();
        cluster.settle(&format!("cluster_known_nodes:{count}"));
        for (replica, master) in cluster.replicas.iter().zip(&cluster.masters) {
            let replicate = ["CLUSTER", "REPLICATE", &id(master)];
            until("it is a replica", || replica.ask(&replicate) == bulk("OK"));
            until("it is in step", || {
                let info = replica.ask(&["INFO", "replication"]);
                format!("{info:?}").contains("master_link_status:up")
            });
        }
        cluster.settle("cluster_state:ok");
        cluster
    }

    fn all(&self) -> impl Iterator<Item = &Server> {
        self.masters.iter().chain(&self.replicas)
    }

    /// Waits until all nodes say so.
    fn settle(&self, what: &str) {
        for server in self.all() {
            until(what, || format!("{:?}", server.ask(&["CLUSTER", "INFO"])).contains(what));
        }
    }

    fn url(&self) -> String {
        // The first is not there.
        format!("redis+cluster://127.0.0.1:1,127.0.0.1:{}", self.masters[1].port)
    }

    /// From now on new keys of the slot are the second's.
    fn begin_move(&self, slot: u16, from: &Server, to: &Server) {
        let slot = slot.to_string();
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)];
        assert_eq!(to.ask(&importing), bulk("OK"));
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)];
        assert_eq!(from.ask(&migrating), bulk("OK"));
    }

    fn end_move(&self, slot: u16, to: &Server) {
        let (slot, id) = (slot.to_string(), id(to));
        let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &id];
        assert_eq!(to.ask(&words), bulk("OK"));
        for server in &self.masters {
            assert_eq!(server.ask(&words), bulk("OK"));
        }
    }
}

fn id(server: &Server) -> String {
    match server.ask(&["CLUSTER", "MYID"]) {
        Ok(Reply::Bulk(id)) => String::from_utf8(id.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn migrate(from: &Server, to: &Server, key: &str) {
    let port = to.port.to_string();
    let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
    assert_eq!(from.ask(&words), bulk("OK"), "{key}");
}

fn options_here() -> ClientOptions {
    let mut options = options();
    options.deadline = Duration::from_millis(500);
    options
}

/// What a client thinks.
fn owner(client: &Client, slot: u16) -> String {
    let (_, view) = client.view();
    view.master_of(slot).map_or_else(String::new, |index| view.masters[index].address.to_string())
}

fn sum_of_calls(cluster: &Cluster, what: &str) -> u64 {
    cluster.all().map(|server| server.calls(what)).sum()
}

#[tokio::test]
async fn every_slot_is_asked_of_its_master() {
    let cluster = Cluster::start(true);
    let (client, stats) = open(&cluster.url(), options_here());
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    assert!(client.is_cluster());
    let mut all = JoinSet::new();
    for slot in (0..16_384).step_by(16) {
        let client = Arc::clone(&client);
        all.spawn(async move {
            let text = slot.to_string();
            assert_eq!(client.run(eval(&key_of(slot), &text)).await, bulk(&text));
        });
    }
    while let Some(result) = all.join_next().await {
        result.unwrap();
    }
    let masters = client.masters();
    assert_eq!(masters.len(), 3);
    for master in &masters {
        assert_eq!(client.run_at(master, &command(&["PING"]).bytes).await, bulk("PONG"));
    }
    assert_eq!(stats.connections.get(), 3);
    assert_eq!(stats.scripts_loaded.get(), 3);
    // Replicas get what masters send them and nothing else.
    let keys: Vec<_> = cluster.masters.iter().map(|server| server.ask(&["DBSIZE"])).collect();
    let Ok(sum) = keys
        .into_iter()
        .map(|n| match n {
            Ok(Reply::Integer(n)) => Ok(n),
            other => Err(other),
        })
        .sum::<Result<i64, _>>()
    else {
        panic!("no sizes")
    };
    assert_eq!(sum, 1_024 + 3);
    for replica in &cluster.replicas {
        assert_eq!(replica.calls("evalsha"), 0);
    }
}

#[tokio::test]
async fn a_slot_that_moves_is_followed_at_each_step() {
    let cluster = Cluster::start(false);
    let (client, _) = open(&cluster.url(), options_here());
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    let slot = 77;
    let (from, to) = (&cluster.masters[0], &cluster.masters[2]);
    let key = |n: u32| format!("{}{n}", key_of(slot));
    for n in 0..10 {
        assert_eq!(client.run(eval(&key(n), "x")).await, bulk("x"));
    }
    cluster.begin_move(slot, from, to);
    for n in 0..5 {
        migrate(from, to, &key(n));
    }
    // Those that are there, those that are not any more, and one that never was. The new owner
    // does not know the script yet: it was never asked, but by probes.
    assert_eq!(to.ask(&["SCRIPT", "FLUSH"]), bulk("OK"));
    for n in 0..11 {
        let text = n.to_string();
        assert_eq!(client.run(eval(&key(n), &text)).await, bulk(&text));
    }
    assert_eq!(owner(&client, slot), format!("127.0.0.1:{}", from.port));
    // Keys of both sides in one command: nobody can answer that before the move is over.
    let both = client.run(command(&["EXISTS", &key(0), &key(9)])).await;
    assert!(
        matches!(&both, Err(ClientError::Reply(text)) if text.starts_with("TRYAGAIN")),
        "{both:?}"
    );
    for n in 5..10 {
        migrate(from, to, &key(n));
    }
    cluster.end_move(slot, to);
    assert_eq!(client.run(eval(&key(0), "moved")).await, bulk("moved"));
    assert_eq!(owner(&client, slot), format!("127.0.0.1:{}", to.port));
    let both = client.run(command(&["EXISTS", &key(0), &key(9)])).await;
    assert_eq!(both, Ok(Reply::Integer(2)));
    // Every command was executed once: two each, but that the last is new and the first had three.
    for (n, count) in (0..11).map(|n| {
        (
            n,
            if n == 0 {
                "3"
            } else if n == 10 {
                "1"
            } else {
                "2"
            },
        )
    }) {
        assert_eq!(client.run(command(&["GET", &key(n)])).await, bulk(count), "{n}");
    }
}

#[tokio::test]
async fn commands_in_flight_find_slots_that_move_all_the_time() {
    let cluster = Cluster::start(false);
    let (client, stats) = open(&cluster.url(), options_here());
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    let slot = 5;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut all = JoinSet::new();
    for task in 0..8 {
        let (client, done) = (Arc::clone(&client), Arc::clone(&done));
        all.spawn(async move {
            let key = format!("{}{task}", key_of(slot));
            let mut count = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(client.run(eval(&key, "x")).await, bulk("x"));
                count += 1;
            }
            (key, count)
        });
    }
    let moves = tokio::task::spawn_blocking(move || {
        for round in 0..6 {
            let (from, to) = (&cluster.masters[round % 3], &cluster.masters[(round + 1) % 3]);
            cluster.begin_move(slot, from, to);
            let slot_text = slot.to_string();
            while let Ok(Reply::Array(keys)) =
                from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot_text, "100"])
                && !keys.is_empty()
            {
                for key in keys {
                    let Reply::Bulk(key) = key else { panic!("no key") };
                    migrate(from, to, std::str::from_utf8(&key).unwrap());
                }
            }
            cluster.end_move(slot, to);
        }
        cluster
    });
    let _cluster = moves.await.unwrap();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut sum = 0;
    while let Some(result) = all.join_next().await {
        let (key, count) = result.unwrap();
        assert_eq!(client.run(command(&["GET", &key])).await, bulk(&count.to_string()));
        sum += count;
    }
    assert!(sum > 100, "{sum}");
    assert_eq!((stats.breakers_opened.get(), stats.in_flight.get()), (0, 0));
}

#[tokio::test]
async fn the_failure_of_a_master_is_of_its_slots_only_until_another_takes_them() {
    let mut cluster = Cluster::start(true);
    let (client, stats) = open(&cluster.url(), options_here());
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    let (slot, other) = (3, 16_000);
    let (key, other_key) = (key_of(slot), key_of(other));
    assert_eq!(client.run(eval(&key, "x")).await, bulk("x"));
    cluster.masters[0].kill();
    until_async("it is noticed", async || {
        let reply = client.run(eval(&key, "x")).await;
        assert!(matches!(reply, Err(ClientError::Down | ClientError::Lost(_))), "{reply:?}");
        stats.breakers_open.get() == 1
    })
    .await;
    assert_eq!(client.run(eval(&other_key, "y")).await, bulk("y"));
    until_async("the replica takes over", async || client.run(eval(&key, "z")).await == bulk("z"))
        .await;
    assert_eq!(owner(&client, slot), format!("127.0.0.1:{}", cluster.replicas[0].port));
    assert_eq!((stats.breakers_open.get(), client.why_down()), (0, None));
    assert_eq!(client.run(eval(&other_key, "y")).await, bulk("y"));
    assert!(cluster.replicas[0].calls("evalsha") >= 1);
    // The old one comes back as a replica, and nothing changes.
    cluster.masters[0].start_again();
    cluster.settle("cluster_state:ok");
    assert_eq!(client.run(eval(&key, "z")).await, bulk("z"));
}

#[tokio::test]
async fn what_is_wrong_with_a_cluster_is_said() {
    let server = Server::start(&[]);
    let (client, _) = open(&format!("redis+cluster://127.0.0.1:{}", server.port), options_here());
    assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
    until_async("it is said what is wrong", async || {
        client.why_down().is_some_and(|text| text.contains("cluster support disabled"))
    })
    .await;
    // The other way round: one who does not know that it is a cluster is told so.
    let cluster = Cluster::start(false);
    let (client, _) = open(&cluster.masters[0].url(), options_here());
    let reply = client.run(eval(&key_of(16_000), "x")).await;
    assert!(
        matches!(&reply, Err(ClientError::Reply(text)) if text.starts_with("MOVED")),
        "{reply:?}"
    );
    assert_eq!(sum_of_calls(&cluster, "asking"), 0);
}
