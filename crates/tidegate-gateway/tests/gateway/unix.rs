//! Unix sockets at both ends.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use tidegate_gateway::{Address, Gateway, GatewayConfig, HealthCheck, Open, RuleGate};

use crate::limiting::{TWO_AN_HOUR, limiter, with};
use crate::support::*;

fn listening(path: &Path, upstream: &str) -> GatewayConfig {
    let mut config = GatewayConfig::to(upstream);
    config.listen = format!("unix:{}", path.display());
    config
}

fn ask(path: &Path, arguments: &[&str]) -> String {
    let path = path.display().to_string();
    curl(&[&["--unix-socket", &path][..], arguments, &["http://a/b"]].concat())
}

#[test]
fn clients_come_by_a_socket_and_are_believed() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let path = dir.path().join("gateway.sock");
    let mut config = listening(&path, &upstream.url());
    config.threads = 3;
    let gateway = Gateway::start(config, Open).unwrap();
    assert_eq!(*gateway.address(), Address::Unix(path.clone()));
    assert_eq!(gateway.socket_address(), None);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for _ in 0..10 {
            let answer = ask(&path, &[version]);
            assert!(answer.contains("host: a\n"), "{answer}");
            assert!(answer.contains("forwarded: for=unknown;host=\"a\";proto=http\n"), "{answer}");
            assert!(!answer.contains("x-forwarded-for"), "{answer}");
        }
    }
    let answer = ask(&path, &["-H", "X-Forwarded-For: 198.51.100.7"]);
    assert!(answer.contains("x-forwarded-for: 198.51.100.7\n"), "{answer}");
}

#[test]
fn limits_go_by_whom_those_name_that_come_by_a_socket() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let path = dir.path().join("gateway.sock");
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let _gateway = with(RuleGate::new(limiter, "api"), listening(&path, &upstream.url()));
    let status_of = |client: &str| {
        let header = format!("X-Forwarded-For: {client}");
        ask(&path, &["-o", "/dev/null", "-w", "%{http_code}", "-H", &header])
    };
    let statuses: Vec<String> = (0..3).map(|_| status_of("198.51.100.7")).collect();
    assert_eq!(statuses, ["200", "200", "429"]);
    assert_eq!(status_of("198.51.100.8"), "200");
    // Who has no address meets no limit on addresses.
    for _ in 0..3 {
        assert_eq!(ask(&path, &["-o", "/dev/null", "-w", "%{http_code}"]), "200");
    }
}

#[test]
fn upstreams_are_reached_by_a_socket() {
    let (behind, dir) = (echo(), tempfile::tempdir().unwrap());
    let path = dir.path().join("app.sock");
    // A gateway is as good a server as any.
    let mut config = listening(&path, &behind.url());
    config.threads = 1;
    let inner = Gateway::start(config, Open).unwrap();
    for scheme in ["unix:", "unix://", "h2c+unix:"] {
        let mut config = GatewayConfig::to(format!("{scheme}{}", path.display()));
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        config.access_log.to = Some(tidegate_gateway::LogTo::File(log.clone()));
        let gateway = start(config);
        let answer = curl(&["-d", "body", &url(&gateway, "/x?y")]);
        assert!(answer.starts_with("POST /x?y HTTP/1.1\n"), "{answer}");
        assert!(answer.ends_with("\nbody"), "{answer}");
        assert!(answer.contains(&format!("host: {}\n", at(&gateway))), "{answer}");
        assert!(answer.contains("x-forwarded-for: 127.0.0.1\n"), "{answer}");
        // Without a host there is still one to be told.
        let answer = say(&gateway, "GET / HTTP/1.0\r\n\r\n");
        assert!(answer.contains("\nhost: localhost\n"), "{answer}");
        until("it is written down", || std::fs::read_to_string(&log).unwrap().lines().count() == 2);
        let wanted = format!("\"upstream\":\"unix:{}\"", path.display());
        assert!(std::fs::read_to_string(&log).unwrap().contains(&wanted));
    }
    drop(inner);
    let gateway = start(GatewayConfig::to(format!("unix:{}", path.display())));
    assert_eq!(status(&curl(&["-i", &url(&gateway, "/")])), "502");
}

#[test]
fn an_upstream_at_a_socket_is_looked_after() {
    let (well, dir) = (echo(), tempfile::tempdir().unwrap());
    let path = dir.path().join("app.sock");
    // Somebody listens, and answers nothing.
    let _stuck = UnixListener::bind(&path).unwrap();
    let mut config = GatewayConfig::to(well.url());
    config.upstreams[0].urls.insert(0, format!("unix:{}", path.display()));
    let (every, timeout) = (Duration::from_millis(50), Duration::from_millis(100));
    config.upstreams[0].check = Some(HealthCheck { path: "/".into(), every, timeout });
    config.routes[0].response = Duration::from_millis(300);
    let gateway = start(config);
    until("it is left out", || {
        (0..4).all(|_| status(&curl(&["-i", &url(&gateway, "/")])) == "200")
    });
}

#[test]
fn only_the_file_of_a_socket_that_nobody_answers_at_is_taken_over() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let path = dir.path().join("gateway.sock");
    let first = Gateway::start(listening(&path, &upstream.url()), Open).unwrap();
    let error = Gateway::start(listening(&path, &upstream.url()), Open).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot listen at unix:{} for the gateway", path.display())
    );
    assert!(ask(&path, &[]).starts_with("GET /b "), "the first is still there");
    drop(first);
    assert!(!path.exists(), "who ends takes it away");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "who crashes does not");
    let second = Gateway::start(listening(&path, &upstream.url()), Open).unwrap();
    assert!(ask(&path, &[]).starts_with("GET /b "));
    drop(second);
    std::fs::write(&path, "mine").unwrap();
    Gateway::start(listening(&path, &upstream.url()), Open).unwrap_err();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[tokio::test]
async fn draining_takes_the_file_away_and_lets_requests_finish() {
    let (let_go, go) = tokio::sync::watch::channel(false);
    let (tell, told) = std::sync::mpsc::channel();
    let upstream = serve(move |_| {
        let mut go = go.clone();
        tell.send(()).unwrap();
        async move {
            go.wait_for(|go| *go).await.unwrap();
            http::Response::new(full("done"))
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.sock");
    let gateway = Gateway::start(listening(&path, &upstream.url()), Open).unwrap();
    let asked = path.clone();
    let asking = tokio::task::spawn_blocking(move || ask(&asked, &[]));
    told.recv_timeout(GUARD).unwrap();
    let draining = tokio::spawn(gateway.drain());
    tokio::task::spawn_blocking(move || {
        until("nobody new is accepted", || UnixStream::connect(&path).is_err());
    })
    .await
    .unwrap();
    let_go.send(true).unwrap();
    assert_eq!(asking.await.unwrap(), "done");
    assert!(draining.await.unwrap());
}

#[test]
fn what_is_no_socket_is_told_so() {
    let mut config = GatewayConfig::to("unix:app.sock");
    let error = Gateway::start(config.clone(), Open).unwrap_err().to_string();
    assert!(error.contains("no path from the root"), "{error}");
    config.upstreams[0].urls = vec!["http://127.0.0.1:1".into()];
    config.listen = "somewhere".into();
    let error = Gateway::start(config.clone(), Open).unwrap_err().to_string();
    assert!(error.contains("`somewhere` is not an address"), "{error}");
    config.listen = "off".into();
    Gateway::start(config, Open).unwrap_err();
}
