//! A master and a replica, and a Sentinel that swaps them.

use std::time::Duration;

use super::support::*;
use crate::client::{ClientError, Reply};

struct Pair {
    master: Server,
    replica: Server,
    sentinel: Server,
}

/// All with the same password; the Sentinel asks for another one.
fn pair(down_after_ms: u32) -> Pair {
    let auth = ["--requirepass", "pw", "--masterauth", "pw", "--repl-diskless-sync-delay", "0"];
    let master = Server::start(&auth);
    let port = master.port;
    let of = port.to_string();
    let replica = Server::start(&[&auth[..], &["--replicaof", "127.0.0.1", &of]].concat());
    until("the replica is in step", || {
        let info = replica.ask_as("pw", &["INFO", "replication"]);
        format!("{info:?}").contains("master_link_status:up")
    });
    let sentinel = Server::sentinel(&format!(
        "sentinel monitor main 127.0.0.1 {port} 1\n\
         sentinel auth-pass main pw\n\
         sentinel down-after-milliseconds main {down_after_ms}\n\
         sentinel failover-timeout main 2000\n\
         requirepass watch\n"
    ));
    until("the Sentinel knows the replica", || {
        let list = sentinel.ask_as("watch", &["SENTINEL", "REPLICAS", "main"]);
        matches!(list, Ok(Reply::Array(all)) if all.len() == 1
            && format!("{all:?}").contains(&replica.port.to_string()))
    });
    Pair { master, replica, sentinel }
}

impl Pair {
    fn url(&self) -> String {
        // The first of the two Sentinels is not there.
        format!("redis+sentinel://:pw@127.0.0.1:{},127.0.0.1:{}/main/3", 1, self.sentinel.port)
    }
}

fn options_here() -> crate::client::ClientOptions {
    let mut options = options();
    options.sentinel_password = Some("watch".to_owned());
    options.deadline = Duration::from_millis(500);
    options
}

#[tokio::test]
async fn a_crash_of_the_master_is_followed() {
    let mut pair = pair(300);
    let (client, stats) = open(&pair.url(), options_here());
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    assert!(!client.is_cluster());
    assert_eq!(client.run(eval("k", "x")).await, bulk("x"));
    until("the replica has it", || {
        format!("{:?}", pair.replica.ask_as("pw", &["INFO", "keyspace"])).contains("db3:keys=")
    });
    pair.master.kill();
    until_async("the new master is found", async || {
        let reply = client.run(eval("k", "y")).await;
        assert!(!matches!(&reply, Err(ClientError::Reply(_))), "{reply:?}");
        reply == bulk("y")
    })
    .await;
    assert!(pair.replica.calls_as("pw", "evalsha") >= 1);
    assert_eq!((stats.breakers_open.get(), client.why_down()), (0, None));
    // The old one comes back and is made a replica: nobody asks it.
    pair.master.start_again();
    for n in 0..20 {
        let text = n.to_string();
        assert_eq!(client.run(eval("k", &text)).await, bulk(&text));
    }
    assert_eq!(pair.master.calls_as("pw", "evalsha"), 0);
}

#[tokio::test]
async fn a_planned_change_is_followed() {
    let pair = pair(2_000);
    let (client, _) = open(&pair.url(), options_here());
    assert!(client.wait_ready(LONG).await, "{:?}", client.why_down());
    assert_eq!(client.run(eval("k", "x")).await, bulk("x"));
    // It has to hear from the replica first.
    until("the Sentinel begins", || {
        pair.sentinel.ask_as("watch", &["SENTINEL", "FAILOVER", "main"]) == bulk("OK")
    });
    let before = pair.replica.calls_as("pw", "evalsha");
    until_async("the new master is used", async || {
        let _ = client.run(eval("k", "y")).await;
        pair.replica.calls_as("pw", "evalsha") > before && client.run(eval("k", "z")).await.is_ok()
    })
    .await;
    let view = client.view().1;
    assert_eq!(view.masters[0].address.to_string(), format!("127.0.0.1:{}", pair.replica.port));
}

#[tokio::test]
async fn what_is_wrong_with_sentinels_is_said() {
    let pair = pair(2_000);
    let port = pair.sentinel.port;
    for (url, password, why) in [
        (
            format!("redis+sentinel://:pw@127.0.0.1:{port}/other"),
            "watch",
            "no master called `other`",
        ),
        (format!("redis+sentinel://:pw@127.0.0.1:{port}/main"), "wrong", "WRONGPASS"),
        (format!("redis+sentinel://:no@127.0.0.1:{port}/main"), "watch", "does not accept user"),
        (format!("redis+sentinel://:pw@127.0.0.1:{}/main", 1), "watch", "refused"),
    ] {
        let mut options = options_here();
        options.sentinel_password = Some(password.to_owned());
        let (client, _) = open(&url, options);
        assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
        assert!(client.masters().is_empty());
        until_async("it is said what is wrong", async || {
            client.why_down().is_some_and(|text| text.contains(why))
        })
        .await;
    }
}
