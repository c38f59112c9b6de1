//! `tidegate replay`: JSON lines in, JSON lines out, to the letter.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use support::redis::{Redis, assert_same_in_redis};
use support::{Ended, Folder, run_command};

const SECOND: u64 = 1_000_000_000;
const RULES: &str = "\
domain: api
http:
  - match: { method: POST }
    descriptors: [{ plan: '${header.x-plan}' }]
    on_missing: deny
  - match: { path: '/jobs/{id}' }
    descriptors: [{ jobs: '${path.id}' }]
  - match: { path: /dear }
    descriptors: [{ plan: dear }]
    cost: 2
descriptors:
  - key: plan
    rate_limit: { requests_per_unit: 3, unit: second, name: plan }
  - key: ip
    rate_limit: { requests_per_unit: 5, unit: second, name: ip }
  - key: blocked
    rate_limit: { requests_per_unit: 0, unit: second, name: blocked }
  - key: watched
    shadow_mode: true
    rate_limit: { requests_per_unit: 1, unit: second, name: watched }
  - key: soft
    rate_limit: { requests_per_unit: 2, unit: second, soft: { over: 50%, for: 30s }, name: soft }
  - key: jobs
    rate_limit: { requests_per_unit: 1, algorithm: concurrency, lease: none, name: jobs }
  - key: queue
    rate_limit:
      { requests_per_unit: 1, unit: second, algorithm: leaky_bucket, queue: { size: 1 }, name: queue }
";

fn folder() -> Folder {
    Folder::new(&[("a.yaml", RULES)])
}

fn replay(input: impl AsRef<[u8]>) -> Ended {
    let folder = folder();
    let command = || folder.command(&["replay", "--rules", "a.yaml"]);
    let output = run_command(command(), &input);
    assert_same_in_redis(command, input.as_ref(), &output);
    Ended::from(output)
}

/// The answers to lines that are all right.
#[track_caller]
fn answers(lines: &[Value]) -> Vec<Value> {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let ended = replay(input);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{}", ended.stdout);
    let answers: Vec<_> = parsed(&ended.stdout);
    assert_eq!(answers.len(), lines.len());
    answers
}

fn parsed(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One descriptor of one entry, at the time zero.
fn ask(key: &str, value: &str) -> Value {
    json!({ "t_ns": 0, "domain": "api", "descriptors": [[[key, value]]] })
}

fn with(mut line: Value, fields: Value) -> Value {
    line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    line
}

fn http(request: Value) -> Value {
    json!({ "t_ns": 0, "domain": "api", "http": request })
}

/// `allowed` and `remaining` of each answer.
fn brief(answers: &[Value]) -> Vec<(bool, u64)> {
    let brief = |answer: &Value| {
        (answer["allowed"].as_bool().unwrap(), answer["remaining"].as_u64().unwrap())
    };
    answers.iter().map(brief).collect()
}

#[test]
fn an_answer_to_the_letter() {
    let line = with(ask("plan", "free"), json!({ "t_ns": 3600 * SECOND + 1 }));
    let ended = replay(line.to_string());
    let wanted = concat!(
        r#"{"allowed":true,"limits":[{"rule":"plan","allowed":true,"limit":3,"remaining":2,"#,
        r#""retry_after_ns":0,"reset_after_ns":999999999,"delay_ns":0,"soft":false,"shadow":false,"#,
        r#""descriptor":0}],"remaining":2,"retry_after_ns":0,"reset_after_ns":999999999,"#,
        r#""delay_ns":0,"source":"store"}"#,
        "\n"
    );
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), wanted, ""));
}

#[test]
fn no_limit_met_to_the_letter() {
    for descriptors in [json!([]), json!([[]]), json!([[["stranger", "x"]]])] {
        let line = json!({ "t_ns": 0, "domain": "api", "descriptors": descriptors });
        let ended = replay(line.to_string());
        assert_eq!(ended.stdout, "{\"allowed\":true,\"limits\":[]}\n");
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    }
}

/// Nothing limits it, and whoever mistyped the name is told so, once.
#[test]
fn a_domain_that_the_rules_do_not_have() {
    let line = json!({ "t_ns": 0, "domain": "web", "descriptors": [[["plan", "free"]]] });
    let ended = replay(format!("{line}\n{line}\n"));
    assert_eq!(ended.stdout, "{\"allowed\":true,\"limits\":[]}\n".repeat(2));
    let note = "note: the rules have no domain \"web\", so that nothing limits it\n";
    assert_eq!((ended.code, &*ended.stderr), (Some(0), note));
}

#[test]
fn every_op() {
    let op = |op: &str, cost: u64| with(ask("plan", "free"), json!({ "op": op, "cost": cost }));
    let found = answers(&[
        op("peek", 3),
        op("check", 2),
        op("check", 2),
        op("up_to", 5),
        op("up_to", 5),
        op("force", 4),
        op("refund", 5),
        op("reset", 1),
        op("peek", 1),
        op("check", 0),
    ]);
    let wanted = [
        (true, 3),
        (true, 1),
        (false, 1),
        (true, 0),
        (false, 0),
        (true, 0),
        (true, 1),
        (true, 3),
        (true, 3),
        (true, 3),
    ];
    assert_eq!(brief(&found), wanted);
    assert_eq!((&found[3]["granted"], &found[4]["granted"]), (&json!(1), &json!(0)));
    assert_eq!(found[0].get("granted"), None);
    // 3 used, 4 forced, 5 given back.
    assert_eq!(found[6]["limits"][0]["remaining"], 1);
}

#[test]
fn without_an_op_it_is_a_check_of_one() {
    let found = answers(&[
        ask("plan", "free"),
        with(ask("plan", "free"), json!({ "op": "check", "cost": 1 })),
        with(ask("plan", "free"), json!({ "op": null, "id": null, "http": null })),
        ask("plan", "free"),
    ]);
    assert_eq!(brief(&found), [(true, 2), (true, 1), (true, 0), (false, 0)]);
}

#[test]
fn permits_have_names() {
    let job = |op: &str, id: &str| with(ask("jobs", "a"), json!({ "op": op, "id": id }));
    let found = answers(&[
        job("acquire", "one"),
        job("acquire", "two"),
        job("release", "two"),
        job("acquire", "two"),
        job("release", "one"),
        job("acquire", "two"),
        with(ask("jobs", "b"), json!({ "op": "acquire", "id": "two" })),
    ]);
    let allowed: Vec<_> = found.iter().map(|answer| answer["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed, [true, false, true, false, true, true, true]);
    // Nobody knows when a permit without lease comes back.
    let refused = &found[1];
    for part in [refused, &refused["limits"][0]] {
        assert_eq!(part["retry_after_ns"], Value::Null);
        assert_eq!(part["retry"], "unknown");
        assert_eq!(part["reset_after_ns"], Value::Null);
    }
    assert_eq!(found[0].get("retry"), None);
}

#[test]
fn permits_of_http_requests() {
    let job =
        |op: &str, id: &str| with(http(json!({ "url": "/jobs/7" })), json!({ "op": op, "id": id }));
    let found = answers(&[
        job("acquire", "one"),
        job("acquire", "two"),
        job("release", "one"),
        job("acquire", "two"),
    ]);
    assert_eq!(brief(&found), [(true, 0), (false, 0), (true, 1), (true, 0)]);
}

#[test]
fn never_is_null_and_a_word() {
    let found = answers(&[ask("blocked", "x"), with(ask("plan", "x"), json!({ "cost": 4 }))]);
    for answer in &found {
        for part in [answer, &answer["limits"][0]] {
            assert_eq!(part["allowed"], false);
            assert_eq!(part["retry_after_ns"], Value::Null);
            assert_eq!(part["retry"], "never");
        }
    }
    assert_eq!((&found[0]["limits"][0]["limit"], &found[0]["remaining"]), (&json!(0), &json!(0)));
    assert_eq!(found[1]["remaining"], 3);
}

#[test]
fn descriptors_are_numbered_and_joined() {
    let line = json!({
        "t_ns": SECOND / 2,
        "domain": "api",
        "descriptors": [[["ip", "192.0.2.7"]], [["stranger", "x"]], [["plan", "free"]]],
        "cost": 2,
    });
    let found = answers(&[line.clone(), line]);
    let limits = found[0]["limits"].as_array().unwrap();
    let told: Vec<_> = limits.iter().map(|limit| (&limit["rule"], &limit["descriptor"])).collect();
    assert_eq!(told, [(&json!("ip"), &json!(0)), (&json!("plan"), &json!(2))]);
    // The least remaining, the longest waits; and the second is refused by one, so by both.
    assert_eq!(brief(&found), [(true, 1), (false, 1)]);
    let limits = &found[1]["limits"];
    assert_eq!((&limits[0]["allowed"], &limits[0]["remaining"]), (&json!(true), &json!(3)));
    assert_eq!((&limits[1]["allowed"], &limits[1]["remaining"]), (&json!(false), &json!(1)));
    assert_eq!(found[1]["retry_after_ns"], SECOND / 2);
    assert_eq!(found[1]["reset_after_ns"], SECOND / 2);
}

#[test]
fn limits_that_watch_refuse_nobody() {
    let found = answers(&[ask("watched", "x"), ask("watched", "x")]);
    assert_eq!((&found[1]["allowed"], &found[1]["source"]), (&json!(true), &json!("shadow")));
    let limit = &found[1]["limits"][0];
    assert_eq!((&limit["allowed"], &limit["shadow"]), (&json!(false), &json!(true)));
    assert_eq!(limit["retry_after_ns"], SECOND);
}

#[test]
fn soft_limits_say_so() {
    let found = answers(&[ask("soft", "x"), ask("soft", "x"), ask("soft", "x"), ask("soft", "x")]);
    let soft: Vec<_> =
        found.iter().map(|answer| (&answer["allowed"], &answer["limits"][0]["soft"])).collect();
    let (yes, no) = (&json!(true), &json!(false));
    assert_eq!(soft, [(yes, no), (yes, no), (yes, yes), (no, yes)]);
    assert_eq!((&found[2]["limits"][0]["limit"], &found[2]["remaining"]), (&json!(2), &json!(0)));
}

#[test]
fn queues_say_how_long_to_wait() {
    let found = answers(&[ask("queue", "x"), ask("queue", "x"), ask("queue", "x")]);
    let delays: Vec<_> = found.iter().map(|answer| &answer["delay_ns"]).collect();
    assert_eq!(delays, [&json!(0), &json!(SECOND), &json!(0)]);
    assert_eq!(found[2]["allowed"], false);
    assert_eq!(found[1]["limits"][0]["delay_ns"], SECOND);
}

#[test]
fn http_requests() {
    let post = |headers: Value| http(json!({ "method": "POST", "url": "/", "headers": headers }));
    let found = answers(&[
        post(json!({ "X-Plan": "free" })),
        post(json!({ "x-plan": ["a", "b"] })),
        post(json!({ "x-plan": "free" })),
        post(json!({})),
        http(json!({ "url": "https://example.com/dear", "client_ip": "2001:db8::1" })),
        http(json!({ "url": "/" })),
    ]);
    assert_eq!(brief(&found[..3]), [(true, 2), (true, 2), (true, 1)]);
    let denied = json!({
        "allowed": false, "limits": [], "retry_after_ns": null, "retry": "never",
        "denied": "missing_value",
    });
    assert_eq!(found[3], denied);
    assert_eq!(brief(&found[4..5]), [(true, 1)]);
    assert_eq!(found[5], json!({ "allowed": true, "limits": [] }));
}

#[test]
fn time_is_what_the_lines_say() {
    let at = |t_ns: u64| with(ask("plan", "x"), json!({ "t_ns": t_ns, "cost": 3 }));
    let found = answers(&[at(0), at(SECOND - 1), at(SECOND), at(SECOND / 2), at(u64::MAX)]);
    let allowed: Vec<_> = found.iter().map(|answer| answer["allowed"] == true).collect();
    assert_eq!(allowed, [true, false, true, false, true]);
    assert_eq!(found[1]["retry_after_ns"], 1);
    // The clock went back: what was taken at the later time counts.
    assert_eq!(found[3]["retry_after_ns"], SECOND + SECOND / 2);
}

#[test]
fn a_bad_line_is_answered_and_the_next_one_too() {
    let good = ask("plan", "x").to_string();
    for (bad, said) in [
        ("hello", "a line is a JSON object: {\"t_ns\": 0, \"domain\": …}"),
        ("[0]", "a line is a JSON object: {\"t_ns\": 0, \"domain\": …}"),
        ("{", "EOF while parsing an object, at column 1"),
        (r#"{"domain":"api","descriptors":[]}"#, "missing field `t_ns`, at column 33"),
        (r#"{"t_ns":0,"descriptors":[]}"#, "missing field `domain`, at column 27"),
        (r#"{"t_ns":0,"domain":"api"}"#, "`descriptors` is missing, or `http` in its place"),
        (
            r#"{"t_ns":0,"domain":"api","descriptors":[],"http":{"url":"/"}}"#,
            "`descriptors` and `http` exclude each other",
        ),
        (
            r#"{"t_ns":0,"domain":"api","descriptors":[],"costs":1}"#,
            "unknown field `costs`, expected one of `t_ns`, `domain`, `descriptors`, `http`, `cost`, `op`, `id`, at column 49",
        ),
        (
            r#"{"t_ns":0,"domain":"api","descriptors":[],"op":"take"}"#,
            "`take` is not an op; one of check, peek, up_to, force, refund, reset, acquire, release",
        ),
        (
            r#"{"t_ns":0,"domain":"api","descriptors":[["user","ada"]]}"#,
            "invalid type: string \"user\", expected a pair of texts such as [\"user\",\"ada\"], at column 47",
        ),
        (
            r#"{"t_ns":0,"domain":"api","descriptors":[],"op":"acquire"}"#,
            "`id` is missing: it says whose permits these are",
        ),
        (
            r#"{"t_ns":-1,"domain":"api","descriptors":[]}"#,
            "invalid value: integer `-1`, expected u64, at column 10",
        ),
        (
            r#"{"t_ns":0,"domain":"api","http":{"url":"h"}}"#,
            "`h` is not a URL: it begins neither with `http://` nor with `/`",
        ),
        (
            r#"{"t_ns":0,"domain":"api","http":{"url":"/","verb":"GET"}}"#,
            "unknown field `verb`, expected one of `method`, `url`, `headers`, `client_ip`, at column 49",
        ),
        (r#"{"t_ns":0,"domain":"api","descriptors":[]} {}"#, "trailing characters, at column 44"),
    ] {
        let ended = replay(format!("{good}\n{bad}\n{good}\n"));
        let found = parsed(&ended.stdout);
        assert_eq!(found[1], json!({ "error": said, "line": 2 }), "{bad}");
        assert_eq!(found.len(), 3, "{bad}");
        // It took nothing.
        assert_eq!((&found[0]["remaining"], &found[2]["remaining"]), (&json!(2), &json!(1)));
        assert_eq!((ended.code, &*ended.stderr), (Some(1), ""), "{bad}");
    }
}

#[test]
fn bytes_that_are_no_text_are_a_bad_line() {
    let mut input = br#"{"t_ns":0,"domain":"a"#.to_vec();
    input.extend(b"\xff\xfe\",\"descriptors\":[]}\n\xff\n");
    input.extend(ask("plan", "x").to_string().bytes());
    let ended = replay(input);
    let found = parsed(&ended.stdout);
    assert_eq!((&found[0]["line"], &found[1]["line"]), (&json!(1), &json!(2)));
    assert!(found[0]["error"].as_str().unwrap().contains("unicode"), "{}", found[0]);
    assert_eq!(found[2]["allowed"], true);
    assert_eq!(ended.code, Some(1));
}

#[test]
fn a_line_beyond_all_measure_is_a_bad_line() {
    let long = "a".repeat(20 << 20);
    let long = json!({ "t_ns": 0, "domain": long, "descriptors": [] });
    let good = ask("plan", "x");
    for end in ["\n", ""] {
        let ended = replay(format!("{good}\n{long}\n{good}\n{long}{end}"));
        let found = parsed(&ended.stdout);
        let error = "the line is longer than 16 MiB";
        assert_eq!(found[1], json!({ "error": error, "line": 2 }));
        assert_eq!(found[3], json!({ "error": error, "line": 4 }));
        assert_eq!((&found[2]["remaining"], found.len()), (&json!(1), 4));
        assert_eq!(ended.code, Some(1));
    }
}

#[test]
fn empty_lines_are_counted_and_passed_over() {
    let good = ask("plan", "x");
    let ended = replay(format!("\u{feff}\r\n\n  \t\n{good}\r\n\nbad"));
    let found = parsed(&ended.stdout);
    assert_eq!(found.len(), 2);
    assert_eq!((&found[0]["allowed"], &found[1]["line"]), (&json!(true), &json!(6)));
    let ended = replay(format!("\u{feff}{good}"));
    assert_eq!((ended.code, parsed(&ended.stdout).len()), (Some(0), 1));
    let ended = replay("");
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), "", ""));
}

#[test]
fn what_cannot_be_asked() {
    let folder = folder();
    let ended = folder.run(&["replay", "--rules", "a.yaml", "--store", "rodeos://me:pass@host"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""));
    let told = "hint: `memory`, or a URL such as redis://127.0.0.1:6379\n";
    assert!(ended.stderr.starts_with("error: `rodeos://"), "{}", ended.stderr);
    assert!(ended.stderr.ends_with(told) && !ended.stderr.contains("pass"), "{}", ended.stderr);
    // Nobody listens there, for as long as this is.
    let place = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("redis://me:pass@{place}");
    let ended = folder.run(&["replay", "--rules", "a.yaml", "--store", &url]);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""));
    let told = format!("error: Redis at `redis://(secret)@{place}` does not answer");
    assert!(ended.stderr.starts_with(&told), "{}", ended.stderr);
    assert_eq!(folder.run(&["replay", "--rules", "none.yaml"]).code, Some(2));
    assert_eq!(folder.run(&["replay"]).code, Some(2));
    folder.write("bad.yaml", "domain: a\nstranger: 1\n");
    assert_eq!(folder.run(&["replay", "--rules", "bad.yaml"]).code, Some(2));
    let ended = folder.run(&["replay", "--rules", "a.yaml", "--store", "memory"]);
    assert_eq!(ended.code, Some(0));
}

#[test]
fn a_redis_that_ends_ends_the_replay() {
    let mut redis = Redis::start();
    let folder = folder();
    let mut command = folder.command(&["replay", "--rules", "a.yaml", "--store", &redis.url()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut answer = String::new();
    writeln!(input, "{}", ask("plan", "free")).unwrap();
    output.read_line(&mut answer).unwrap();
    assert!(answer.starts_with("{\"allowed\":true"), "{answer}");
    assert_ne!(redis.ask("DBSIZE"), ":0", "there are keys while it goes on");
    redis.kill();
    writeln!(input, "{}", ask("plan", "free")).unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("error: line 2: the store has no answer"), "{}", ended.stderr);
    assert!(ended.stderr.contains("are left in Redis"), "{}", ended.stderr);
}

#[test]
fn a_replay_that_is_interrupted_leaves_no_keys() {
    let redis = Redis::start();
    let folder = folder();
    let mut command = folder.command(&["replay", "--rules", "a.yaml", "--store", &redis.url()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut answer = String::new();
    writeln!(input, "{}", ask("plan", "free")).unwrap();
    output.read_line(&mut answer).unwrap();
    assert_ne!(redis.ask("DBSIZE"), ":0", "there are keys while it goes on");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(redis.ask("DBSIZE"), ":0");
}

#[test]
fn who_waits_for_an_answer_gets_it() {
    let folder = folder();
    let mut command = folder.command(&["replay", "--rules", "a.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    for allowed in [true, true, true, false] {
        writeln!(input, "{}", ask("plan", "x")).unwrap();
        let answer: Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["allowed"], allowed);
    }
    drop(input);
    assert!(output.next().is_none());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn who_has_seen_enough_may_go() {
    let folder = folder();
    let mut command = folder.command(&["replay", "--rules", "a.yaml"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let line = format!("{}\n", ask("plan", "x")).repeat(100);
    input.write_all(line.as_bytes()).unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert!(first.starts_with("{\"allowed\":true"));
    drop(output);
    // It goes too, and then nobody reads here.
    while input.write_all(line.as_bytes()).is_ok() {}
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn any_number_of_lines_needs_the_same_memory() {
    const LINES: usize = 200_000;
    let folder = folder();
    let mut command = folder.command(&["replay", "--rules", "a.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let status = format!("/proc/{}/status", child.id());
    let peak_kib = || -> u64 {
        let status = std::fs::read_to_string(&status).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let mut pass = |lines: usize| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..lines / 10 {
                    let line = with(ask("plan", "x"), json!({ "t_ns": number })).to_string() + "\n";
                    input.write_all(line.repeat(10).as_bytes()).unwrap();
                }
            });
            let mut answer = Vec::new();
            for _ in 0..lines {
                answer.clear();
                assert!(output.read_until(b'\n', &mut answer).unwrap() > 0);
            }
        });
        peak_kib()
    };
    let (few, many) = (pass(LINES / 20), pass(LINES));
    assert!(many < few + 2048, "{few} KiB after a few lines, {many} KiB after {LINES}");
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_request_has_a_thousand_descriptors_at_the_most() {
    let rules = support::Rules::new(
        "domain: d\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 1, unit: day}}]",
    );
    let line = |count| {
        let descriptors = vec![r#"[["x","y"]]"#; count].join(",");
        format!("{{\"t_ns\":0,\"domain\":\"d\",\"descriptors\":[{descriptors}]}}\n")
    };
    let (answers, code) = rules.replay(&(line(1000) + &line(1001)));
    assert_eq!(answers[0]["allowed"], true);
    assert_eq!(answers[1]["error"], "1001 descriptors; the most is 1000");
    assert_eq!(code, Some(1));
}
