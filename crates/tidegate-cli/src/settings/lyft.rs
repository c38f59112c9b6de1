//! The variables that operators of Lyft's service set, and what they mean here.
//!
//! Some of them, such as `PORT`, have names that others use as well. They are read only where
//! `RUNTIME_ROOT` is set, without which nobody runs that service.

use super::Environment;

/// Of which setting a variable speaks.
pub(crate) struct Mapped {
    pub(crate) setting: &'static str,
    /// The variables, for people.
    pub(crate) variables: &'static str,
    read: fn(&Environment) -> Option<String>,
}

impl Mapped {
    /// What the variables say, if anything.
    pub(crate) fn value(&self, environment: &Environment) -> Option<String> {
        is_lyft(environment).then(|| (self.read)(environment)).flatten()
    }
}

/// Whether the variables of Lyft's service are there.
pub(crate) fn is_lyft(environment: &Environment) -> bool {
    environment.get("RUNTIME_ROOT").is_some()
}

/// Variables that change nothing here, though those who set them may think so: with what to do.
pub(crate) const UNUSED: &[(&str, &str)] = &[
    ("REDIS_PERSECOND", "limits per second are in the same Redis as all others"),
    ("REDIS_PERSECOND_URL", "limits per second are in the same Redis as all others"),
    ("REDIS_TIMEOUT", "it is about connecting; `store_timeout` is how long a decision may take"),
    ("REDIS_POOL_SIZE", "requests share a connection"),
    (
        "REDIS_PIPELINE_WINDOW",
        "what is to be sent is sent at once, together with what else there is",
    ),
    ("REDIS_PIPELINE_LIMIT", "`store_in_flight` bounds what waits for replies"),
    (
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        "the name is always verified; the URL may name the host as its certificate does",
    ),
    ("EXPIRATION_JITTER_MAX_SECONDS", "keys end when they are spent"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "a refused request consumes nothing"),
    ("MEMCACHE_HOST_PORT", "there is no store in Memcached"),
    ("CONFIG_TYPE", "rules come from files"),
    ("STATSD_HOST", "metrics are for Prometheus to fetch, at /metrics"),
    ("TRACING_ENABLED", "there are no traces yet"),
];

/// What is understood.
pub(crate) const MAPPED: &[Mapped] = &[
    Mapped {
        setting: "rules",
        variables: "RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY",
        read: |environment| {
            let root = environment.get("RUNTIME_ROOT")?;
            let mut path = std::path::PathBuf::from(root);
            path.push(environment.get("RUNTIME_SUBDIRECTORY").unwrap_or_default());
            path.push(environment.get("RUNTIME_APPDIRECTORY").unwrap_or("config"));
            Some(path.display().to_string())
        },
    },
    Mapped {
        setting: "store",
        variables: "BACKEND_TYPE (`memcache` is an error)",
        read: |environment| environment.owned("BACKEND_TYPE").filter(|kind| kind == "memcache"),
    },
    Mapped {
        setting: "store",
        variables: "REDIS_URL with REDIS_TYPE, REDIS_SOCKET_TYPE, REDIS_TLS",
        read: redis_url,
    },
    same("store_prefix", "CACHE_KEY_PREFIX", |e| e.owned("CACHE_KEY_PREFIX")),
    Mapped {
        setting: "store_username",
        variables: "REDIS_AUTH (what stands before `:`)",
        read: |environment| Some(user_of(environment.get("REDIS_AUTH")?)?.to_owned()),
    },
    Mapped {
        setting: "store_password",
        variables: "REDIS_AUTH",
        read: |environment| Some(password_of(environment.get("REDIS_AUTH")?).to_owned()),
    },
    same("store_tls_ca", "REDIS_TLS_CACERT", |e| e.owned("REDIS_TLS_CACERT")),
    same("store_tls_cert", "REDIS_TLS_CLIENT_CERT", |e| e.owned("REDIS_TLS_CLIENT_CERT")),
    same("store_tls_key", "REDIS_TLS_CLIENT_KEY", |e| e.owned("REDIS_TLS_CLIENT_KEY")),
    Mapped {
        setting: "sentinel_username",
        variables: "REDIS_SENTINEL_AUTH (what stands before `:`)",
        read: |environment| Some(user_of(environment.get("REDIS_SENTINEL_AUTH")?)?.to_owned()),
    },
    Mapped {
        setting: "sentinel_password",
        variables: "REDIS_SENTINEL_AUTH",
        read: |environment| Some(password_of(environment.get("REDIS_SENTINEL_AUTH")?).to_owned()),
    },
    Mapped {
        setting: "denial_cache",
        variables: "LOCAL_CACHE_SIZE_IN_BYTES (0 turns it off)",
        read: |environment| {
            let size = environment.get("LOCAL_CACHE_SIZE_IN_BYTES")?;
            Some((size != "0").to_string())
        },
    },
    Mapped {
        setting: "http",
        variables: "HOST, PORT",
        read: |environment| Some(address(environment, "HOST", "PORT", "8080")),
    },
    Mapped {
        setting: "grpc",
        variables: "GRPC_UDS, or GRPC_HOST, GRPC_PORT",
        read: |environment| match environment.get("GRPC_UDS") {
            Some(path) => Some(format!("unix:{path}")),
            None => Some(address(environment, "GRPC_HOST", "GRPC_PORT", "8081")),
        },
    },
    Mapped {
        setting: "grpc_tls_cert",
        variables: "GRPC_SERVER_TLS_CERT with GRPC_SERVER_USE_TLS",
        read: |environment| tls(environment, "GRPC_SERVER_TLS_CERT"),
    },
    Mapped {
        setting: "grpc_tls_key",
        variables: "GRPC_SERVER_TLS_KEY with GRPC_SERVER_USE_TLS",
        read: |environment| tls(environment, "GRPC_SERVER_TLS_KEY"),
    },
    Mapped {
        setting: "grpc_tls_client_ca",
        variables: "GRPC_CLIENT_TLS_CACERT with GRPC_SERVER_USE_TLS",
        read: |environment| tls(environment, "GRPC_CLIENT_TLS_CACERT"),
    },
    Mapped {
        setting: "watch",
        variables: "RUNTIME_WATCH_ROOT (either way files are watched)",
        read: |_| None,
    },
    same("merge_domains", "MERGE_DOMAIN_CONFIG", |e| e.owned("MERGE_DOMAIN_CONFIG")),
    same("shadow_mode", "SHADOW_MODE", |e| e.owned("SHADOW_MODE")),
    same("quota_mode", "QUOTA_MODE", |e| e.owned("QUOTA_MODE")),
    same("response_headers", "LIMIT_RESPONSE_HEADERS_ENABLED", |e| {
        e.owned("LIMIT_RESPONSE_HEADERS_ENABLED")
    }),
    same("limit_header", "LIMIT_LIMIT_HEADER", |e| e.owned("LIMIT_LIMIT_HEADER")),
    same("remaining_header", "LIMIT_REMAINING_HEADER", |e| e.owned("LIMIT_REMAINING_HEADER")),
    same("reset_header", "LIMIT_RESET_HEADER", |e| e.owned("LIMIT_RESET_HEADER")),
    same("dynamic_metadata", "RESPONSE_DYNAMIC_METADATA", |e| e.owned("RESPONSE_DYNAMIC_METADATA")),
    same("near_limit_ratio", "NEAR_LIMIT_RATIO", |e| e.owned("NEAR_LIMIT_RATIO")),
    Mapped {
        setting: "log_level",
        variables: "LOG_LEVEL",
        read: |environment| {
            let level = environment.get("LOG_LEVEL")?.to_lowercase();
            Some(match &*level {
                "warning" => "warn".to_owned(),
                "fatal" | "panic" => "error".to_owned(),
                _ => level,
            })
        },
    },
    same("log_format", "LOG_FORMAT", |e| e.owned("LOG_FORMAT")),
];

const fn same(
    setting: &'static str,
    variables: &'static str,
    read: fn(&Environment) -> Option<String>,
) -> Mapped {
    Mapped { setting, variables, read }
}

/// Lyft's service listens on all addresses if nobody says otherwise, and those who move from it
/// count on that.
fn address(environment: &Environment, host: &str, port: &str, default: &str) -> String {
    let host = environment.get(host).unwrap_or("0.0.0.0");
    let port = environment.get(port).unwrap_or(default);
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The URL that says what Lyft's variables say of Redis.
fn redis_url(environment: &Environment) -> Option<String> {
    let place = environment.get("REDIS_URL")?;
    let has_tls = environment.get("REDIS_TLS").is_some_and(|value| value == "true");
    let scheme = if has_tls { "rediss" } else { "redis" };
    let kind = environment.get("REDIS_TYPE").unwrap_or("single").to_lowercase();
    let socket = environment.get("REDIS_SOCKET_TYPE").unwrap_or_default().to_lowercase();
    Some(match &*kind {
        "cluster" => format!("{scheme}+cluster://{place}"),
        "sentinel" => {
            let (master, sentinels) = place.split_once(',').unwrap_or((place, ""));
            format!("{scheme}+sentinel://{sentinels}/{master}")
        }
        // A path is one whatever is said of it; not to say it means a path there.
        _ if place.starts_with('/') || socket == "unix" => format!("redis+unix://{place}"),
        _ => format!("{scheme}://{place}"),
    })
}

/// The user of `user:password`.
fn user_of(auth: &str) -> Option<&str> {
    auth.split_once(':').map(|(user, _)| user).filter(|user| !user.is_empty())
}

/// The password of `user:password`, or of nothing but a password.
fn password_of(auth: &str) -> &str {
    auth.split_once(':').map_or(auth, |(_, password)| password)
}

fn tls(environment: &Environment, name: &str) -> Option<String> {
    let is_on = environment.get("GRPC_SERVER_USE_TLS").is_some_and(|value| value == "true");
    environment.owned(name).filter(|_| is_on)
}
