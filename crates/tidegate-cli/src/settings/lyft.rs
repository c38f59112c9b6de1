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
    ("REDIS_URL", "counts are kept in memory, so that no Redis is needed for one machine"),
    ("REDIS_PERSECOND_URL", "counts are kept in memory"),
    ("MEMCACHE_HOST_PORT", "counts are kept in memory"),
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

fn tls(environment: &Environment, name: &str) -> Option<String> {
    let is_on = environment.get("GRPC_SERVER_USE_TLS").is_some_and(|value| value == "true");
    environment.owned(name).filter(|_| is_on)
}
