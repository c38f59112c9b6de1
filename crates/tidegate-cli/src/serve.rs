//! `tidegate serve`: the service, from its settings to its end.

mod gateway;
mod log;
mod notify;
mod signals;
mod store;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::RuleLimiter;
use tidegate::files::{Reload, RuleFiles, Texts, Watch, WatchOptions};
use tidegate::rules::{File, Rules};
use tidegate_gateway::Gateway;
use tidegate_server::{Bound, FrontEnd, Server, Service, ServiceClock};
use tracing::{error, info, warn};

use self::notify::notify;
use self::signals::{Signals, Wish};
use crate::args::ServeArgs;
use crate::failure::{Ending, Failure, NO, chain, say};
use crate::load::{modes, options, paint, shown};
use crate::settings::{Environment, Settings, Typed};

/// What is served when nobody gives rules.
const EXAMPLES: &str = include_str!("../../../examples/rules.yaml");
const EXAMPLES_NAME: &str = "built-in examples";

/// How often memory is looked over for keys that are spent, and certificates for new ones.
const TIDY_EVERY: Duration = Duration::from_secs(30);

/// Serves until it is told to end.
pub(crate) fn run(args: &ServeArgs) -> Ending {
    let began = Instant::now();
    let settings = Settings::resolve(&args.flags, &Environment::of_process())?;
    for note in &settings.notes {
        say(&format!("note: {note}\n"));
    }
    let typed = settings.typed()?;
    log::start(&typed);
    // A server needs a descriptor for each connection; systems give few unless asked.
    raise_open_files();
    // It accepts, and looks after things; requests have threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_name("tidegate")
        .build()
        .map_err(|error| Failure::new(format!("cannot start threads: {error}")))?;
    let ending = runtime.block_on(serve(typed, began));
    // What has not drained by now is not waited for.
    runtime.shutdown_background();
    ending
}

async fn serve(typed: Typed, began: Instant) -> Ending {
    // First of all, so that none is missed.
    let mut signals = Signals::listen()?;
    let (rules, texts) = load(&typed)?;
    let count = rules.all().len();
    let clock = ServiceClock::system();
    let store = store::open(&typed, &clock).await?;
    let mut modes = modes(&typed.loading);
    modes.shadow = typed.shadow_mode;
    modes.quota = typed.quota_mode;
    let limiter = RuleLimiter::build(store, clock, rules, modes)
        .map_err(|error| Failure::new(chain(&error)))?;
    let service = Arc::new(Service::new(limiter, typed.server.near_limit_ratio));
    let server = Server::start(Arc::clone(&service), typed.server.clone())
        .await
        .map_err(|error| start_failure(&error))?;
    let gateway = typed.gateway.as_ref().map(|choice| gateway::start(choice, &service));
    let (gateway, domain) = gateway.transpose()?.unzip();
    let address = gateway.as_ref().map_or("off".to_owned(), |it| it.address().to_string());
    let _watch = texts.map(|texts| watch(&typed, texts, &service, domain)).transpose()?;

    say_ready(server.bound(), &address, typed.store.name(), count)?;
    notify("READY=1");
    info!(rules = count, store = typed.store.name(), took = ?began.elapsed(), "ready");
    store::look_out(service.limits());
    if typed.rules.is_empty() {
        let gateway = gateway.as_ref().map(|_| &*address);
        say(&what_to_try(server.bound(), gateway));
    }
    let serving = Serving { service, server, gateway };
    look_after(&typed, &serving, &mut signals).await;

    notify("STOPPING=1");
    info!("draining");
    let Serving { service, server, gateway } = serving;
    let is_drained = tokio::select! {
        is_drained = drain(&typed, server, gateway) => is_drained,
        () = signals.end() => false,
    };
    store::close(&typed, service.limits());
    let asked = |front_end| service.decisions(front_end);
    let (grpc, http, resp) = (asked(FrontEnd::Grpc), asked(FrontEnd::Http), asked(FrontEnd::Resp));
    let gateway = asked(FrontEnd::Gateway);
    info!(grpc, http, resp, gateway, drained = is_drained, "ended");
    if !is_drained {
        warn!("connections were still open when time was up");
    }
    Ok(if is_drained { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// What runs.
struct Serving {
    service: Arc<Service>,
    server: Server,
    gateway: Option<Gateway>,
}

/// Ends all front ends at the same time. Whether that was done in the time that there was.
async fn drain(typed: &Typed, server: Server, gateway: Option<Gateway>) -> bool {
    let gateway = async {
        let Some(gateway) = gateway else { return true };
        // Whoever looks at health is to notice first.
        tokio::time::sleep(typed.server.drain_delay).await;
        gateway.drain().await
    };
    let (server, gateway) = tokio::join!(server.drain(), gateway);
    server && gateway
}

/// Does what is to be done now and then, until it is time to end.
async fn look_after(typed: &Typed, serving: &Serving, signals: &mut Signals) {
    let service = &serving.service;
    let mut tidy = tokio::time::interval(TIDY_EVERY);
    tidy.tick().await;
    let mut snapshot = tokio::time::interval(typed.snapshot_every.max(Duration::from_secs(1)));
    snapshot.tick().await;
    let keeps = typed.snapshot.is_some() && service.limits().store().memory().is_some();
    loop {
        tokio::select! {
            wish = signals.next() => match wish {
                Wish::End => return,
                Wish::Reload => renew_certificates(serving),
            },
            _ = tidy.tick() => {
                renew_certificates(serving);
                let limits = service.limits().clone();
                let swept = tokio::task::spawn_blocking(move || limits.store().sweep(limits.now()));
                // A panic in there has been reported.
                let _ = swept.await;
            }
            _ = snapshot.tick(), if keeps => {
                let (path, limits) = (typed.snapshot.clone(), service.limits().clone());
                let written = tokio::task::spawn_blocking(move || store::write(path, &limits));
                let _ = written.await;
            }
        }
    }
}

fn renew_certificates(serving: &Serving) {
    let of_gateway = serving.gateway.as_ref().map_or(Ok(()), Gateway::reload_tls);
    if let Err(error) = serving.server.reload_tls().and(of_gateway) {
        error!(error = %chain(&error), "the new certificate cannot be used; the old one stays");
    }
}

/// The rules, and the texts that they were made from unless they are built in.
fn load(typed: &Typed) -> Result<(Rules, Option<Texts>), Failure> {
    let options = options(&typed.loading);
    if typed.rules.is_empty() {
        let loaded = Rules::load(&[File { name: EXAMPLES_NAME, text: EXAMPLES }], &options);
        let rules = loaded.rules.ok_or_else(|| Failure::new("the built-in rules are broken"))?;
        return Ok((rules, None));
    }
    let texts = RuleFiles::new(&typed.rules).read();
    let texts = texts.map_err(|error| Failure::new(chain(&error)))?;
    let loaded = texts.load(&options);
    say(&shown(&loaded.report, paint()));
    match loaded.rules {
        Some(rules) => Ok((rules, Some(texts))),
        None => Err(Failure::new("the rules cannot be used")
            .hint("`tidegate check` says the same; nothing is served until they are right")),
    }
}

/// Follows the rule files.
fn watch(
    typed: &Typed,
    texts: Texts,
    service: &Arc<Service>,
    of_gateway: Option<String>,
) -> Result<Watch, Failure> {
    let service = Arc::clone(service);
    let mut options = WatchOptions::new(options(&typed.loading)).since(texts).on_sighup(true);
    if !typed.watch {
        // Only when asked to.
        options = options.poll_only(Duration::from_secs(365 * 86_400));
    }
    let files = RuleFiles::new(&typed.rules);
    let watch = files.watch(options, move |reload| {
        take_over(&service, reload, of_gateway.as_deref());
    });
    watch.map_err(|error| Failure::new(format!("cannot watch the rules: {}", chain(&error))))
}

/// `of_gateway` is the domain that holds for the gateway.
fn take_over(service: &Service, reload: Reload, of_gateway: Option<&str>) {
    if let Some(notice) = &reload.notice {
        warn!(%notice, "not all changes of rule files are told of at once");
    }
    let loaded = match reload.loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            service.reload_failed();
            error!(error = %chain(&error), "the rules cannot be read; the old ones stay");
            return;
        }
    };
    for warning in &loaded.report.warnings {
        warn!("{warning}");
    }
    let Some(rules) = loaded.rules else {
        service.reload_failed();
        for found in &loaded.report.errors {
            error!("{found}");
        }
        error!("the new rules are wrong; the old ones stay");
        return;
    };
    if let Some(domain) = of_gateway {
        gateway::warn_if_unlimited(domain, &rules);
    }
    let count = rules.all().len();
    match service.replace(rules) {
        Ok(()) => info!(rules = count, cause = ?reload.cause, "rules loaded"),
        Err(error) => {
            error!(error = %chain(&error), "the new rules cannot be enforced; the old ones stay")
        }
    }
}

/// The line that says where to ask: all of these accept by now.
fn say_ready(bound: &Bound, gateway: &str, store: &str, rules: usize) -> Result<(), Failure> {
    let Bound { http, grpc, resp, .. } = bound;
    let line = format!(
        "ready http={http} grpc={grpc} resp={resp} gateway={gateway} store={store} rules={rules}\n"
    );
    let mut out = std::io::stdout().lock();
    let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    match written {
        // Whoever started this may not listen.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => {
            other.map_err(|error| Failure::new(format!("cannot write to standard output: {error}")))
        }
    }
}

fn start_failure(error: &tidegate_server::StartError) -> Failure {
    let failure = Failure::new(chain(error));
    match error {
        tidegate_server::StartError::Bind { front_end, source, .. }
            if source.kind() == std::io::ErrorKind::AddrInUse =>
        {
            let name = front_end.as_str();
            failure.hint(format!(
                "another program listens there; choose with --{name} ADDR, or `--{name} off`"
            ))
        }
        _ => failure,
    }
}

/// What a newcomer may do next.
fn what_to_try(bound: &Bound, gateway: Option<&str>) -> String {
    let mut text = String::from(
        "\nNo rules were given, so these are examples. Two requests per second get through here:\n\n",
    );
    if let Some(gateway) = gateway {
        text.push_str(&format!("  curl -i http://{gateway}/v1/status\n"));
    }
    if let tidegate_server::Address::Tcp(http) = &bound.http {
        text.push_str(&format!(
            "  curl -i http://{http}/v1/check -d '{{\"domain\":\"examples\",\"http\":{{\"url\":\"/v1/status\"}}}}'\n"
        ));
    }
    if let tidegate_server::Address::Tcp(resp) = &bound.resp {
        let port = resp.rsplit_once(':').map_or("", |(_, port)| port);
        text.push_str(&format!("  redis-cli -p {port} TIDEGATE.CHECK examples server status\n"));
    }
    text.push_str(
        "\nYour own rules: tidegate serve --rules rules.yaml (docs/guide.md). Ctrl-C ends it.\n",
    );
    text
}

/// Asks the system for as many open files as it gives.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // That it stays as it was is no reason not to serve.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
