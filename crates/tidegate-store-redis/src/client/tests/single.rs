//! One server: order, deadlines, bounds, crashes, scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::support::*;
use crate::client::{COMMANDS, Client, ClientError, Reply};

#[tokio::test]
async fn commands_are_answered() {
    let server = Server::start(&[]);
    let (client, stats) = open(&server.url(), options());
    assert!(client.wait_ready(LONG).await);
    assert!(!client.is_cluster());
    assert_eq!(client.run(command(&["SET", "k", "v"])).await, bulk("OK"));
    assert_eq!(client.run(command(&["GET", "k"])).await, bulk("v"));
    assert_eq!(client.run(command(&["GET", "none"])).await, Ok(Reply::Null));
    assert_eq!(client.run(command(&["INCR", "n"])).await, Ok(Reply::Integer(1)));
    let wrong = client.run(command(&["INCR", "k"])).await;
    assert!(matches!(&wrong, Err(ClientError::Reply(text)) if text.contains("not an integer")));
    let masters = client.masters();
    let [master] = &masters[..] else { panic!("{} masters", masters.len()) };
    assert_eq!(client.run_at(master, &command(&["PING"]).bytes).await, bulk("PONG"));
    let masters = client.masters();
    assert_eq!(client.run_at(&masters[0], &command(&["PING"]).bytes).await, bulk("PONG"));
    assert_eq!(stats.connections.get(), 1);
    assert_eq!(stats.in_flight.get(), 0);
    let list = server.ask(&["CLIENT", "LIST"]);
    assert!(format!("{list:?}").contains("name=tidegate"));
}

#[tokio::test]
async fn many_at_once_keep_their_order_and_share_writes() {
    let server = Server::start(&[]);
    let (client, stats) = open(&server.url(), options());
    assert!(client.wait_ready(LONG).await);
    let mut all = JoinSet::new();
    for task in 0..64 {
        let client = Arc::clone(&client);
        all.spawn(async move {
            for n in 0..100 {
                let text = format!("{task}-{n}");
                // Some give up before the reply: the others are not given what was theirs.
                if n % 7 == 3 {
                    let once = Duration::ZERO;
                    let _ = tokio::time::timeout(once, client.run(eval("k", "given up"))).await;
                }
                assert_eq!(client.run(eval("k", &text)).await, bulk(&text));
            }
        });
    }
    while let Some(result) = all.join_next().await {
        result.unwrap();
    }
    until_async("nothing is in flight", async || stats.in_flight.get() == 0).await;
    let commands = stats.sent.get();
    let reads = server.info("total_reads_processed");
    assert!(reads * 4 < commands, "{commands} commands took {reads} reads");
    assert_eq!((stats.connections.get(), stats.reconnects.get()), (1, 0));
    assert_eq!(stats.scripts_loaded.get(), 1);
}

/// Tasks go from thread to thread, so that commands, connections and those who wait for replies are
/// on different ones: nobody is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_is_forgotten_between_threads() {
    let server = Server::start(&[]);
    let (client, stats) = open(&server.url(), options());
    assert!(client.wait_ready(LONG).await);
    let mut all = JoinSet::new();
    for task in 0..32 {
        let client = Arc::clone(&client);
        all.spawn(async move {
            for n in 0..500 {
                let text = format!("{task}-{n}");
                let run = client.run(eval("k", &text));
                if n % 5 == 0 {
                    let _ = tokio::time::timeout(Duration::from_micros(50), run).await;
                } else {
                    assert_eq!(run.await, bulk(&text));
                }
            }
        });
    }
    while let Some(result) = all.join_next().await {
        result.unwrap();
    }
    until_async("nothing is in flight", async || stats.in_flight.get() == 0).await;
    assert_eq!((stats.breakers_opened.get(), stats.reconnects.get()), (0, 0));
}

#[tokio::test]
async fn a_stopped_server_costs_each_its_deadline_and_no_more() {
    let server = Server::start(&[]);
    let mut options = options();
    options.deadline = Duration::from_millis(20);
    let (client, stats) = open(&server.url(), options);
    assert!(client.wait_ready(LONG).await);
    server.signal("STOP");
    let mut all = JoinSet::new();
    for _ in 0..100 {
        let client = Arc::clone(&client);
        all.spawn(async move {
            let start = Instant::now();
            (client.run(eval("k", "x")).await, start.elapsed())
        });
    }
    let mut late = 0;
    while let Some(result) = all.join_next().await {
        match result.unwrap() {
            (Err(ClientError::Deadline), took) => {
                assert!(took >= Duration::from_millis(20), "{took:?}");
                late += 1;
            }
            // Those who came when it was known by then did not wait.
            (other, _) => assert_eq!(other, Err(ClientError::Down)),
        }
    }
    assert!(late >= 5, "{late}");
    // That many opened the breaker: nobody waits for nothing from now on.
    assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
    assert_eq!(stats.breakers_open.get(), 1);
    assert!(client.why_down().is_some());
    server.signal("CONT");
    until_async("it works again", async || client.run(eval("k", "new")).await == bulk("new")).await;
    assert_eq!(stats.breakers_open.get(), 0);
    // The hundred replies that nobody waits for went to nobody.
    for n in 0..50 {
        let text = n.to_string();
        assert_eq!(client.run(eval("k", &text)).await, bulk(&text));
    }
    assert_eq!(client.why_down(), None);
}

#[tokio::test]
async fn a_link_takes_so_many_and_no_more() {
    let server = Server::start(&[]);
    let mut options = options();
    options.in_flight_max = 10;
    let (client, stats) = open(&server.url(), options);
    assert!(client.wait_ready(LONG).await);
    server.signal("STOP");
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.run(eval("k", "x")).await })
        })
        .collect();
    until_async("all are sent", async || stats.in_flight.get() == 10).await;
    assert_eq!(client.run(eval("k", "y")).await, Err(ClientError::Full));
    server.signal("CONT");
    for task in waiting {
        assert_eq!(task.await.unwrap(), bulk("x"));
    }
    assert_eq!(client.run(eval("k", "y")).await, bulk("y"));
}

#[tokio::test]
async fn what_is_not_sent_in_time_is_never_sent() {
    let mut server = Server::start(&[]);
    // A listener that accepts nobody is as slow as it gets: the greeting is never answered.
    server.kill();
    let listener = std::net::TcpListener::bind(("127.0.0.1", server.port)).unwrap();
    let mut options = options();
    options.deadline = Duration::from_millis(30);
    let (client, stats) = open(&server.url(), options);
    assert_eq!(client.run(eval("unsent", "x")).await, Err(ClientError::Deadline));
    drop(listener);
    server.start_again();
    until_async("it works", async || client.run(eval("k", "x")).await.is_ok()).await;
    assert_eq!(server.ask(&["GET", "unsent"]), Ok(Reply::Null));
    assert_eq!(stats.in_flight.get(), 0);
}

/// What those saw who kept asking.
#[derive(Debug, Default)]
struct Seen {
    good: u64,
    errors: Vec<ClientError>,
}

/// Asks again and again, until told otherwise.
async fn load(client: Arc<Client>, end: Arc<AtomicBool>) -> Seen {
    let mut seen = Seen::default();
    while !end.load(Ordering::Relaxed) {
        match client.run(eval("k", "x")).await {
            Ok(_) => seen.good += 1,
            Err(error) => {
                if !seen.errors.contains(&error) && seen.errors.len() < 10 {
                    seen.errors.push(error);
                }
                tokio::task::yield_now().await;
            }
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_under_load_is_noticed_at_once_and_so_is_the_return() {
    let mut server = Server::start(&[]);
    let mut options = options();
    options.deadline = Duration::from_millis(50);
    let (client, stats) = open(&server.url(), options);
    assert!(client.wait_ready(LONG).await);
    let end = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> =
        (0..16).map(|_| tokio::spawn(load(Arc::clone(&client), Arc::clone(&end)))).collect();
    until_async("there is load", async || stats.sent.get() > 2_000).await;
    server.kill();
    // How long it takes is what `tools/faults` looks at.
    until_async("the breaker is open", async || stats.breakers_open.get() == 1).await;
    server.start_again();
    until_async("it works", async || client.run(eval("k", "y")).await == bulk("y")).await;
    let sent = stats.sent.get();
    until_async("there is load again", async || stats.sent.get() > sent + 2_000).await;
    end.store(true, Ordering::Relaxed);
    for task in tasks {
        let seen = task.await.unwrap();
        assert!(seen.good > 0, "{seen:?}");
        assert!(seen.errors.contains(&ClientError::Down), "{seen:?}");
        let replies = seen.errors.iter().filter(|error| matches!(error, ClientError::Reply(_)));
        assert_eq!(replies.count(), 0, "{seen:?}");
    }
    assert_eq!(stats.breakers_open.get(), 0);
    assert!(stats.reconnects.get() >= 1);
    assert!(stats.breakers_opened.get() >= 1);
    // The probe brought the script along before anybody asked.
    assert!(stats.scripts_loaded.get() >= 2);
}

#[tokio::test]
async fn a_lost_script_is_loaded_once_for_all() {
    let server = Server::start(&[]);
    let (client, stats) = open(&server.url(), options());
    assert!(client.wait_ready(LONG).await);
    for round in 2..5 {
        assert_eq!(server.ask(&["SCRIPT", "FLUSH"]), bulk("OK"));
        let mut all = JoinSet::new();
        for n in 0..200 {
            let client = Arc::clone(&client);
            let text = n.to_string();
            all.spawn(async move { assert_eq!(client.run(eval("k", &text)).await, bulk(&text)) });
        }
        while let Some(result) = all.join_next().await {
            result.unwrap();
        }
        assert_eq!(stats.scripts_loaded.get(), round);
    }
    // The first of all was that of `wait_ready`; nothing was counted twice.
    assert_eq!(server.ask(&["GET", "k"]), bulk("600"));
}

#[tokio::test]
async fn a_server_that_comes_later_is_found() {
    let port = free_port();
    let (client, stats) = open(&format!("redis://127.0.0.1:{port}"), options());
    let start = Instant::now();
    assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
    assert!(start.elapsed() < Duration::from_millis(500));
    assert!(!client.wait_ready(Duration::from_millis(100)).await);
    assert_eq!(stats.breakers_open.get(), 1);
    let why = client.why_down().unwrap();
    assert!(why.contains(&port.to_string()) && why.contains("refused"), "{why}");
    let _server = Server::start_on(port, &[]);
    assert!(client.wait_ready(LONG).await);
    assert_eq!(client.run(eval("k", "x")).await, bulk("x"));
}

#[tokio::test]
async fn a_connection_that_ends_idle_is_made_again_without_ado() {
    let server = Server::start(&[]);
    let (client, stats) = open(&server.url(), options());
    assert!(client.wait_ready(LONG).await);
    assert_eq!(server.ask(&["CLIENT", "KILL", "TYPE", "normal"]), Ok(Reply::Integer(1)));
    until_async("it is gone", async || stats.connections.get() == 0).await;
    assert_eq!(client.run(eval("k", "x")).await, bulk("x"));
    assert_eq!((stats.reconnects.get(), stats.breakers_opened.get()), (1, 0));
}

#[tokio::test]
async fn a_silent_connection_is_dropped() {
    let server = Server::start(&[]);
    let mut options = options();
    options.deadline = Duration::from_millis(20);
    let (client, stats) = open(&server.url(), options);
    assert!(client.wait_ready(LONG).await);
    server.signal("STOP");
    assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Deadline));
    until_async("it is dropped", async || stats.connections.get() == 0).await;
    assert_eq!((stats.in_flight.get(), stats.breakers_open.get()), (0, 1));
    server.signal("CONT");
    until_async("it works again", async || client.run(eval("k", "y")).await == bulk("y")).await;
}

#[tokio::test]
async fn errors_that_say_that_it_does_not_work_open_the_breaker() {
    let server = Server::start(&[]);
    let master = Server::start(&[]);
    let (client, stats) = open(&server.url(), options());
    assert!(client.wait_ready(LONG).await);
    // A full memory.
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let full = client.run(eval("k", "x")).await;
    assert!(matches!(&full, Err(ClientError::Reply(text)) if text.starts_with("OOM")), "{full:?}");
    assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    until_async("there is room", async || client.run(eval("k", "x")).await == bulk("x")).await;
    assert_eq!(stats.reconnects.get(), 0);
    // It has become a replica: everybody connects anew.
    server.ask(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]).unwrap();
    until_async("it is read-only", async || {
        let reply = client.run(eval("k", "x")).await;
        matches!(reply, Err(ClientError::Reply(text)) if text.starts_with("READONLY"))
    })
    .await;
    assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
    server.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    until_async("it is master", async || client.run(eval("k", "x")).await == bulk("x")).await;
    assert!(stats.reconnects.get() >= 1);
}

#[tokio::test]
async fn an_error_now_and_then_is_the_business_of_one_command() {
    let server = Server::start(&[]);
    let (client, stats) = open(&server.url(), options());
    assert!(client.wait_ready(LONG).await);
    for n in 0..50 {
        let text = n.to_string();
        let wrong = client.run(command(&["NONSENSE", "k"])).await;
        assert!(matches!(wrong, Err(ClientError::Reply(_))));
        assert_eq!(client.run(eval("k", &text)).await, bulk(&text));
    }
    assert_eq!(stats.breakers_opened.get(), 0);
    for _ in 0..5 {
        let _ = client.run(command(&["NONSENSE", "k"])).await;
    }
    assert_eq!(stats.breakers_opened.get(), 1);
}

#[tokio::test]
async fn databases_passwords_and_users() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    let port = server.port;
    let (client, _) = open(&format!("redis://:hunter2@127.0.0.1:{port}/5"), options());
    assert!(client.wait_ready(LONG).await);
    assert_eq!(client.run(command(&["SET", "k", "five"])).await, bulk("OK"));
    // A user who may do what the client and the commands of this test need, and nothing else.
    let allowed = COMMANDS.iter().chain(&["evalsha", "incr", "get"]);
    let allowed: Vec<String> = allowed.map(|command| format!("+{command}")).collect();
    let mut rules = vec!["ACL", "SETUSER", "tide", "on", ">pw", "~t*", "~k"];
    rules.extend(allowed.iter().map(String::as_str));
    client.run(command(&rules)).await.unwrap();
    let (other, _) = open(&format!("redis://tide:pw@127.0.0.1:{port}/5"), options());
    assert!(other.wait_ready(LONG).await, "{:?}", other.why_down());
    assert_eq!(other.run(command(&["GET", "k"])).await, bulk("five"));
    let more = other.run(command(&["FLUSHALL"])).await;
    assert!(matches!(&more, Err(ClientError::Reply(text)) if text.starts_with("NOPERM")));

    for (url, why) in [
        (
            format!("redis://:wrong@127.0.0.1:{port}"),
            "does not accept user and password: WRONGPASS",
        ),
        (
            format!("redis://who:pw@127.0.0.1:{port}"),
            "does not accept user and password: WRONGPASS",
        ),
        (format!("redis://127.0.0.1:{port}"), "NOAUTH"),
        (format!("redis://:hunter2@127.0.0.1:{port}/99"), "does not give us the database"),
    ] {
        let (client, stats) = open(&url, options());
        assert!(!client.wait_ready(Duration::from_millis(50)).await);
        let down = client.why_down().unwrap();
        assert!(down.contains(why), "{url}: {down}");
        assert_eq!(stats.breakers_open.get(), 1);
        assert_eq!(client.run(eval("k", "x")).await, Err(ClientError::Down));
    }
}

#[tokio::test]
async fn a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis.sock");
    let _server = Server::start(&["--unixsocket", path.to_str().unwrap()]);
    let (client, _) = open(&format!("redis+unix://{}?db=2", path.display()), options());
    assert!(client.wait_ready(LONG).await);
    assert_eq!(client.run(eval("k", "x")).await, bulk("x"));
}

#[test]
fn threads_and_runtimes_have_connections_of_their_own() {
    let server = Server::start(&[]);
    let home = runtime();
    let (client, stats) = home.block_on(async { open(&server.url(), options()) });
    assert!(home.block_on(client.wait_ready(LONG)));
    // Another runtime on the same thread, while nobody runs the first.
    let other = runtime();
    assert_eq!(other.block_on(client.run(eval("k", "x"))), bulk("x"));
    assert_eq!(home.block_on(client.run(eval("k", "y"))), bulk("y"));
    assert_eq!(stats.connections.get(), 2);
    // Other threads.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let runtime = runtime();
                assert_eq!(runtime.block_on(client.run(eval("k", "x"))), bulk("x"));
            });
        }
    });
    // A runtime that ends takes its connections along; what waits for them hears of it.
    server.signal("STOP");
    let waiting = {
        let client = Arc::clone(&client);
        let (tell, told) = std::sync::mpsc::channel();
        // Polled here, so that the connection is the other runtime's; awaited elsewhere.
        let mut run = Box::pin(async move { client.run(eval("k", "lost")).await });
        other.block_on(async {
            tokio::select! { biased; _ = &mut run => panic!("nobody answers"), () = async {} => {} }
        });
        other.block_on(until_async("it is sent", async || stats.in_flight.get() == 1));
        std::thread::spawn(move || tell.send(runtime().block_on(run)));
        told
    };
    drop(other);
    let lost = waiting.recv_timeout(LONG).unwrap();
    assert_eq!(lost, Err(ClientError::Lost("its runtime ended".to_owned())));
    server.signal("CONT");
    assert_eq!((stats.connections.get(), stats.in_flight.get()), (1, 0));
    let again = runtime();
    assert_eq!(again.block_on(client.run(eval("k", "x"))), bulk("x"));
    assert_eq!(home.block_on(client.run(eval("k", "y"))), bulk("y"));
    assert_eq!(stats.breakers_opened.get(), 0);
    // The client ends, and so do all its connections.
    drop(client);
    home.block_on(until_async("one is closed", async || stats.connections.get() == 1));
    again.block_on(until_async("both are closed", async || stats.connections.get() == 0));
}

#[test]
fn a_node_that_is_down_is_asked_by_one_probe_at_a_time() {
    let server = Server::start(&[]);
    let home = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (client, stats) = home.block_on(async { open(&server.url(), options()) });
    assert!(home.block_on(client.wait_ready(LONG)));
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let before = server.calls("evalsha");
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                runtime().block_on(async {
                    while start.elapsed() < Duration::from_millis(500) {
                        assert!(client.run(eval("k", "x")).await.is_err());
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                });
            });
        }
    });
    let calls = server.calls("evalsha") - before;
    // A probe every 50 ms, the first at once, and what the threads had sent before they knew.
    let most = 2 + start.elapsed().as_millis() as u64 / 50 + 4;
    assert!((2..=most).contains(&calls), "{calls} of {most}");
    assert_eq!(stats.breakers_opened.get(), 1);
}

/// A thread does not keep what others have long forgotten.
#[tokio::test]
async fn a_thread_has_places_for_so_many_clients() {
    let server = Server::start(&[]);
    let clients: Vec<_> = (0..80).map(|_| open(&server.url(), options())).collect();
    for (client, _) in clients.iter().chain(&clients[..1]) {
        assert_eq!(client.run(eval("k", "x")).await, bulk("x"));
    }
    let count = || clients.iter().map(|(_, stats)| stats.connections.get()).sum::<u64>();
    until_async("the oldest are closed", async || count() == 64).await;
    assert_eq!(clients[0].1.reconnects.get() + clients[79].1.reconnects.get(), 0);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn without_a_runtime_there_is_an_error() {
    let server = Server::start(&[]);
    let (client, _) = runtime().block_on(async { open(&server.url(), options()) });
    let mut run = std::pin::pin!(client.run(eval("k", "x")));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let polled = run.as_mut().poll(&mut context);
    assert_eq!(polled, std::task::Poll::Ready(Err(ClientError::Down)));
}

/// Requests are handled by tasks that may move, and there are many of them.
#[test]
fn the_future_of_a_command_is_small_and_can_be_sent() {
    fn check<F: Future + Send>(future: F) -> usize {
        size_of_val(&future)
    }
    let runtime = runtime();
    let _inside = runtime.enter();
    let (client, _) = open("redis://127.0.0.1:1", options());
    let size = check(client.run(eval("k", "x")));
    assert!(size <= 288, "{size}");
}
