//! A service that speaks RESP alone, in a program of one's own.
//!
//! ```console
//! $ cargo run --release -p tidegate-server --example resp_server -- 127.0.0.1:6380 2
//! $ redis-cli -p 6380 CL.THROTTLE user:1 15 30 60
//! ```

use std::sync::Arc;

use tidegate::rules::{File, Options, Rules};
use tidegate::{MemoryStore, Modes, RuleLimiter};
use tidegate_server::{Address, Config, Server, Service, ServiceClock};

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 1000000, unit: second, algorithm: token_bucket }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:6380".into());
    let threads = arguments.next().unwrap_or_else(|| "0".into());
    let loaded = Rules::load(&[File { name: "rules.yaml", text: RULES }], &Options::default());
    let rules = loaded.rules.ok_or_else(|| loaded.report.to_string())?;
    let (store, clock) = (MemoryStore::new(), ServiceClock::system());
    let limits = RuleLimiter::build(store.into(), clock, rules, Modes::default())?;

    let mut config = Config::default();
    (config.grpc, config.http) = (Address::Off, Address::Off);
    config.resp = address.parse()?;
    config.resp_threads = threads.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let service = Arc::new(Service::new(limits, config.near_limit_ratio));
        let server = Server::start(service, config).await?;
        eprintln!("ready resp={}", server.bound().resp);
        tokio::signal::ctrl_c().await?;
        server.drain().await;
        Ok(())
    })
}
