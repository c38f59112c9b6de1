//! The service as those meet it who run it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Instant;

use rustix::process::Signal;
use support::serving::{PATIENCE, Serving, command, http_on};
use support::{Folder, run_command, text};

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 3, unit: day }
";

fn check(user: &str) -> String {
    format!(r#"{{"domain":"api","descriptors":[{{"entries":[["user","{user}"]]}}]}}"#)
}

#[test]
fn it_starts_on_examples_and_what_it_says_to_try_works() {
    let mut serving = Serving::start(&[]);
    assert!(serving.ready.ends_with(" gateway=off store=memory rules=12\n"), "{}", serving.ready);
    let curl = serving.wait_for_log("curl -i http://");
    let words: Vec<&str> = curl.split_whitespace().collect();
    let body = words.last().unwrap().trim_matches('\'');
    assert_eq!(serving.http("POST", "/v1/check", body).0, 200);

    let cli = serving.wait_for_log("redis-cli");
    let words = cli.split_whitespace().skip_while(|word| *word != "TIDEGATE.CHECK");
    let mut resp = TcpStream::connect(serving.address("resp")).unwrap();
    resp.write_all(format!("{}\r\nQUIT\r\n", words.collect::<Vec<_>>().join(" ")).as_bytes())
        .unwrap();
    let mut answer = String::new();
    resp.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("*6\r\n"), "{answer}");
    assert_eq!(serving.terminate().code(), Some(0));
}

#[test]
fn health_says_no_as_soon_as_it_is_to_end_while_requests_still_pass() {
    let mut serving = Serving::start(&["--drain-delay", "1h", "--log-level", "debug"]);
    assert_eq!(serving.http("GET", "/ready", "").0, 200);
    assert_eq!(serving.http("GET", "/healthcheck", "").0, 200);
    serving.signal(Signal::TERM);
    serving.wait_for_log("draining");
    let deadline = Instant::now() + PATIENCE;
    while serving.http("GET", "/ready", "").0 == 200 {
        assert!(Instant::now() < deadline, "still ready");
    }
    assert_eq!(serving.http("GET", "/healthcheck", "").0, 500);
    let examples = r#"{"domain":"examples","descriptors":[{"entries":[["server","status"]]}]}"#;
    assert_eq!(serving.http("POST", "/v1/check", examples).0, 200);
    // The second one does not wait for anything.
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait().code(), Some(1));
}

#[test]
fn rules_that_change_are_taken_over_and_bad_ones_are_not() {
    let folder = Folder::new(&[("rules.yaml", RULES)]);
    let path = folder.path().join("rules.yaml");
    let mut serving = Serving::start(&["--rules", path.to_str().unwrap()]);
    for _ in 0..3 {
        assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 200);
    }
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 429);
    folder.write("rules.yaml", RULES.replace("per_unit: 3", "per_unit: 4"));
    serving.wait_for_log("rules loaded");
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 200, "one more");
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 429, "used stays used");

    folder.write("rules.yaml", RULES.replace("day", "days"));
    serving.wait_for_log("the old ones stay");
    assert!(
        serving.logged.iter().any(|line| line.contains("rules.yaml:5:")),
        "{:?}",
        serving.logged
    );
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 429);
    let (_, metrics) = serving.http("GET", "/metrics", "");
    assert!(metrics.contains("tidegate_reload_total{result=\"error\"} 1"), "{metrics}");
    assert!(metrics.contains("tidegate_reload_total{result=\"ok\"} 1"), "{metrics}");

    folder.write("rules.yaml", RULES);
    serving.wait_for_log("rules loaded");
    serving.signal(Signal::HUP);
    serving.wait_for_log("cause=Signal");
    assert_eq!(serving.terminate().code(), Some(0));
}

#[test]
fn files_that_are_not_watched_are_read_when_asked() {
    let folder = Folder::new(&[("rules.yaml", RULES)]);
    let path = folder.path().join("rules.yaml");
    let mut serving = Serving::start(&["--rules", path.to_str().unwrap(), "--watch=false"]);
    folder.write("rules.yaml", RULES.replace("per_unit: 3", "per_unit: 1"));
    serving.signal(Signal::HUP);
    serving.wait_for_log("rules loaded");
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 200);
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 429);
}

#[test]
fn quotas_survive_a_restart() {
    let folder = Folder::new(&[("rules.yaml", RULES)]);
    let rules = folder.path().join("rules.yaml");
    let snapshot = folder.path().join("counts");
    let arguments = ["--rules", rules.to_str().unwrap(), "--snapshot", snapshot.to_str().unwrap()];
    let mut serving = Serving::start(&arguments);
    for _ in 0..2 {
        assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 200);
    }
    assert_eq!(serving.terminate().code(), Some(0));
    let mut serving = Serving::start(&arguments);
    serving.wait_for_log("counts restored");
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 200);
    assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 429);
}

#[test]
fn unix_sockets_are_listened_at_and_cleared_away() {
    let folder = Folder::new(&[]);
    let path = folder.path().join("http.sock");
    let address = format!("unix:{}", path.display());
    let mut serving = Serving::start(&["--http", &address, "--grpc", "off", "--resp", "off"]);
    assert!(
        serving.ready.contains(&format!("http={address} grpc=off resp=off ")),
        "{}",
        serving.ready
    );
    let (status, _) = http_on(UnixStream::connect(&path).unwrap(), "GET", "/healthcheck", "");
    assert_eq!(status, 200);
    // Another one does not take it away from this one.
    let other = run_command(command(&["--http", &address]), "");
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("hint: another program listens there"));
    assert_eq!(serving.terminate().code(), Some(0));
    assert!(!path.exists());
    // One that was left behind by a process that died is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let serving = Serving::start(&["--http", &address]);
    assert_eq!(serving.address("http"), address);
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_ends() {
    let folder = Folder::new(&[]);
    let path = folder.path().join("notify");
    let listener = UnixDatagram::bind(&path).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = command(&[]);
    command.env("NOTIFY_SOCKET", &path);
    let mut serving = Serving::spawn(command);
    let mut buffer = [0; 64];
    let length = listener.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"READY=1");
    serving.terminate();
    let length = listener.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"STOPPING=1");
}

#[test]
fn what_keeps_it_from_starting_is_said_with_what_to_do() {
    let folder = Folder::new(&[(
        "rules.yaml",
        "domain: x\ndescriptors: [{key: a, rate_limit: {unit: minutes}}]",
    )]);
    let rules = folder.path().join("rules.yaml");
    let taken = Serving::start(&[]);
    let taken = taken.address("grpc");
    let cases: [(&[&str], &str); 7] = [
        (&["--gateway", "127.0.0.1:0"], "has nowhere to send requests"),
        (&["--rules", rules.to_str().unwrap()], "did you mean `minute`?"),
        (&["--rules", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["--grpc", &taken], "hint: another program listens there; choose with --grpc ADDR"),
        (&["--http", "8080"], "--http `8080` is not an address"),
        (&["--store", "mysql://localhost"], "is not the address of a Redis"),
        (&["--grpc-tls-cert", "/nowhere.pem", "--grpc-tls-key", "/nowhere.pem"], "/nowhere.pem"),
    ];
    // `taken` is gone by now unless it is kept.
    let _kept = std::net::TcpListener::bind(&taken);
    for (arguments, complaint) in cases {
        let output = run_command(command(arguments), "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(complaint), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn logs_are_json_if_asked_and_refusals_are_told_only_on_request() {
    let rules =
        "domain: api\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 0}}]";
    let folder = Folder::new(&[("rules.yaml", rules)]);
    let rules = folder.path().join("rules.yaml");
    let rules = rules.to_str().unwrap();
    for (level, is_told) in [("info", false), ("debug", true)] {
        let mut serving =
            Serving::start(&["--rules", rules, "--log-format", "json", "--log-level", level]);
        assert_eq!(serving.http("POST", "/v1/check", &check("ada")).0, 429);
        serving.terminate();
        let lines = serving.logged.iter().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let refused = lines.iter().find(|line| line["message"] == "refused");
        assert_eq!(refused.is_some(), is_told, "{lines:?}");
        if let Some(refused) = refused {
            assert_eq!(refused["rule"], "api.user");
            assert!(!refused.to_string().contains("ada"), "what clients send is not logged");
        }
    }
}

#[test]
fn who_never_says_anything_does_not_hold_up_the_end() {
    let mut serving = Serving::start(&["--drain", "20s"]);
    let mut silent = Vec::new();
    for (front_end, words) in [
        ("grpc", &b""[..]),
        ("grpc", b"PRI * HT"),
        ("http", b""),
        ("http", b"POST /v1/che"),
        ("resp", b"*2\r\n$4"),
    ] {
        let mut stream = TcpStream::connect(serving.address(front_end)).unwrap();
        stream.write_all(words).unwrap();
        silent.push(stream);
    }
    // Once they are counted, they are being served.
    let deadline = Instant::now() + PATIENCE;
    let count = |metrics: &str, front_end: &str| -> usize {
        let label = format!("tidegate_connections{{front_end=\"{front_end}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&label)).unwrap();
        line.trim().parse().unwrap()
    };
    loop {
        let (_, metrics) = serving.http("GET", "/metrics", "");
        if count(&metrics, "grpc") == 2
            && count(&metrics, "http") >= 3
            && count(&metrics, "resp") == 1
        {
            break;
        }
        assert!(Instant::now() < deadline, "{metrics}");
    }
    assert_eq!(serving.terminate().code(), Some(0), "{:?}", serving.logged);
}

#[test]
fn commands_that_bring_their_limits_show_in_the_metrics() {
    let serving = Serving::start(&[]);
    let mut resp = TcpStream::connect(serving.address("resp")).unwrap();
    resp.write_all(b"CL.THROTTLE k 3 10 60\r\nGCRA k 3 10 60\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    resp.read_to_string(&mut answer).unwrap();
    let (_, metrics) = serving.http("GET", "/metrics", "");
    for name in ["CL.THROTTLE", "GCRA"] {
        let line = format!(
            "tidegate_decisions_total{{domain=\"\",rule=\"{name}\",outcome=\"allowed\",\
             source=\"store\",front_end=\"resp\"}} 1"
        );
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[test]
fn the_reset_header_may_tell_the_time_of_day() {
    let folder = Folder::new(&[("rules.yaml", RULES)]);
    let rules = folder.path().join("rules.yaml");
    let serving =
        Serving::start(&["--rules", rules.to_str().unwrap(), "--x-ratelimit-reset", "epoch"]);
    let (_, answer) = serving.http("POST", "/v1/check", &check("ada"));
    let reset = answer.lines().find_map(|line| line.strip_prefix("x-ratelimit-reset: ")).unwrap();
    assert!(reset.trim().parse::<u64>().unwrap() > 1_700_000_000, "{reset}");
}
