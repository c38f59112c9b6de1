//! Rules from files: what is read, what is refused, and that no change goes unseen.
//!
//! Nothing here sleeps. Tests wait for what they expect, and `PATIENCE` is how long until they give
//! up on it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate::files::{Cause, FILES_MAX, ReadError, Reload, RuleFiles, Watch, WatchOptions};
use tidegate::rules::Options;

#[allow(dead_code, reason = "the example's `main` is not called here")]
#[path = "../examples/watch_rules.rs"]
mod watch_rules;

const PATIENCE: Duration = Duration::from_secs(20);

fn rules(domain: &str) -> String {
    let limit = "rate_limit: { requests_per_unit: 2, unit: second }";
    format!("domain: {domain}\ndescriptors:\n  - key: user\n    {limit}\n")
}

/// A directory with a path free of links.
struct Folder {
    path: PathBuf,
    _kept: TempDir,
}

impl Folder {
    fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        Self { path: kept.path().canonicalize().unwrap(), _kept: kept }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file, and the directories it lies in.
    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// The files that are read, by what lies below this directory.
    fn read(&self) -> Vec<String> {
        let texts = RuleFiles::new([&self.path]).read().unwrap();
        texts.names().map(|name| self.below(name)).collect()
    }

    fn below(&self, name: &str) -> String {
        Path::new(name).strip_prefix(&self.path).unwrap().to_str().unwrap().to_owned()
    }
}

fn refused(path: &Path) -> (ReadError, String) {
    let error = RuleFiles::new([path]).read().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("`{}", path.display())), "{text}");
    (error, text)
}

fn pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

mod reading {
    use super::*;

    #[test]
    fn a_directory_is_read_in_the_order_of_its_paths() {
        let folder = Folder::new();
        for name in ["b.yaml", "a/z.yaml", "a.yaml", "a/b/c.yml", "no-extension", "C.yaml"] {
            folder.write(name, rules(name));
        }
        let order = ["C.yaml", "a/b/c.yml", "a/z.yaml", "a.yaml", "b.yaml", "no-extension"];
        assert_eq!(folder.read(), order);

        let loaded = RuleFiles::new([&folder.path]).load(&Options::default()).unwrap();
        assert_eq!((loaded.report.files, loaded.report.rules), (6, 6), "{}", loaded.report);
        let texts = RuleFiles::new([&folder.path]).read().unwrap();
        assert_eq!(texts.files()[4].text, rules("b.yaml"));
    }

    #[test]
    fn names_are_as_given() {
        let folder = Folder::new();
        folder.write("rules/a/b.yaml", rules("b"));
        let given = folder.at("./rules/../rules");
        let texts = RuleFiles::new([&given]).read().unwrap();
        let name = texts.names().next().unwrap();
        assert_eq!(name, given.join("a/b.yaml").to_str().unwrap());

        // Tests run in the directory of the crate.
        let texts = RuleFiles::new(["src/files"]).read().unwrap();
        assert_eq!(texts.names().next().unwrap(), "src/files/error.rs");
    }

    #[test]
    fn several_paths_keep_their_order_and_no_file_is_read_twice() {
        let folder = Folder::new();
        let (a, b) = (folder.write("a.yaml", "domain: a"), folder.write("b.yaml", "domain: b"));
        let files = RuleFiles::new([&b, &folder.path, &a, &b]);
        let texts = files.read().unwrap();
        let names: Vec<_> = texts.names().map(|name| folder.below(name)).collect();
        assert_eq!(names, ["b.yaml", "a.yaml"]);
        assert_eq!(files.paths().count(), 3);
        assert!(
            RuleFiles::new([&a, &b, &folder.path]).read().is_ok(),
            "nothing new, but not empty"
        );
    }

    #[test]
    fn leftovers_are_passed_over_unless_they_are_given() {
        let folder = Folder::new();
        folder.write("a.yaml", "domain: a");
        let leftovers = [
            ".a.yaml.swp",
            "a.yaml~",
            "a.swp",
            "a.swx",
            "a.tmp",
            "a.bak",
            "a.orig",
            "#a.yaml#",
            "4913",
        ];
        for name in leftovers {
            folder.write(name, "not rules");
        }
        folder.write(".git/config", "not rules");
        pipe(&folder.at("pipe"));
        assert_eq!(folder.read(), ["a.yaml"]);
        let given = RuleFiles::new([folder.at("a.bak")]).read().unwrap();
        assert_eq!(given.files()[0].text, "not rules");
    }

    #[test]
    fn links_are_followed_and_circles_left() {
        let folder = Folder::new();
        folder.write("elsewhere/x.yaml", "domain: x");
        folder.write("rules/a.yaml", "domain: a");
        folder.write("rules/sub/b.yaml", "domain: b");
        symlink("../elsewhere", folder.at("rules/linked")).unwrap();
        symlink("../elsewhere/x.yaml", folder.at("rules/x.yaml")).unwrap();
        symlink(folder.at("rules"), folder.at("rules/sub/circle")).unwrap();
        symlink(".", folder.at("rules/self")).unwrap();
        symlink("rules", folder.at("to-rules")).unwrap();
        let texts = RuleFiles::new([folder.at("to-rules")]).read().unwrap();
        let names: Vec<_> = texts.names().map(|name| folder.below(name)).collect();
        let expected = ["a.yaml", "linked/x.yaml", "sub/b.yaml", "x.yaml"];
        assert_eq!(names, expected.map(|name| format!("to-rules/{name}")));
    }

    #[test]
    fn links_that_lead_nowhere_are_errors() {
        let folder = Folder::new();
        folder.write("a.yaml", "domain: a");
        symlink("gone.yaml", folder.at("b.yaml")).unwrap();
        let (error, text) = refused(&folder.path);
        assert!(matches!(error, ReadError::DanglingLink { .. }), "{text}");
        assert!(text.contains("b.yaml`") && text.contains("gone.yaml`"), "{text}");

        symlink("one", folder.at("two")).unwrap();
        symlink("two", folder.at("one")).unwrap();
        let (error, text) = refused(&folder.at("one"));
        assert!(matches!(error, ReadError::LinkLoop { .. }), "{text}");
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let folder = Folder::new();
        let (error, text) = refused(&folder.at("none.yaml"));
        assert!(matches!(error, ReadError::NotFound { .. }), "{text}");
        assert!(text.contains("does not exist; create it"), "{text}");
        let (error, _) = refused(&folder.at("no/such/directory/a.yaml"));
        assert!(matches!(error, ReadError::NotFound { .. }));

        let file = folder.write("a.yaml", "domain: a");
        let (error, text) = refused(&file.join("b.yaml"));
        assert!(matches!(error, ReadError::Unreadable { .. }), "{text}");
        assert!(text.contains("a file is used as a directory"), "{text}");

        let none: [&Path; 0] = [];
        assert!(matches!(RuleFiles::new(none).read(), Err(ReadError::NoPath)));
        assert!(RuleFiles::new([""]).read().is_err());
    }

    #[test]
    fn an_empty_directory_is_an_error_also_where_a_file_was_meant() {
        let folder = Folder::new();
        let path = folder.at("rules.yaml");
        fs::create_dir(&path).unwrap();
        let (error, text) = refused(&path);
        assert!(matches!(error, ReadError::EmptyDirectory { .. }), "{text}");
        folder.write("rules.yaml/.hidden", "domain: a");
        assert!(matches!(refused(&path).0, ReadError::EmptyDirectory { .. }));
    }

    #[test]
    fn pipes_and_devices_are_not_read() {
        let folder = Folder::new();
        let path = folder.at("rules.yaml");
        pipe(&path);
        let (error, text) = refused(&path);
        assert!(matches!(error, ReadError::NotAFile { kind: "a pipe", .. }), "{text}");
        symlink("/dev/zero", folder.at("zero")).unwrap();
        let (error, text) = refused(&folder.at("zero"));
        assert!(matches!(error, ReadError::NotAFile { kind: "a device", .. }), "{text}");
    }

    #[test]
    fn what_is_not_text_is_an_error_with_its_place() {
        let folder = Folder::new();
        let path = folder.write("a.yaml", b"domain: a\n# caf\xe9\n");
        let (error, text) = refused(&path);
        assert!(
            matches!(error, ReadError::NotUtf8 { offset: 15, line: 2, utf16: false, .. }),
            "{text}"
        );
        assert!(text.contains("byte 15 (from 0), in line 2, is not UTF-8; save"), "{text}");
        let (_, text) = refused(&folder.write("b.yaml", b"\xff\xfed\0o\0"));
        assert!(text.contains("looks like UTF-16; save the file as UTF-8"), "{text}");
    }

    #[test]
    fn a_file_that_may_not_be_read_is_an_error() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new();
        let path = folder.write("a.yaml", "domain: a");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::File::open(&path).is_ok() {
            println!("not tested: this user may read everything");
            return;
        }
        let (error, text) = refused(&path);
        assert!(matches!(error, ReadError::Unreadable { .. }), "{text}");
        assert!(text.contains("cannot open the file"), "{text}");
        assert!(text.ends_with("let the user of this process read it"), "{text}");
    }

    #[test]
    fn there_may_be_ten_thousand_files_and_no_more() {
        let folder = Folder::new();
        for number in 0..FILES_MAX {
            folder.write(&format!("{number}.yaml"), "");
        }
        assert_eq!(folder.read().len(), 10_000);
        folder.write("one-more.yaml", "");
        let (error, text) = refused(&folder.path);
        assert!(matches!(error, ReadError::TooManyFiles { .. }), "{text}");
        assert!(text.contains("more than 10000 files"), "{text}");
    }

    #[test]
    fn directories_may_not_be_nested_without_end() {
        let folder = Folder::new();
        folder.write(&format!("{}a.yaml", "d/".repeat(32)), "domain: a");
        assert_eq!(folder.read().len(), 1);
        folder.write(&format!("{}b.yaml", "d/".repeat(33)), "domain: b");
        assert!(matches!(refused(&folder.path).0, ReadError::TooDeep { .. }));
    }

    #[test]
    fn large_files_are_refused_before_memory_is_full() {
        let folder = Folder::new();
        let path = folder.at("a.yaml");
        // Sparse: it takes no room.
        fs::File::create(&path).unwrap().set_len((64 << 20) + 1).unwrap();
        let (error, text) = refused(&path);
        assert!(matches!(error, ReadError::FileTooLarge { .. }), "{text}");
        assert!(text.contains("larger than 64 MiB"), "{text}");

        for name in ["a", "b", "c", "d", "e"] {
            fs::File::create(folder.at(&format!("{name}.yaml")))
                .unwrap()
                .set_len(52 << 20)
                .unwrap();
        }
        let (error, text) = refused(&folder.path);
        assert!(matches!(error, ReadError::TooManyBytes { .. }), "{text}");
        assert!(text.contains("e.yaml`") && text.contains("256 MiB together"), "{text}");
    }
}

/// A watch and what it tells.
struct Watched {
    watch: Watch,
    tells: Receiver<Reload>,
}

/// Each way of watching alone: no test of events is saved by polling.
#[derive(Clone, Copy)]
enum By {
    Events,
    Polls,
}

impl By {
    fn options(self) -> WatchOptions {
        match self {
            By::Events => WatchOptions::default().poll_every(Duration::from_secs(3600)),
            By::Polls => WatchOptions::default().poll_only(Duration::from_millis(5)),
        }
    }
}

impl Watched {
    fn new(path: &Path, options: WatchOptions) -> Self {
        let (told, tells) = mpsc::channel();
        let watch = RuleFiles::new([path]).watch(options, move |reload| {
            // Nobody listens any more when a test is over.
            let _ = told.send(reload);
        });
        Self { watch: watch.unwrap(), tells }
    }

    fn next(&self) -> Reload {
        self.tells.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits until these are the domains, whatever is told before: a change that takes several
    /// steps may be seen half done.
    fn until(&self, domains: &[&str]) {
        let begin = Instant::now();
        let mut told = Vec::new();
        while begin.elapsed() < PATIENCE {
            let Ok(reload) = self.tells.recv_timeout(PATIENCE) else { break };
            assert_eq!(reload.cause, Cause::Changed);
            assert!(reload.changed);
            assert_eq!(reload.notice, None);
            told.push(state(&reload));
            if told.last().unwrap().as_deref() == Ok(domains.join(" ").as_str()) {
                return;
            }
        }
        panic!("not {domains:?}, only {told:?}");
    }

    /// Waits until this is wrong.
    fn until_bad(&self, text: &str) {
        let begin = Instant::now();
        let mut told = Vec::new();
        while begin.elapsed() < PATIENCE {
            let Ok(reload) = self.tells.recv_timeout(PATIENCE) else { break };
            told.push(state(&reload));
            if told.last().unwrap().as_ref().is_err_and(|error| error.contains(text)) {
                return;
            }
        }
        panic!("not {text}, only {told:?}");
    }
}

/// The domains in order, or what is wrong.
fn state(reload: &Reload) -> Result<String, String> {
    let loaded = reload.loaded.as_ref().map_err(ToString::to_string)?;
    assert_eq!(reload.files.len(), loaded.report.files);
    let rules = loaded.rules.as_ref().ok_or(loaded.report.to_string())?;
    let mut domains: Vec<_> = rules.domains().collect();
    domains.sort_unstable();
    Ok(domains.join(" "))
}

fn written_in_place(by: By) {
    let folder = Folder::new();
    let path = folder.write("a.yaml", rules("one"));
    let watched = Watched::new(&path, by.options());
    for domain in ["two", "three", "four"] {
        fs::write(&path, rules(domain)).unwrap();
        watched.until(&[domain]);
    }
}

fn replaced_by_rename(by: By) {
    let folder = Folder::new();
    let path = folder.write("a.yaml", rules("one"));
    let watched = Watched::new(&path, by.options());
    for domain in ["two", "three", "four"] {
        fs::rename(folder.write("a.yaml.tmp", rules(domain)), &path).unwrap();
        watched.until(&[domain]);
    }
    // As Vim does with a backup.
    fs::rename(&path, folder.at("a.yaml~")).unwrap();
    folder.write("a.yaml", rules("five"));
    watched.until(&["five"]);
}

fn removed_and_made_again(by: By) {
    let folder = Folder::new();
    let path = folder.write("a.yaml", rules("one"));
    let watched = Watched::new(&path, by.options());
    for domain in ["two", "two", "three"] {
        fs::remove_file(&path).unwrap();
        watched.until_bad("does not exist");
        fs::write(&path, rules(domain)).unwrap();
        // Also when it is as it was: who was told of the error is told of its end.
        watched.until(&[domain]);
    }
}

fn absent_at_first(by: By) {
    let folder = Folder::new();
    let path = folder.at("not/yet/there/a.yaml");
    let watched = Watched::new(&path, by.options());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, rules("one")).unwrap();
    watched.until(&["one"]);
    fs::remove_dir_all(folder.at("not")).unwrap();
    watched.until_bad("does not exist");
    folder.write("not/yet/there/a.yaml", rules("two"));
    watched.until(&["two"]);
}

fn files_in_a_directory(by: By) {
    let folder = Folder::new();
    folder.write("rules/a.yaml", rules("a"));
    let watched = Watched::new(&folder.at("rules"), by.options());
    folder.write("rules/b.yaml", rules("b"));
    watched.until(&["a", "b"]);
    folder.write("rules/new/deep/c.yaml", rules("c"));
    watched.until(&["a", "b", "c"]);
    folder.write("rules/new/deep/c.yaml", rules("d"));
    watched.until(&["a", "b", "d"]);
    fs::remove_file(folder.at("rules/b.yaml")).unwrap();
    watched.until(&["a", "d"]);
    fs::rename(folder.at("rules/new"), folder.at("new")).unwrap();
    watched.until(&["a"]);
    fs::rename(folder.at("new"), folder.at("rules/old")).unwrap();
    watched.until(&["a", "d"]);
    fs::remove_dir_all(folder.at("rules")).unwrap();
    watched.until_bad("does not exist");
    folder.write("rules/e.yaml", rules("e"));
    watched.until(&["e"]);
}

fn a_directory_above_moved(by: By) {
    let folder = Folder::new();
    let path = folder.write("above/a.yaml", rules("one"));
    let watched = Watched::new(&path, by.options());
    fs::rename(folder.at("above"), folder.at("away")).unwrap();
    watched.until_bad("does not exist");
    fs::write(folder.at("away/a.yaml"), rules("two")).unwrap();
    fs::rename(folder.at("away"), folder.at("above")).unwrap();
    watched.until(&["two"]);
    fs::write(&path, rules("three")).unwrap();
    watched.until(&["three"]);
}

fn a_link_to_a_directory_turned(by: By) {
    let folder = Folder::new();
    folder.write("v1/rules/a.yaml", rules("one"));
    folder.write("v2/rules/a.yaml", rules("two"));
    folder.write("v3/rules/a.yaml", rules("three"));
    symlink("v1", folder.at("current")).unwrap();
    symlink("current/rules", folder.at("rules")).unwrap();
    for given in ["rules", "rules/a.yaml", "current/rules"] {
        let watched = Watched::new(&folder.at(given), by.options());
        for (version, domain) in [("v2", "two"), ("v3", "three"), ("v1", "one")] {
            symlink(version, folder.at("next")).unwrap();
            fs::rename(folder.at("next"), folder.at("current")).unwrap();
            watched.until(&[domain]);
        }
        // Not atomically, and with the new place watched as well.
        fs::remove_file(folder.at("current")).unwrap();
        symlink(folder.at("v2"), folder.at("current")).unwrap();
        watched.until(&["two"]);
        folder.write("v2/rules/a.yaml", rules("new"));
        watched.until(&["new"]);
        folder.write("v2/rules/a.yaml", rules("two"));
        watched.until(&["two"]);
        symlink("v1", folder.at("next")).unwrap();
        fs::rename(folder.at("next"), folder.at("current")).unwrap();
        watched.until(&["one"]);
    }
}

/// A volume of Kubernetes, written as kubelet's `AtomicWriter` does.
struct Volume<'f> {
    folder: &'f Folder,
    old: Option<String>,
}

impl Volume<'_> {
    fn update(&mut self, version: &str, files: &[(&str, &str)]) {
        let folder = self.folder;
        for (name, domain) in files {
            folder.write(&format!("volume/{version}/{name}"), rules(domain));
        }
        symlink(version, folder.at("volume/..data_tmp")).unwrap();
        fs::rename(folder.at("volume/..data_tmp"), folder.at("volume/..data")).unwrap();
        for (name, _) in files {
            let link = folder.at(&format!("volume/{name}"));
            if link.symlink_metadata().is_err() {
                symlink(Path::new("..data").join(name), link).unwrap();
            }
        }
        for entry in fs::read_dir(folder.at("volume")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.starts_with("..") && files.iter().all(|(file, _)| *file != name) {
                fs::remove_file(folder.at("volume").join(name)).unwrap();
            }
        }
        if let Some(old) = self.old.replace(version.to_owned()) {
            fs::remove_dir_all(folder.at("volume").join(old)).unwrap();
        }
    }
}

fn a_kubernetes_volume(by: By) {
    let folder = Folder::new();
    let mut volume = Volume { folder: &folder, old: None };
    volume.update("..2026_11_16_01.1", &[("a.yaml", "a1"), ("b.yaml", "b1")]);
    assert_eq!(folder.read(), ["volume/a.yaml", "volume/b.yaml"]);

    let whole = Watched::new(&folder.at("volume"), by.options());
    let single = Watched::new(&folder.at("volume/a.yaml"), by.options());
    volume.update("..2026_11_16_02.2", &[("a.yaml", "a2"), ("b.yaml", "b2")]);
    whole.until(&["a2", "b2"]);
    single.until(&["a2"]);
    volume.update("..2026_11_16_03.3", &[("a.yaml", "a3"), ("b.yaml", "b2"), ("c.yaml", "c")]);
    whole.until(&["a3", "b2", "c"]);
    single.until(&["a3"]);
    volume.update("..2026_11_16_04.4", &[("a.yaml", "a4")]);
    whole.until(&["a4"]);
    single.until(&["a4"]);
}

fn a_bad_file_and_its_recovery(by: By) {
    let folder = Folder::new();
    folder.write("b.yaml", rules("b"));
    let path = folder.write("a.yaml", rules("one"));
    let watched = Watched::new(&folder.path, by.options());
    fs::write(&path, "domain: one\ndescriptors:\n  - key: user\n    rate_limit: { requests_per")
        .unwrap();
    watched.until_bad("a.yaml:4:");
    fs::write(&path, "domain: one\ndescriptors:\n  - kee: user\n").unwrap();
    watched.until_bad("a.yaml:3:");
    fs::write(&path, b"\xff").unwrap();
    watched.until_bad("is not UTF-8");
    fs::remove_file(&path).unwrap();
    watched.until(&["b"]);
    fs::write(&path, rules("one")).unwrap();
    watched.until(&["b", "one"]);
}

macro_rules! both_ways {
    ($($name:ident),* $(,)?) => {
        mod by_events { $( #[test] fn $name() { super::$name(super::By::Events) } )* }
        mod by_polling { $( #[test] fn $name() { super::$name(super::By::Polls) } )* }
    };
}

both_ways!(
    written_in_place,
    replaced_by_rename,
    removed_and_made_again,
    absent_at_first,
    files_in_a_directory,
    a_directory_above_moved,
    a_link_to_a_directory_turned,
    a_kubernetes_volume,
    a_bad_file_and_its_recovery,
);

#[test]
fn being_asked_reloads_also_what_is_the_same() {
    let folder = Folder::new();
    let path = folder.write("a.yaml", rules("one"));
    let watched = Watched::new(&path, By::Events.options());
    for _ in 0..3 {
        watched.watch.reload();
        let reload = watched.next();
        assert_eq!((reload.cause, reload.changed), (Cause::Asked, false));
        assert_eq!(state(&reload).unwrap(), "one");
        assert_eq!(reload.files, [path.to_str().unwrap()]);
    }
    assert_eq!(watched.watch.notice(), None);
}

#[test]
fn what_changed_before_the_watch_is_told() {
    let folder = Folder::new();
    let path = folder.write("a.yaml", rules("one"));
    let texts = RuleFiles::new([&path]).read().unwrap();
    fs::write(&path, rules("two")).unwrap();
    let watched = Watched::new(&path, By::Events.options().since(texts));
    watched.until(&["two"]);
}

#[test]
fn dropping_the_watch_ends_it_at_once() {
    let folder = Folder::new();
    let path = folder.write("a.yaml", rules("one"));
    let watched = Watched::new(&path, By::Events.options().on_sighup(true));
    let begin = Instant::now();
    drop(watched.watch);
    assert!(begin.elapsed() < PATIENCE);
    // The callback is gone, and with it the sender.
    assert_eq!(watched.tells.try_recv().unwrap_err(), mpsc::TryRecvError::Disconnected);
}

#[test]
fn the_callback_may_drop_the_watch() {
    let folder = Folder::new();
    let path = folder.write("a.yaml", rules("one"));
    let slot = std::sync::Arc::new(std::sync::Mutex::new(None::<Watch>));
    let (told, tells) = mpsc::channel();
    let own = std::sync::Arc::clone(&slot);
    let watch = RuleFiles::new([&path]).watch(By::Events.options(), move |_| {
        own.lock().unwrap().take();
        told.send(()).unwrap();
    });
    slot.lock().unwrap().insert(watch.unwrap()).reload();
    tells.recv_timeout(PATIENCE).unwrap();
    let end = tells.recv_timeout(PATIENCE).unwrap_err();
    assert_eq!(end, mpsc::RecvTimeoutError::Disconnected);
}

mod sighup {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    const RULES: &str = "TIDEGATE_TEST_WATCH_RULES";

    /// Not a test by itself: the process that gets the signal.
    #[test]
    fn child() {
        if let Some(path) = std::env::var_os(RULES) {
            watch_rules::watch(RuleFiles::new([path])).unwrap();
        }
    }

    #[test]
    fn reloads_also_what_is_the_same() {
        let folder = Folder::new();
        let path = folder.write("a.yaml", rules("one"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sighup::child", "--nocapture"])
            .env(RULES, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (told, tells) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            // The test harness of the child talks too.
            let ours = |line: &String| line.contains(" rules ");
            lines.map_while(Result::ok).filter(ours).for_each(|line| told.send(line).unwrap());
        });
        let next = || tells.recv_timeout(PATIENCE).unwrap();
        assert!(next().ends_with("watching: 1 rules in 1 files"));
        let hang_up = || {
            let pid = child.id().to_string();
            assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
        };
        for _ in 0..3 {
            hang_up();
            assert_eq!(next(), "Signal: 1 rules in 1 files");
        }
        fs::rename(folder.write("a.tmp", "domain: ["), &path).unwrap();
        assert_eq!(next(), "Changed: the old rules stay, 1 errors");
        hang_up();
        assert_eq!(next(), "Signal: the old rules stay, 1 errors");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
