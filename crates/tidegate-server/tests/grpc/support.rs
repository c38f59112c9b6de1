//! A server in this process, and words to ask it with.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::{File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter, Timestamp, check_time_zone};
use tidegate_proto::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, RateLimitServiceClient, RateLimitUnit,
};
use tidegate_server::{Address, Config, Server, Service, ServiceClock};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

pub(crate) type Client = RateLimitServiceClient<Channel>;

/// 34 seconds into a minute, and 26 before the next.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1234);

/// How long anything may take that is not a matter of time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A server to be.
pub(crate) struct Setup {
    pub(crate) rules: String,
    pub(crate) options: Options,
    pub(crate) modes: Modes,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
}

impl Setup {
    pub(crate) fn new(rules: &str) -> Self {
        let mut config = Config::default();
        config.grpc = Address::Tcp("127.0.0.1:0".into());
        (config.http, config.resp) = (Address::Off, Address::Off);
        let mut options = Options::default();
        options.check_time_zone = check_time_zone;
        Self { rules: rules.to_owned(), options, modes: Modes::default(), config, now: NOW }
    }

    pub(crate) async fn start(self) -> Running {
        let Self { rules, options, modes, config, now } = self;
        let clock = ManualClock::at(now);
        let service = service(&rules, &options, modes, ServiceClock::Manual(clock.clone()));
        let server = Server::start(service, config).await.unwrap();
        Running { server, clock }
    }
}

pub(crate) fn service(
    rules: &str,
    options: &Options,
    modes: Modes,
    clock: ServiceClock,
) -> Arc<Service> {
    let loaded = Rules::load(&[File { name: "rules.yaml", text: rules }], options);
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    let limits = RuleLimiter::build(MemoryStore::new().into(), clock, loaded.rules.unwrap(), modes);
    Arc::new(Service::new(limits.unwrap(), 0.8))
}

/// A server by a clock that the test moves.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) clock: ManualClock,
}

impl Running {
    /// A server in the domain `d` that knows these descriptors.
    pub(crate) async fn with(descriptors: &str) -> Self {
        Setup::new(&domain(descriptors)).start().await
    }

    pub(crate) fn address(&self) -> String {
        self.server.bound().grpc.to_string()
    }

    pub(crate) async fn channel(&self) -> Channel {
        let url = format!("http://{}", self.address());
        Endpoint::from_shared(url).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.channel().await)
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

pub(crate) fn domain(descriptors: &str) -> String {
    format!("domain: d\ndescriptors:\n{descriptors}")
}

/// A descriptor written as `user=ada path=/`.
pub(crate) fn descriptor(written: &str) -> RateLimitDescriptor {
    let entries = written.split(' ').map(|pair| pair.split_once('=').unwrap());
    let entries = entries.map(|(key, value)| Entry { key: key.into(), value: value.into() });
    RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn with_limit(
    written: &str,
    requests_per_unit: u32,
    unit: RateLimitUnit,
) -> RateLimitDescriptor {
    let limit = RateLimitOverride { requests_per_unit, unit: unit.into() };
    RateLimitDescriptor { limit: Some(limit), ..descriptor(written) }
}

/// A request in the domain `d`.
pub(crate) fn request(descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: "d".into(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

pub(crate) async fn send(
    client: &mut Client,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    client.should_rate_limit(request).await.map(tonic::Response::into_inner)
}

/// Asks about descriptors written as `user=ada path=/`.
pub(crate) async fn ask(client: &mut Client, descriptors: &[&str]) -> RateLimitResponse {
    let all: Vec<_> = descriptors.iter().map(|written| descriptor(written)).collect();
    send(client, request(&all)).await.unwrap()
}

/// The one status there is.
pub(crate) fn only(response: &RateLimitResponse) -> &DescriptorStatus {
    let [status] = &response.statuses[..] else { panic!("{response:?}") };
    status
}

/// The codes of all statuses.
pub(crate) fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response.statuses.iter().map(DescriptorStatus::code).collect()
}

/// Seconds until there is more.
pub(crate) fn seconds(status: &DescriptorStatus) -> i64 {
    let duration = status.duration_until_reset.unwrap();
    assert_eq!(duration.nanos, 0, "whole seconds");
    duration.seconds
}

/// Python with what the tests need.
pub(crate) fn python() -> Command {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/python/bin/python3");
    assert!(Path::new(path).exists(), "there is no {path}: run tools/install");
    Command::new(path)
}
