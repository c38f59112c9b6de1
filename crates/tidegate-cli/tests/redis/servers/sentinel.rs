//! A master with a replica, and Sentinels that watch over them.

use std::fs;
use std::time::Duration;

use super::{Redis, Reply, Talk, free_port, wait_for};

/// The name that the Sentinels know the master by.
pub(crate) const NAME: &str = "tide";

/// A master, a replica and three Sentinels.
pub(crate) struct Sentinels {
    pub(crate) master: Redis,
    pub(crate) replica: Redis,
    pub(crate) sentinels: Vec<Redis>,
}

impl Sentinels {
    pub(crate) fn start(settings: &[&str]) -> Self {
        let master = Redis::start(settings);
        let port = master.port.to_string();
        let of = ["--replicaof", "127.0.0.1", &port];
        let replica = Redis::start(&[settings, &of].concat());
        wait_for("the replica follows", || {
            let info = replica.ask(&["INFO", "replication"]);
            info.text().contains("master_link_status:up").then_some(())
        });
        // One is quicker than the others, so that no two stand for election at the same time.
        let sentinels = [500, 1_500, 1_500].map(|ms| sentinel(master.port, ms)).into();
        let all = Self { master, replica, sentinels };
        for sentinel in &all.sentinels {
            wait_for("the Sentinels know each other and the replica", || {
                let (others, replicas) =
                    (about(sentinel, "num-other-sentinels"), about(sentinel, "num-slaves"));
                (others == "2" && replicas == "1").then_some(())
            });
        }
        all
    }

    /// As a store's URL.
    pub(crate) fn url(&self) -> String {
        let addresses: Vec<_> =
            self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Waits until the replica is the master.
    pub(crate) fn wait_for_failover(&self) {
        wait_for("the replica takes over", || {
            let mut talk = Talk::connect(self.replica.port, Duration::from_secs(1)).ok()?;
            let Ok(Reply::List(role)) = talk.ask(&["ROLE"]) else { return None };
            (role[0].text() == "master").then_some(())
        });
    }
}

/// One that believes in the end of a master after so long, and asks the others for their votes.
fn sentinel(master: u16, down_after_ms: u32) -> Redis {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sentinel.conf");
    let text = format!(
        "bind 127.0.0.1\n\
         sentinel monitor {NAME} 127.0.0.1 {master} 1\n\
         sentinel down-after-milliseconds {NAME} {down_after_ms}\n\
         sentinel failover-timeout {NAME} 1000\n"
    );
    fs::write(&file, text).unwrap();
    let arguments = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
    let sentinel = Redis::run("redis-server".to_owned(), free_port(), arguments, folder);
    // Whatever it does every few seconds, it does ten times as often.
    let often = ["INFO-PERIOD", "500", "PUBLISH-PERIOD", "200", "PING-PERIOD", "100"];
    let often =
        [&["SENTINEL", "DEBUG"], &often[..], &["ASK-PERIOD", "100", "ELECTION-TIMEOUT", "1000"]]
            .concat();
    sentinel.ask(&often);
    sentinel
}

/// What a Sentinel knows about the master.
fn about(sentinel: &Redis, field: &str) -> String {
    let all = sentinel.ask(&["SENTINEL", "MASTER", NAME]);
    let mut pairs = all.list().chunks(2);
    let found = pairs.find(|pair| pair[0].text() == field);
    found.map_or_else(String::new, |pair| pair[1].text().to_owned())
}
