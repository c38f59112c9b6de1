//! Who says what the service does: flags, variables, files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::process::{Command, Output};

use serde_json::Value;
use support::{Folder, text};

fn config(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.env_clear().envs(variables.iter().copied()).arg("config").args(arguments);
    command.output().unwrap()
}

/// Settings as JSON.
fn json(arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let output = config(&[&["--format", "json"], arguments].concat(), variables);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn one<'v>(settings: &'v Value, name: &str) -> (&'v str, &'v str) {
    let setting = &settings[name];
    (setting["value"].as_str().unwrap_or("-"), setting["source"].as_str().unwrap())
}

#[test]
fn a_flag_wins_over_a_variable_over_a_file_over_the_default() {
    let folder = Folder::new(&[(
        "tidegate.yaml",
        "max-keys: 100\ndrain: 3s\nhttp: 127.0.0.1:1\nshadow_mode: true\nrules: [a, b]\nsnapshot:\n",
    )]);
    let path = folder.path().join("tidegate.yaml");
    let path = path.to_str().unwrap();
    let variables = [("TIDEGATE_DRAIN", "4s"), ("TIDEGATE_HTTP", "127.0.0.1:2")];
    let settings = json(&["--config", path, "--http", "127.0.0.1:3"], &variables);
    assert_eq!(one(&settings, "http"), ("127.0.0.1:3", "--http"));
    assert_eq!(one(&settings, "drain"), ("4s", "TIDEGATE_DRAIN"));
    assert_eq!(one(&settings, "max_keys"), ("100", &*format!("{path}:1")));
    assert_eq!(one(&settings, "grpc"), ("127.0.0.1:8081", "default"));
    assert_eq!(settings["rules"]["value"], serde_json::json!(["a", "b"]));
    assert_eq!(settings["snapshot"]["value"], Value::Null);

    let by_variable = json(&[], &[("TIDEGATE_CONFIG", path), ("TIDEGATE_RULES", "c, d")]);
    assert_eq!(one(&by_variable, "shadow_mode").0, "true");
    assert_eq!(by_variable["rules"]["value"], serde_json::json!(["c", "d"]));
    let by_flag = json(&["--rules", "x", "--rules", "y,z", "--shadow-mode", "--watch=no"], &[]);
    assert_eq!(by_flag["rules"]["value"], serde_json::json!(["x", "y", "z"]));
    assert_eq!(one(&by_flag, "shadow_mode"), ("true", "--shadow-mode"));
    assert_eq!(one(&by_flag, "watch"), ("no", "--watch"));
}

#[test]
fn secrets_are_not_printed() {
    for format in ["text", "json"] {
        let output = config(&["--format", format, "--admin-token", "hunter2"], &[]);
        let printed = text(&output.stdout);
        assert!(printed.contains("(secret)") && !printed.contains("hunter2"), "{printed}");
        for url in
            ["redis://me:hunter2@host/1", "redis+cluster://:hunter2@a,b", "rodeos://hunter2@h"]
        {
            let output = config(&["--format", format, "--store", url], &[]);
            let printed = text(&output.stdout) + &text(&output.stderr);
            assert!(printed.contains("://(secret)@") && !printed.contains("hunter2"), "{printed}");
        }
    }
}

#[test]
fn lyfts_variables_mean_what_they_mean_there() {
    let variables = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("GRPC_PORT", "9081"),
        ("GRPC_HOST", "::"),
        ("SHADOW_MODE", "true"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "x-reset"),
        ("NEAR_LIMIT_RATIO", "0.5"),
        ("LOG_LEVEL", "WARNING"),
        ("MERGE_DOMAIN_CONFIG", "true"),
        ("REDIS_URL", "redis:6379"),
    ];
    let settings = json(&[], &variables);
    assert_eq!(settings["rules"]["value"], serde_json::json!(["/data/ratelimit/config"]));
    assert_eq!(one(&settings, "grpc").0, "[::]:9081");
    assert_eq!(one(&settings, "http").0, "0.0.0.0:8080", "as at Lyft's, all addresses");
    assert_eq!(one(&settings, "shadow_mode"), ("true", "SHADOW_MODE"));
    assert_eq!(one(&settings, "reset_header").0, "x-reset");
    assert_eq!(one(&settings, "near_limit_ratio").0, "0.5");
    assert_eq!(one(&settings, "log_level").0, "warn");
    assert_eq!(one(&settings, "merge_domains").0, "true");
    assert_eq!(one(&settings, "store").0, "redis://redis:6379");

    let ours = [&variables[..], &[("TIDEGATE_GRPC", "127.0.0.1:1")]].concat();
    assert_eq!(one(&json(&[], &ours), "grpc"), ("127.0.0.1:1", "TIDEGATE_GRPC"));
    let with_socket = [&variables[..], &[("GRPC_UDS", "/run/grpc")]].concat();
    assert_eq!(one(&json(&[], &with_socket), "grpc").0, "unix:/run/grpc");
}

#[test]
fn lyfts_variables_of_redis_mean_what_they_mean_there() {
    let root = ("RUNTIME_ROOT", "/data");
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)]);
    let cases: [Case<'_>; 6] = [
        (&[], &[("store", "memory"), ("store_prefix", "tg"), ("denial_cache", "true")]),
        (
            &[("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", "r:1"), ("REDIS_TLS", "true")],
            &[("store", "rediss://r:1")],
        ),
        (
            &[("REDIS_URL", "/run/redis.sock"), ("LOCAL_CACHE_SIZE_IN_BYTES", "0")],
            &[("store", "redis+unix:///run/redis.sock"), ("denial_cache", "false")],
        ),
        (
            &[("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", "a:1,b:2"), ("REDIS_AUTH", "hunter2")],
            &[
                ("store", "redis+cluster://a:1,b:2"),
                ("store_username", "-"),
                ("store_password", "(secret)"),
            ],
        ),
        (
            &[
                ("REDIS_TYPE", "sentinel"),
                ("REDIS_URL", "mymaster,s1:26379,s2:26379"),
                ("REDIS_AUTH", "me:hunter2"),
                ("REDIS_SENTINEL_AUTH", "you:hunter3"),
                ("CACHE_KEY_PREFIX", "prod"),
            ],
            &[
                ("store", "redis+sentinel://s1:26379,s2:26379/mymaster"),
                ("store_username", "me"),
                ("store_password", "(secret)"),
                ("sentinel_username", "you"),
                ("sentinel_password", "(secret)"),
                ("store_prefix", "prod"),
            ],
        ),
        (
            &[
                ("REDIS_URL", "r:1"),
                ("REDIS_TLS_CACERT", "/ca"),
                ("REDIS_TLS_CLIENT_CERT", "/cert"),
                ("REDIS_TLS_CLIENT_KEY", "/key"),
                ("LOCAL_CACHE_SIZE_IN_BYTES", "1000"),
            ],
            &[
                ("store_tls_ca", "/ca"),
                ("store_tls_cert", "/cert"),
                ("store_tls_key", "/key"),
                ("denial_cache", "true"),
            ],
        ),
    ];
    for (variables, wanted) in cases {
        let settings = json(&[], &[&[root], variables].concat());
        for (name, value) in wanted {
            assert_eq!(one(&settings, name).0, *value, "{variables:?}");
        }
    }
    let unused = [root, ("REDIS_URL", "r:1"), ("REDIS_PERSECOND", "true"), ("REDIS_TIMEOUT", "1s")];
    let told = text(&config(&[], &unused).stderr);
    assert!(told.contains("note: REDIS_PERSECOND is not used: limits per second"), "{told}");
    assert!(told.contains("note: REDIS_TIMEOUT is not used: it is about connecting"), "{told}");
    let memcache = config(&[], &[root, ("BACKEND_TYPE", "memcache")]);
    let told = text(&memcache.stderr);
    assert_eq!(memcache.status.code(), Some(2), "{told}");
    assert!(told.contains("`memcache` is not a store: there is none in Memcached"), "{told}");
}

#[test]
fn names_that_others_use_too_mean_nothing_without_lyfts_root() {
    let settings = json(&[], &[("PORT", "80"), ("HOST", "example"), ("LOG_LEVEL", "loud")]);
    assert_eq!(one(&settings, "http"), ("127.0.0.1:8080", "default"));
    assert_eq!(one(&settings, "log_level"), ("info", "default"));
}

#[test]
fn what_is_wrong_is_told_with_who_said_it() {
    let folder = Folder::new(&[
        ("unknown.yaml", "http: off\nmax_key: 5\n"),
        ("twice.yaml", "http: off\nhttp: off\n"),
        ("map.yaml", "http: {port: 5}\n"),
        ("broken.yaml", "http: [\n"),
        ("value.yaml", "\ndrain: soon\n"),
    ]);
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 12] = [
        (&["--config", "unknown.yaml"], &[], "unknown.yaml:2:1: unknown setting `max_key`"),
        (&["--config", "unknown.yaml"], &[], "did you mean `max_keys`?"),
        (&["--config", "twice.yaml"], &[], "twice.yaml:2:1:"),
        (&["--config", "map.yaml"], &[], "the value of `http` is a map"),
        (&["--config", "broken.yaml"], &[], "broken.yaml:"),
        (&["--config", "absent.yaml"], &[], "cannot read the settings in `absent.yaml`"),
        (&["--config", "value.yaml"], &[], "value.yaml:2: drain `soon` is not a duration"),
        (&["--drain", "10"], &[], "--drain `10` is not a duration\nhint: one number and one unit"),
        (&[], &[("TIDEGATE_MAX_KEYS", "many")], "TIDEGATE_MAX_KEYS: `many` is not a whole number"),
        (&["--on-full", "panic"], &[], "hint: one of `evict`, `deny`, `allow`"),
        (&["--http-tls-cert", "x"], &[], "hint: --http-tls-key names its file"),
        (&["--response-headers", "--limit-header", "a b"], &[], "is not the name of a header"),
    ];
    for (arguments, variables, complaint) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.env_clear().envs(variables.iter().copied()).current_dir(folder.path());
        let output = command.arg("config").args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(complaint), "{arguments:?}: {said}");
    }
}

#[test]
fn a_variable_of_ours_that_means_nothing_is_told() {
    let output = config(&[], &[("TIDEGATE_HTPP", "off")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).contains("note: TIDEGATE_HTPP is set, and there is no such setting")
    );
}

#[test]
fn secrets_may_be_in_files() {
    let folder = Folder::new(&[("token", "s3cret\n"), ("empty", "\n")]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = config(&["--admin-token-file", &path("token")], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = config(&["--admin-token-file", &path("empty")], &[]);
    assert!(text(&output.stderr).contains("is an empty file"), "{}", text(&output.stderr));
}

#[test]
fn a_flag_that_names_a_file_wins_over_a_variable_that_holds_the_secret() {
    // The file is not there, so that the error tells which of the two was looked at.
    let variables = [("TIDEGATE_ADMIN_TOKEN", "old")];
    let output = config(&["--admin-token-file", "/nowhere"], &variables);
    assert!(text(&output.stderr).contains("/nowhere"), "{}", text(&output.stderr));
    let output = config(&["--admin-token", "new"], &[("TIDEGATE_ADMIN_TOKEN_FILE", "/nowhere")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// `TIDEGATE_BLESS=1` writes the reference anew.
#[test]
fn the_reference_of_settings_is_what_the_program_knows() {
    let output = config(&["--format", "markdown"], &[]);
    let tables = text(&output.stdout);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- generated: settings -->\n", "<!-- end -->");
    let (before, rest) = page.split_once(begin).expect("the beginning of the tables");
    let (old, after) = rest.split_once(end).expect("the end of the tables");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(path, format!("{before}{begin}{tables}{end}{after}")).unwrap();
    } else {
        assert_eq!(old, tables, "docs/settings.md is stale; set TIDEGATE_BLESS=1 to write it");
    }
}
