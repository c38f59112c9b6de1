//! Redis's own tools and clients, unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::start;

fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program:?}: {error}; run tools/install"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program:?} {arguments:?}: {out}{errors}");
    assert_eq!(errors, "", "{program:?} {arguments:?}");
    out
}

#[test]
fn redis_cli() {
    let server = start(|_| {});
    let port = server.port.to_string();
    let cli = |arguments: &[&str]| run("redis-cli", &[&["-p", &port], arguments].concat());
    assert_eq!(cli(&["PING"]), "PONG\n");
    assert_eq!(cli(&["CL.THROTTLE", "user:1", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(cli(&["-3", "GCRA", "user:1", "15", "30", "60"]), "0\n16\n14\n-1\n4\n");
    assert_eq!(cli(&["TIDEGATE.CHECK", "api", "user", "ada"]), "1\n2\n1\n0\n500\nper-user\n");
    assert!(cli(&["INFO"]).contains("redis_version:"));
    assert_eq!(cli(&["-r", "3", "ECHO", "x"]), "x\nx\nx\n");
}

#[test]
fn redis_cli_with_a_password() {
    let server = start(|config| config.resp_password = Some("secret".into()));
    let port = server.port.to_string();
    let cli = |arguments: &[&str]| run("redis-cli", &[&["-p", &port], arguments].concat());
    assert_eq!(cli(&["PING"]), "NOAUTH Authentication required.\n\n");
    assert_eq!(cli(&["--no-auth-warning", "-a", "secret", "PING"]), "PONG\n");
    assert_eq!(cli(&["--no-auth-warning", "-a", "secret", "-3", "PING"]), "PONG\n");
}

#[test]
fn redis_benchmark() {
    let server = start(|_| {});
    let port = server.port.to_string();
    for pipeline in ["1", "16"] {
        let out = run(
            "redis-benchmark",
            &[
                "-p",
                &port,
                "-q",
                "-c",
                "20",
                "-n",
                "5000",
                "-P",
                pipeline,
                "-r",
                "100",
                "CL.THROTTLE",
                "key:__rand_int__",
                "100",
                "10",
                "1",
            ],
        );
        assert!(out.contains("requests per second"), "{out}");
    }
    let stats = server.service.limits().store().memory().expect("memory").stats();
    assert_eq!(stats.keys, 100);
    run("redis-benchmark", &["-p", &port, "-q", "-n", "1000", "-t", "ping"]);
}

const PYTHON: &str = r#"
import sys, redis
from redis.backoff import NoBackoff
from redis.retry import Retry
port, password = int(sys.argv[1]), sys.argv[2] or None
for protocol in (2, 3):
    client = redis.Redis(port=port, password=password, protocol=protocol, client_name="test", decode_responses=True)
    assert client.ping() is True
    assert client.client_getname() == "test"
    key = f"user:{protocol}"
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(1000):
            pipeline.execute_command("CL.THROTTLE", key, 2000, 1, 1)
        answers = pipeline.execute()
    assert [answer[0] for answer in answers] == [0] * 1000
    assert [answer[2] for answer in answers] == list(range(1999, 999, -1)), answers[:3]
    limited, limit, left, retry, full = client.execute_command("GCRA", key + ":g", 1, 4, 1, "TOKENS", 2)
    assert [limited, limit, left, float(retry), float(full)] == [0, 2, 0, -1.0, 0.5]
    assert isinstance(full, float) == (protocol == 3), full
    checked = client.execute_command("TIDEGATE.CHECK", "api", "user", key, "COST", 2)
    assert checked == [1, 2, 0, 0, 1000, "per-user"], checked
    assert client.execute_command("TIDEGATE.PEEK", "api", "nobody", "x") == [1, -1, -1, 0, 0, None]
    assert client.info("server")["redis_mode"] == "standalone"
    assert client.config_get("save") == {"save": ""}
    assert client.command_count() == 15
    assert "cl.throttle" in client.command()
    try:
        client.execute_command("CL.THROTTLE", key, 1, 0, 1)
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert str(error).startswith("count must be an integer"), error
    try:
        client.get("x")
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert str(error).startswith("unknown command"), error
    client.close()
for wrong in ("wrong", None):
    if password is None: continue
    try:
        redis.Redis(port=port, password=wrong, retry=Retry(NoBackoff(), 0)).ping()
        raise SystemExit("no error")
    except redis.AuthenticationError:
        pass
print("fine")
"#;

fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/python/bin/python");
    assert!(python.exists(), "{} is missing: run tools/install", python.display());
    python
}

#[test]
fn redis_py() {
    for password in ["", "secret"] {
        let server = start(|config| {
            config.resp_password =
                Some(password.to_owned()).filter(|password| !password.is_empty());
        });
        let port = server.port.to_string();
        assert_eq!(run(python(), &["-c", PYTHON, &port, password]), "fine\n");
    }
}
