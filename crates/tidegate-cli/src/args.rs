//! What was typed.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::settings::Flags;

/// An exact rate limiter.
///
/// One engine as a library, a service and a gateway, with one rules file. The library, the service
/// and the tools for rules are here; the gateway is being built on them.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str =
    "Exit codes: 0 fine, 1 the answer is no, 2 the question could not be asked.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve limits: Envoy's rate limit protocol, HTTP and RESP
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Print every setting of the service, its value, and who said so
    Config(ConfigArgs),
    /// Say whether rules are right, and what is wrong with them
    Check(CheckArgs),
    /// Say which rules a request meets, why the others do not apply, and what they would answer
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Decide requests from JSON lines, in the time that they say
    #[command(after_help = REPLAY_EXAMPLE)]
    Replay(ReplayArgs),
    /// Print the JSON Schema of rule files, for editors that complete and check them
    Schema,
    /// Print a script that completes tidegate's commands in a shell
    #[command(
        after_help = "For example: tidegate completions bash > /etc/bash_completion.d/tidegate"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

const SERVE_EXAMPLES: &str = "\
Every setting is also a variable (--max-keys: TIDEGATE_MAX_KEYS) and a line of the settings file
(max_keys: 1000). A flag wins over a variable, a variable over the file. `tidegate config` with the
same flags says what came of it.

SIGHUP loads rules and certificates again, SIGTERM drains, a second one ends at once.

Examples:
  tidegate serve
  tidegate serve --rules rules.yaml --grpc 0.0.0.0:8081 --resp off";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tidegate explain --rules rules.yaml --domain api action=post user=ada
  tidegate explain --rules rules.yaml user=ada , ip=192.0.2.7
  tidegate explain --rules rules.yaml -X POST -H 'x-user-id: ada' https://example.com/v1/posts";

const REPLAY_EXAMPLE: &str = r#"Example:
  echo '{"t_ns": 0, "domain": "api", "descriptors": [[["user","ada"]]]}' |
    tidegate replay --rules rules.yaml

Each line: t_ns, domain, descriptors (or http: {method, url, headers, client_ip}),
cost (1), op (check, peek, up_to, force, refund, reset, acquire, release), id.
With --store redis://… t_ns is in whole microseconds."#;

/// How rules are read.
#[derive(Debug, clap::Args)]
pub(crate) struct Loading {
    /// Let several files name one domain; their rules follow one another
    #[arg(long)]
    pub(crate) merge_domains: bool,
    /// Be like Lyft's service also where it is worse: refused requests count, descriptors are
    /// decided one by one, patterns match over key_value
    #[arg(long)]
    pub(crate) lyft_compat: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) flags: Flags,
    /// How to answer
    #[arg(long, value_enum, default_value_t = ConfigFormat::Text)]
    pub(crate) format: ConfigFormat,
}

/// For whom to print settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// For the documentation: what settings there are
    Markdown,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Files and directories with rules
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) loading: Loading,
    /// Ask also whether Lyft's own service would load the files
    #[arg(long)]
    pub(crate) strict_lyft: bool,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Let warnings count as errors
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Check again whenever a file changes
    #[arg(long, conflicts_with = "format")]
    pub(crate) watch: bool,
}

/// For whom to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// A file or directory with rules
    #[arg(long, required = true)]
    pub(crate) rules: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) loading: Loading,
    /// The domain; needed only if the rules have several
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// The entries of a descriptor as KEY=VALUE, with a `,` between two descriptors; or a URL
    #[arg(required = true)]
    pub(crate) request: Vec<String>,
    /// The method of an HTTP request
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A header of an HTTP request
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// The address that the HTTP request comes from
    #[arg(long)]
    pub(crate) client_ip: Option<IpAddr>,
    /// What the request costs
    #[arg(long, default_value_t = 1)]
    pub(crate) cost: u64,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// A file or directory with rules
    #[arg(long, required = true)]
    pub(crate) rules: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) loading: Loading,
    /// Where to count: `memory`, or the URL of a Redis, in which keys of its own are used and
    /// removed at the end
    #[arg(long, default_value = "memory")]
    pub(crate) store: String,
    /// How many keys to remember at once
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) max_keys: usize,
}
