//! The system's word of changes in directories.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode};
use notify::{
    Error, ErrorKind, Event, EventHandler, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
};

use super::survey::Places;
use super::wake::Bell;

/// Watches directories and rings the bell when something in them changes that matters.
pub(super) struct Notifier {
    watcher: RecommendedWatcher,
    places: Arc<Mutex<Places>>,
    /// What is watched, and which directory that was: another may have taken its name.
    watched: HashMap<PathBuf, Identity>,
}

type Identity = Option<(u64, u64)>;

impl Notifier {
    pub(super) fn new(bell: Arc<Bell>) -> Result<Self, String> {
        let places = Arc::new(Mutex::new(Places::new()));
        let filter = Filter { bell, places: Arc::clone(&places) };
        let watcher = RecommendedWatcher::new(filter, notify::Config::default())
            .map_err(|error| refusal(None, &error))?;
        Ok(Self { watcher, places, watched: HashMap::new() })
    }

    /// Watches these places and no others, or says why not all of them can be watched.
    ///
    /// All are registered anew each time. For one that is still watched that changes nothing; one
    /// that was deleted and made again meanwhile would not be watched otherwise.
    pub(super) fn follow(&mut self, places: &Places) -> Result<(), String> {
        places.clone_into(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner));
        let watcher = &mut self.watcher;
        self.watched.retain(|path, identity| {
            let stays = places.contains_key(path) && *identity == identity_of(path);
            if !stays {
                // It fails when the directory is gone, and the watch with it.
                let _ = watcher.unwatch(path);
            }
            stays
        });
        let mut outcome = Ok(());
        for path in places.keys() {
            let identity = identity_of(path);
            let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) else {
                self.watched.insert(path.clone(), identity);
                continue;
            };
            match &error.kind {
                // Gone since it was found; its parent is watched, or the next look will tell.
                ErrorKind::PathNotFound => {}
                ErrorKind::MaxFilesWatch => return Err(refusal(Some(path), &error)),
                _ => outcome = Err(refusal(Some(path), &error)),
            }
        }
        outcome
    }
}

fn refusal(path: Option<&Path>, error: &Error) -> String {
    let subject = match path {
        Some(path) => format!("`{}`", path.display()),
        None => "rule files".to_owned(),
    };
    match &error.kind {
        ErrorKind::MaxFilesWatch => format!(
            "cannot watch {subject}: the system's limit of watches is reached (on Linux: raise \
             fs.inotify.max_user_watches)"
        ),
        ErrorKind::Io(source) if path.is_none() => format!(
            "cannot watch {subject}: {source} (on Linux, if there are too many: raise \
             fs.inotify.max_user_instances)"
        ),
        ErrorKind::Io(source) => format!("cannot watch {subject}: {source}"),
        _ => format!("cannot watch {subject}: {error}"),
    }
}

#[cfg(unix)]
fn identity_of(path: &Path) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity_of(_path: &Path) -> Identity {
    None
}

/// Lets through what matters. Reading is an event too: to answer it by reading would never end.
struct Filter {
    bell: Arc<Bell>,
    places: Arc<Mutex<Places>>,
}

impl EventHandler for Filter {
    fn handle_event(&mut self, event: Result<Event, Error>) {
        let matters = match &event {
            Ok(event) => self.matters(event),
            // Events may have been lost.
            Err(_) => true,
        };
        if matters {
            self.bell.change();
        }
    }
}

impl Filter {
    fn matters(&self, event: &Event) -> bool {
        let is_written = |access| access == AccessKind::Close(AccessMode::Write);
        if matches!(event.kind, EventKind::Access(access) if !is_written(access)) {
            return false;
        }
        if event.need_rescan() || event.paths.is_empty() {
            return true;
        }
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        event.paths.iter().any(|path| {
            // A directory itself: it was moved or removed, or its rights were changed.
            if places.contains_key(path) {
                return true;
            }
            match (path.parent().and_then(|parent| places.get(parent)), path.file_name()) {
                (Some(interest), Some(name)) => interest.covers(name),
                // Not a name we know the directory of: rather once too often.
                _ => true,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use notify::event::{CreateKind, Flag, ModifyKind, RenameMode};

    use super::*;
    use crate::files::RuleFiles;

    #[test]
    fn what_matters_is_let_through() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let rules = folder.join("rules");
        std::fs::create_dir(&rules).unwrap();
        let places = RuleFiles::new([&rules]).survey().places;
        let filter = Filter { bell: Arc::default(), places: Arc::new(Mutex::new(places)) };
        let matters = |kind, path: &Path| filter.matters(&Event::new(kind).add_path(path.into()));

        let made = EventKind::Create(CreateKind::File);
        assert!(matters(made, &rules.join("a.yaml")));
        assert!(!matters(made, &rules.join(".a.yaml.swp")));
        assert!(!matters(made, &folder.join("neighbour.yaml")));
        let moved = EventKind::Modify(ModifyKind::Name(RenameMode::From));
        assert!(matters(moved, &rules), "also seen from above");
        assert!(matters(moved, &folder), "the directory above");
        assert!(matters(made, Path::new("/who/knows")));
        assert!(filter.matters(&Event::new(EventKind::Other).set_flag(Flag::Rescan)));

        // Reading is no change. Were it answered by reading, that would never end.
        let access = |kind| matters(EventKind::Access(kind), &rules.join("a.yaml"));
        assert!(!access(AccessKind::Open(AccessMode::Any)));
        assert!(!access(AccessKind::Close(AccessMode::Read)));
        assert!(access(AccessKind::Close(AccessMode::Write)));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_on_the_way_matters_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("..1")).unwrap();
        std::fs::write(folder.join("..1/a.yaml"), "domain: a").unwrap();
        std::os::unix::fs::symlink("..1", folder.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/a.yaml", folder.join("a.yaml")).unwrap();
        let places = RuleFiles::new([&folder]).survey().places;
        let covers = |folder: &Path, name: &str| {
            places.get(folder).is_some_and(|interest| interest.covers(OsStr::new(name)))
        };
        assert!(covers(&folder, "..data"));
        assert!(covers(&folder, "a.yaml"));
        assert!(covers(&folder.join("..1"), "a.yaml"));
        assert!(!covers(&folder, "..data_tmp"));
        assert!(!covers(&folder, "..1"));
    }
}
