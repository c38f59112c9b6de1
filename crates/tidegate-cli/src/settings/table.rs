//! All settings, once: flags, variables, the settings file, `tidegate config` and the reference
//! are made from this table.

/// A setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The name in the settings file; `--the-name` on the command line, `TIDEGATE_THE_NAME` in the
    /// environment.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// What stands for the value in help.
    pub(crate) value: &'static str,
    /// The value if nobody says anything; empty for none.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    One,
    /// On or off.
    Flag,
    /// Several, with commas between them or said several times.
    List,
    /// One that is not shown.
    Secret,
    /// A URL, which is shown without the user and the password that may be in it.
    Url,
}

impl Setting {
    /// The flag, without its dashes.
    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The variable.
    pub(crate) fn variable(&self) -> String {
        format!("TIDEGATE_{}", self.name.to_uppercase())
    }
}

const fn one(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> Setting {
    Setting { name, kind: Kind::One, value, default, help }
}

const fn flag(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Flag, value: "BOOL", default, help }
}

const fn list(name: &'static str, value: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::List, value, default: "", help }
}

const fn secret(name: &'static str, value: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Secret, value, default: "", help }
}

/// All of them, in the order of help and reference.
pub(crate) const SETTINGS: &[Setting] = &[
    list("rules", "PATH", "Files and directories with rules; built-in examples if none are given"),
    Setting {
        name: "store",
        kind: Kind::Url,
        value: "STORE",
        default: "memory",
        help: "Where to count: `memory`, or the URL of Redis or Valkey: `redis://`, `rediss://`, \
               `redis+unix://`, `redis+sentinel://`, `redis+cluster://`",
    },
    one(
        "store_prefix",
        "TEXT",
        "tg",
        "What keys in Redis begin with; those who share it share limits",
    ),
    one(
        "store_timeout",
        "DURATION",
        "10ms",
        "How long a decision may take before it is made without Redis",
    ),
    one(
        "store_in_flight",
        "COUNT",
        "10000",
        "How many commands may wait for Redis at once, on a connection",
    ),
    one("store_username", "NAME", "", "The user at Redis, instead of one in the URL"),
    secret("store_password", "PASSWORD", "The password at Redis, instead of one in the URL"),
    one("store_password_file", "PATH", "", "A file with that password"),
    one(
        "store_tls_ca",
        "PATH",
        "",
        "Certificates that vouch for Redis (PEM), instead of the system's",
    ),
    one("store_tls_cert", "PATH", "", "The certificate to show to Redis (PEM)"),
    one("store_tls_key", "PATH", "", "Its private key (PEM)"),
    one("sentinel_username", "NAME", "", "The user at Sentinels"),
    secret("sentinel_password", "PASSWORD", "The password at Sentinels"),
    flag("denial_cache", "true", "Remember refusals of Redis for as long as they hold"),
    one(
        "denial_cache_max_age",
        "DURATION",
        "1s",
        "For how long at the most: others may give back or reset",
    ),
    one("denial_cache_keys", "COUNT", "100000", "Of how many keys refusals are remembered"),
    one(
        "http",
        "ADDR",
        "127.0.0.1:8080",
        "Where to speak HTTP: `host:port`, `unix:/path` or `off`",
    ),
    one("grpc", "ADDR", "127.0.0.1:8081", "Where to speak Envoy's rate limit protocol, likewise"),
    one("resp", "ADDR", "127.0.0.1:6380", "Where to speak the protocol of Redis, likewise"),
    one(
        "gateway",
        "ADDR",
        "127.0.0.1:8000",
        "Where to be a gateway in front of upstreams, likewise; only if there are any",
    ),
    list(
        "upstream",
        "URL",
        "Where the gateway sends requests: `http://host:port`, `https://`, `h2c://`; with a name \
         before it (`api=http://…`) for routes; several of one name share the requests",
    ),
    list(
        "route",
        "ROUTE",
        "Which requests go where: `/api/** api`, `example.org/** web response=5s`; everything to \
         the only upstream if none are given",
    ),
    secret("admin_token", "TOKEN", "What administrators show who do not come from this machine"),
    one("admin_token_file", "PATH", "", "A file with the admin token"),
    secret("resp_password", "PASSWORD", "What RESP clients say in AUTH before anything else"),
    one("resp_password_file", "PATH", "", "A file with that password"),
    list("trusted_proxies", "CIDR", "Proxies whose word on the client's address is taken"),
    one(
        "forwarding",
        "HEADER",
        "x-forwarded-for",
        "The header in which they say it to the gateway: `x-forwarded-for` or `forwarded`",
    ),
    flag("proxy_protocol", "false", "Trusted proxies begin with the PROXY protocol at the gateway"),
    one(
        "gateway_domain",
        "DOMAIN",
        "",
        "The domain whose `http` section holds for the gateway; the only one that has such a section",
    ),
    one("gateway_threads", "COUNT", "0", "Threads for the gateway; 0 is one for every two cores"),
    one(
        "gateway_tls_cert",
        "PATH",
        "",
        "A certificate chain (PEM); the gateway then speaks TLS only",
    ),
    one("gateway_tls_key", "PATH", "", "Its private key (PEM)"),
    one(
        "gateway_tls_client_ca",
        "PATH",
        "",
        "Certificates that vouch for clients, who then need one",
    ),
    one("gateway_max_head", "SIZE", "16KiB", "The largest head of a request; 431 beyond"),
    one("gateway_max_target", "SIZE", "8KiB", "The longest target of a request; 414 beyond"),
    one("gateway_max_body", "SIZE", "64MiB", "The largest body of a request; 413 beyond"),
    one("gateway_head_timeout", "DURATION", "10s", "How long clients may take to send a head"),
    one("gateway_body_timeout", "DURATION", "30s", "How long they may stop while sending a body"),
    one(
        "gateway_idle_timeout",
        "DURATION",
        "75s",
        "How long their connections stay without request",
    ),
    one(
        "gateway_write_timeout",
        "DURATION",
        "30s",
        "How long they may stop while taking an answer",
    ),
    one(
        "upstream_connect_timeout",
        "DURATION",
        "3s",
        "How long connecting to an upstream may take",
    ),
    one(
        "upstream_response_timeout",
        "DURATION",
        "60s",
        "How long an upstream may take to begin its answer; 504 beyond",
    ),
    one(
        "upstream_idle_timeout",
        "DURATION",
        "60s",
        "How long it may stop on the way, or a tunnel be silent",
    ),
    one(
        "access_log",
        "WHERE",
        "off",
        "Where the gateway writes a line for each request: `stdout`, a file, or `off`",
    ),
    one("access_log_refusals", "COUNT", "1", "Of how many refusals one is written there"),
    list(
        "exempt_paths",
        "PATH",
        "Paths that the gateway lets through without asking, such as `/healthz`",
    ),
    flag("exempt_preflight", "true", "The gateway lets CORS preflights through without asking"),
    one("cost_header", "NAME", "", "The header in which upstreams say what a request has cost"),
    one("reserve_cost", "COUNT", "1", "What a request is counted with until that is known"),
    list(
        "free_statuses",
        "STATUS",
        "Answers that give back what was counted, where the rules say nothing: `404`, `5xx`",
    ),
    one("refused_status", "STATUS", "429", "The status of refusals by the gateway"),
    one("refused_body", "PATH", "", "A file with the body of refusals, instead of problem+json"),
    one("refused_body_type", "TYPE", "text/plain; charset=utf-8", "The media type of that file"),
    one(
        "retry_jitter",
        "DURATION",
        "0s",
        "Refused clients are told to come back up to so much later, at random",
    ),
    flag("expose_headers", "true", "Let scripts of other origins see the headers of limits"),
    flag("allowed_headers", "true", "Tell admitted clients of limits too, not only refused ones"),
    list(
        "header_names",
        "NAME=NAME",
        "Other names for headers of the gateway, such as `x-ratelimit-limit=x-limit`; `=off` for none",
    ),
    one("grpc_tls_cert", "PATH", "", "A certificate chain (PEM); gRPC then speaks TLS only"),
    one("grpc_tls_key", "PATH", "", "Its private key (PEM)"),
    one("grpc_tls_client_ca", "PATH", "", "Certificates that vouch for clients, who then need one"),
    one("http_tls_cert", "PATH", "", "A certificate chain (PEM); HTTP then speaks TLS only"),
    one("http_tls_key", "PATH", "", "Its private key (PEM)"),
    one("http_tls_client_ca", "PATH", "", "Certificates that vouch for clients, who then need one"),
    one("resp_tls_cert", "PATH", "", "A certificate chain (PEM); RESP then speaks TLS only"),
    one("resp_tls_key", "PATH", "", "Its private key (PEM)"),
    one("resp_tls_client_ca", "PATH", "", "Certificates that vouch for clients, who then need one"),
    one("max_keys", "COUNT", "4000000", "How many keys to keep in memory at the most"),
    one(
        "on_full",
        "WHAT",
        "evict",
        "What a new key meets then: `evict` the least harmful, `deny`, `allow`",
    ),
    one("snapshot", "PATH", "", "A file to keep counts in while the service is down"),
    one("snapshot_every", "DURATION", "1m", "How often to write it, beside the end"),
    one("max_connections", "COUNT", "20000", "How many connections each listener has at the most"),
    one("resp_threads", "COUNT", "0", "Threads for RESP; 0 is one for every two cores"),
    one("threads", "COUNT", "0", "Threads for gRPC and HTTP; 0 is one for every two cores"),
    one("drain", "DURATION", "10s", "How long requests under way may take after SIGTERM"),
    one("drain_delay", "DURATION", "0s", "How long to go on serving, unhealthy, before that"),
    flag("watch", "true", "Load rules again when their files change"),
    flag(
        "merge_domains",
        "false",
        "Let several files name one domain; their rules follow one another",
    ),
    flag("lyft_compat", "false", "Be like Lyft's service also where it is worse"),
    flag("shadow_mode", "false", "Refuse nobody: all rules only watch"),
    flag("quota_mode", "false", "Refuse only what all descriptors refuse"),
    flag("response_headers", "false", "Give Envoy headers for the client, as Lyft's service does"),
    one("limit_header", "NAME", "RateLimit-Limit", "The name of the header with the limit"),
    one("remaining_header", "NAME", "RateLimit-Remaining", "The name of the one with what is left"),
    one(
        "reset_header",
        "NAME",
        "RateLimit-Reset",
        "The name of the one with the seconds until all is",
    ),
    one(
        "x_ratelimit_reset",
        "FORM",
        "delta",
        "What X-RateLimit-Reset is: `delta` seconds, or since the `epoch`",
    ),
    flag("dynamic_metadata", "false", "Give Envoy the request back as dynamic metadata"),
    one(
        "near_limit_ratio",
        "SHARE",
        "0.8",
        "The part of a limit from which on Lyft's metrics say near",
    ),
    one(
        "log_level",
        "LEVEL",
        "info",
        "What to log: `error`, `warn`, `info`, `debug` (refusals too), `trace`",
    ),
    one("log_format", "FORMAT", "text", "How to log: `text` or `json`"),
];
