//! The proxies that are compared, and the upstream behind them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use super::floor;
use crate::service::child::{Child, free_address, own_program};

/// How many threads a proxy has, and where everything runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) threads: usize,
    pub(super) place: Place,
}

/// Where everything runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Where the system likes.
    Free,
    /// The proxy, the upstream and the load share the first core: nobody is ever idle, so that
    /// nobody pays for being woken. The steadiest times.
    OneCore,
    /// The proxy on a machine that counts instructions, the rest where it likes.
    Callgrind,
}

impl Setting {
    pub(super) const ONE_CORE: Self = Self { threads: 1, place: Place::OneCore };
    pub(super) const ONE_THREAD: Self = Self { threads: 1, place: Place::Free };
    pub(super) const TWO_THREADS: Self = Self { threads: 2, place: Place::Free };
    pub(super) const CALLGRIND: Self = Self { threads: 1, place: Place::Callgrind };

    pub(super) fn name(self) -> &'static str {
        match (self.place, self.threads) {
            (Place::OneCore, _) => "one worker, everything on one core",
            (Place::Free, 1) => "one worker",
            (Place::Free, _) => "two workers",
            (Place::Callgrind, _) => "one worker, in callgrind",
        }
    }

    /// A program that runs as the setting says.
    pub(super) fn command(self, program: &str) -> Command {
        let wrapped = |wrapper: &str, arguments: &[&str]| {
            let mut command = Command::new(wrapper);
            command.args(arguments).arg(program);
            command
        };
        match self.place {
            Place::Free => Command::new(program),
            Place::OneCore => wrapped("taskset", &["-c", "0"]),
            Place::Callgrind => {
                let out = format!("--callgrind-out-file={}", callgrind_file("%p").display());
                wrapped("valgrind", &["--tool=callgrind", "--quiet", &out])
            }
        }
    }
}

/// Where callgrind writes what it has counted of a process.
pub(super) fn callgrind_file(id: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tidegate-bench-{}-callgrind.{id}", std::process::id()))
}

/// What a proxy does with the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    NoLimit,
    /// A limit that never refuses.
    Allowed,
    /// The same, of which those who are admitted are not told.
    Untold,
    /// A limit that lets about one in a hundred through.
    Refused,
    /// A limit that lets nothing through but the first request.
    AllRefused,
}

impl Case {
    pub(super) const ALL: [Self; 3] = [Self::NoLimit, Self::Allowed, Self::Refused];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoLimit => "no limit",
            Self::Allowed => "a limit that admits everything",
            Self::Untold => "a limit that admits everything and says nothing",
            Self::Refused => "a limit of 500 a second, which refuses 99 %",
            Self::AllRefused => "a limit that refuses everything",
        }
    }

    fn nginx(self) -> &'static str {
        match self {
            Self::NoLimit => "",
            Self::Allowed | Self::Untold => "limit_req zone=allowed burst=1000000 nodelay;",
            Self::Refused => "limit_req zone=refused burst=10 nodelay;",
            Self::AllRefused => "limit_req zone=all-refused;",
        }
    }

    fn haproxy(self) -> String {
        let most = match self {
            Self::NoLimit => return String::new(),
            Self::Allowed | Self::Untold => 1_000_000_000,
            Self::Refused => 500,
            Self::AllRefused => 0,
        };
        // Those that are refused are not counted: otherwise a client would be locked out.
        format!(
            "    http-request track-sc0 src table clients\n    \
             http-request deny deny_status 429 if {{ sc0_gpc0_rate ge {most} }}\n    \
             http-request sc-inc-gpc0(0)\n"
        )
    }

    fn tidegate(self) -> String {
        // A small burst, as for the others: a run of a second would begin by a second's worth.
        let (most, unit, burst) = match self {
            // What a file without limits is.
            Self::NoLimit => return "domain: bench\n".to_owned(),
            Self::Allowed | Self::Untold => (1_000_000_000, "second", 1_000_000_000),
            Self::Refused => (500, "second", 10),
            Self::AllRefused => (1, "hour", 1),
        };
        format!(
            "domain: bench\n\
             http: [ {{ descriptors: [ {{ ip: \"${{client_ip}}\" }} ] }} ]\n\
             descriptors:\n  - {{ key: ip, rate_limit: {{ requests_per_unit: {most}, unit: {unit}, \
             algorithm: token_bucket, burst: {burst} }} }}\n"
        )
    }
}

/// An nginx that answers everything by 1 KB.
pub(super) fn upstream(setting: Setting) -> Child {
    let body = "x".repeat(1024);
    let one = match setting.place {
        Place::OneCore => setting,
        Place::Free | Place::Callgrind => Setting::ONE_THREAD,
    };
    nginx(one, |address| {
        format!("server {{ listen {address}; location / {{ return 200 \"{body}\"; }} }}")
    })
}

/// An nginx with so much in its `http`, given where it is to listen.
pub(super) fn nginx(setting: Setting, http: impl FnOnce(&str) -> String) -> Child {
    let (address, files) = (free_address(), files());
    let dir = files.path().display();
    let workers = match setting.threads {
        1 => "master_process off;".to_owned(),
        threads => format!("worker_processes {threads};"),
    };
    let config = format!(
        "daemon off; {workers} pid {dir}/pid; error_log /dev/null crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {dir}/b;\n\
         proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;\n\
         scgi_temp_path {dir}/s; {} }}\n",
        http(&address)
    );
    let file = files.path().join("nginx.conf");
    std::fs::write(&file, config).expect("its settings");
    let mut command = setting.command("nginx");
    command.arg("-p").arg(files.path()).arg("-c").arg(&file).stderr(Stdio::null());
    let child = Child::told(&mut command, address).with_files(files);
    if setting.threads > 1 { child.with_workers() } else { child }
}

/// An nginx as a proxy, as it is usually set up.
pub(super) fn nginx_proxy(setting: Setting, case: Case, upstream: &str) -> Child {
    nginx_saying(setting, case, &Saying::default(), upstream)
}

/// An nginx that says as much as our gateway, to upstreams and to clients. What it says of limits is always
/// the same, since it does not know.
pub(super) fn nginx_saying_all(setting: Setting, case: Case, upstream: &str) -> Child {
    let add = |headers: &[(&str, &str)]| -> String {
        let each = headers.iter();
        each.map(|(name, value)| format!("add_header {name} '{value}' always; ")).collect()
    };
    let mut passing = "proxy_set_header X-Forwarded-Proto $scheme; \
        proxy_set_header X-Forwarded-Host $http_host; proxy_set_header Via \"1.1 nginx\"; \
        proxy_set_header Forwarded 'for=$remote_addr;host=\"$http_host\";proto=$scheme'; "
        .to_owned();
    if case != Case::NoLimit {
        passing += &add(&floor::ADMITTED);
    }
    let (content_type, told) = floor::REFUSED.split_last().expect("headers");
    let refusing = format!(
        "error_page 429 @refused; location @refused {{ internal; default_type {}; {}return 429 '{}'; }}",
        content_type.1,
        add(told),
        floor::PROBLEM,
    );
    nginx_saying(setting, case, &Saying { passing, refusing }, upstream)
}

/// What an nginx says beside what it says anyway.
#[derive(Default)]
struct Saying {
    /// Where it passes on.
    passing: String,
    /// Where it refuses.
    refusing: String,
}

fn nginx_saying(setting: Setting, case: Case, saying: &Saying, upstream: &str) -> Child {
    nginx(setting, |address| {
        format!(
            "limit_req_zone $binary_remote_addr zone=allowed:1m rate=1000000r/s;\n\
             limit_req_zone $binary_remote_addr zone=refused:1m rate=500r/s;\n\
             limit_req_zone $binary_remote_addr zone=all-refused:1m rate=1r/m;\n\
             limit_req_status 429; {}\n\
             server {{ listen {address}{}; {} location / {{ {} {NGINX_PASS} {} }} }}",
            nginx_upstream(upstream),
            reuse_port(setting),
            saying.refusing,
            case.nginx(),
            saying.passing,
        )
    })
}

/// Each worker has its own line of clients, as our threads have.
pub(super) fn reuse_port(setting: Setting) -> &'static str {
    if setting.threads > 1 { " reuseport" } else { "" }
}

/// The upstream of an nginx.
pub(super) fn nginx_upstream(upstream: &str) -> String {
    format!("upstream up {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}")
}

/// How an nginx passes requests on to `up`.
pub(super) const NGINX_PASS: &str = "proxy_pass http://up; proxy_http_version 1.1; \
    proxy_set_header Connection \"\"; proxy_set_header Host $host; \
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; add_header Via \"1.1 nginx\";";

/// A haproxy as a proxy, if there is one on this machine.
pub(super) fn haproxy_proxy(setting: Setting, case: Case, upstream: &str) -> Option<Child> {
    let table = "stick-table type ip size 100k expire 1m store gpc0,gpc0_rate(1s)";
    haproxy(setting, table, &case.haproxy(), upstream)
}

/// A haproxy with a table of clients and rules for requests.
pub(super) fn haproxy(setting: Setting, table: &str, rules: &str, upstream: &str) -> Option<Child> {
    if !has_haproxy() {
        return None;
    }
    let (address, files) = (free_address(), files());
    let threads = setting.threads;
    let config = format!(
        "global\n    nbthread {threads}\n    maxconn 8192\n\
         defaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    \
         timeout server 60s\n\
         frontend all\n    bind {address}\n    option forwardfor\n{rules}    \
         http-response add-header via \"1.1 haproxy\"\n    default_backend up\n\
         backend up\n    http-reuse always\n    server up {upstream}\n\
         backend clients\n    {table}\n"
    );
    let file = files.path().join("haproxy.cfg");
    std::fs::write(&file, config).expect("its settings");
    let mut command = setting.command("haproxy");
    command.arg("-q").arg("-db").arg("-f").arg(&file);
    Some(Child::told(&mut command, address).with_files(files))
}

/// Whether there is a haproxy. If there is none, that is said, once.
fn has_haproxy() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| {
        let is_there = version("haproxy", "-v").is_some();
        if !is_there {
            println!("\n**haproxy is not installed and is left out** (`tools/install` brings it).");
        }
        is_there
    })
}

/// The first line of what a program says of its version, if there is such a program.
pub(super) fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).lines().next()?.trim().to_owned())
}

/// A bare proxy: hyper and the client of hyper-util, with no limits.
pub(super) fn bare(setting: Setting, upstream: &str) -> Child {
    own(setting, "bare", upstream)
}

/// The least that our gateway could cost with hyper under it.
pub(super) fn floor_proxy(setting: Setting, case: Case, upstream: &str) -> Child {
    let name = match case {
        Case::NoLimit => "floor",
        Case::Allowed => "floor-admitting",
        Case::Untold => "floor-untold",
        Case::Refused => "floor-refusing",
        Case::AllRefused => "floor-refusing-all",
    };
    own(setting, name, upstream)
}

/// A proxy that is part of this program.
fn own(setting: Setting, name: &str, upstream: &str) -> Child {
    let program = own_program();
    let program = program.get_program().to_str().expect("a path in UTF-8");
    let mut command = setting.command(program);
    command.args(["serve", &format!("{name}:{}", setting.threads), upstream]);
    Child::telling(&mut command, |line| Some(line.to_owned()))
}

/// Our gateway.
pub(super) fn tidegate_proxy(setting: Setting, case: Case, upstream: &str) -> Child {
    let more: &[&str] = if case == Case::Untold { &["--allowed-headers=false"] } else { &[] };
    start_tidegate(setting, &case.tidegate(), more, upstream)
}

/// Our gateway with rules.
pub(super) fn tidegate(setting: Setting, rules: &str, upstream: &str) -> Child {
    start_tidegate(setting, rules, &[], upstream)
}

/// The program that users run, as they run it.
fn start_tidegate(setting: Setting, rules: &str, more: &[&str], upstream: &str) -> Child {
    let files = files();
    let file = files.path().join("rules.yaml");
    std::fs::write(&file, rules).expect("its rules");
    let url = format!("http://{upstream}");
    let threads = setting.threads.to_string();
    let mut command = setting.command(program().to_str().expect("a path in UTF-8"));
    command.args(["serve", "--upstream", &url, "--gateway", "127.0.0.1:0"]);
    command.args(["--gateway-threads", &threads, "--http", "off", "--grpc", "off"]);
    command.args(["--resp", "off", "--rules"]).arg(&file).args(more).stderr(Stdio::null());
    let child = Child::telling(&mut command, |ready| {
        let address = ready.split_once("gateway=")?.1.split(' ').next()?;
        Some(address.to_owned())
    });
    child.with_files(files)
}

/// The program that users run, built like this one.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let own = std::env::current_exe().expect("the program that runs");
        let dir = own.parent().expect("a folder");
        let program = dir.join("tidegate");
        match dir.file_name().and_then(|name| name.to_str()) {
            // Nobody measures that one, and the tests have built it.
            Some("debug") if program.exists() => {}
            Some("debug") | None => build("dev"),
            Some(profile) => build(profile),
        }
        program
    })
}

fn build(profile: &str) {
    eprintln!("building tidegate-cli, which is measured");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "tidegate-cli", "--profile", profile])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "tidegate-cli could not be built");
}

/// Finds or builds what will be needed, so that it is not in anybody's time.
pub(super) fn prepare() {
    program();
    has_haproxy();
}

/// A place for files.
fn files() -> TempDir {
    TempDir::with_prefix("tidegate-bench-").expect("a place for files")
}
