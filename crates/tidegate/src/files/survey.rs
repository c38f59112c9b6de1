//! Which files there are, and what to watch to learn of others; nothing is opened.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::error::ReadError;
use super::links::{self, Broken, Why};

/// The largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most bytes in all files together.
pub const TOTAL_BYTES_MAX: u64 = 256 << 20;
/// The most files.
pub const FILES_MAX: usize = 10_000;
/// The most directories.
pub const FOLDERS_MAX: usize = 10_000;
/// How many directories deep files may lie below the one that was given.
pub const DEPTH_MAX: usize = 32;

/// A change so soon before a look may share its time with one that comes after: coarse clocks tick
/// every few milliseconds, and the file systems with the coarsest every two seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// What was found at one moment.
#[derive(Debug)]
pub(super) struct Survey {
    /// The files to read, in order.
    pub(super) files: Result<Vec<Found>, ReadError>,
    /// The directories on which that depends.
    pub(super) places: Places,
    taken: SystemTime,
}

/// A file to read.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    /// The path as given, with what lies below joined on.
    pub(super) name: PathBuf,
    /// The path without links.
    pub(super) real: PathBuf,
    stamp: Stamp,
}

/// By which a changed file is known without reading it.
#[derive(Debug, PartialEq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// When anything about it changed, which unlike `modified` nobody can set.
    changed: Option<SystemTime>,
    id: Option<(u64, u64)>,
}

/// Directories by their paths without links, and what in them matters.
pub(super) type Places = BTreeMap<PathBuf, Interest>;

/// What in a directory matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Interest {
    /// Every name but those that are passed over.
    all: bool,
    /// These names, whatever they are.
    names: BTreeSet<OsString>,
}

impl Interest {
    pub(super) fn covers(&self, name: &OsStr) -> bool {
        self.names.contains(name) || (self.all && !is_passed_over(name))
    }
}

impl Survey {
    /// Looks at paths, each absolute with the name it was given by.
    pub(super) fn take<'p>(roots: impl Iterator<Item = (&'p Path, &'p Path)>) -> Self {
        let taken = SystemTime::now();
        let mut walk = Walk::default();
        let mut outcome = Err(ReadError::NoPath);
        for (name, path) in roots {
            outcome = walk.root(name, path);
            if outcome.is_err() {
                break;
            }
        }
        Self { files: outcome.map(|()| walk.files), places: walk.places, taken }
    }

    /// Whether both found the same, as far as can be told without reading.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = match (&self.files, &other.files) {
            (Ok(files), Ok(others)) => files == others,
            (Err(error), Err(other)) => error.to_string() == other.to_string(),
            _ => false,
        };
        same && self.places == other.places
    }

    /// Whether an equal survey later on means that nothing was written in between.
    pub(super) fn is_settled(&self) -> bool {
        let before = |time: Option<SystemTime>| {
            let age = time.and_then(|time| self.taken.duration_since(time).ok());
            age.is_some_and(|age| age >= SETTLED_AFTER)
        };
        let settled = |found: &Found| {
            before(found.stamp.modified)
                && (found.stamp.changed.is_none() || before(found.stamp.changed))
        };
        self.files.as_ref().is_ok_and(|files| files.iter().all(settled))
    }
}

#[derive(Default)]
struct Walk {
    files: Vec<Found>,
    places: Places,
    folders: usize,
    /// How many files were met, also those met again.
    seen: usize,
    /// The names in `files`: a file is read once, also when its directory was given too.
    known: HashSet<PathBuf>,
    /// The directories between the root and here, by their paths without links.
    above: Vec<PathBuf>,
}

impl Walk {
    fn root(&mut self, name: &Path, path: &Path) -> Result<(), ReadError> {
        let (real, metadata) = self.resolve(name, path)?;
        if metadata.is_file() {
            return self.file(name.to_owned(), real, &metadata);
        }
        if !metadata.is_dir() {
            let kind = kind_of(metadata.file_type());
            return Err(ReadError::NotAFile { path: name.to_owned(), kind });
        }
        let seen = self.seen;
        self.folder(name, real)?;
        if self.seen == seen {
            return Err(ReadError::EmptyDirectory { path: name.to_owned() });
        }
        Ok(())
    }

    /// Where a path leads.
    fn resolve(&mut self, name: &Path, path: &Path) -> Result<(PathBuf, Metadata), ReadError> {
        let places = &mut self.places;
        let mark = |folder: &Path, name: &OsStr| {
            places.entry(folder.to_owned()).or_default().names.insert(name.to_owned());
        };
        let real = links::follow(path, mark).map_err(|broken| broken_way(name, broken))?;
        let metadata = real.metadata().map_err(|error| unreadable(name, "look at it", error))?;
        Ok((real, metadata))
    }

    fn file(&mut self, name: PathBuf, real: PathBuf, data: &Metadata) -> Result<(), ReadError> {
        self.seen += 1;
        if !self.known.insert(name.clone()) {
            return Ok(());
        }
        if self.files.len() == FILES_MAX {
            return Err(ReadError::TooManyFiles { path: name });
        }
        self.files.push(Found { name, real, stamp: Stamp::of(data) });
        Ok(())
    }

    fn folder(&mut self, name: &Path, real: PathBuf) -> Result<(), ReadError> {
        // A link to a directory that it lies in: what is there is being read already.
        if self.above.contains(&real) {
            return Ok(());
        }
        self.folders += 1;
        if self.folders > FOLDERS_MAX {
            return Err(ReadError::TooManyFiles { path: name.to_owned() });
        }
        if self.above.len() > DEPTH_MAX {
            return Err(ReadError::TooDeep { path: name.to_owned() });
        }
        self.places.entry(real.clone()).or_default().all = true;
        let entries = entries(name, &real)?;
        self.above.push(real.clone());
        for (entry, kind) in entries {
            self.entry(name.join(&entry), real.join(&entry), kind)?;
        }
        self.above.pop();
        Ok(())
    }

    fn entry(&mut self, name: PathBuf, path: PathBuf, kind: FileType) -> Result<(), ReadError> {
        let (real, metadata) = if kind.is_symlink() {
            self.resolve(&name, &path)?
        } else {
            match path.symlink_metadata() {
                Ok(metadata) => (path, metadata),
                // Gone since the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(unreadable(&name, "look at it", error)),
            }
        };
        if metadata.is_dir() {
            self.folder(&name, real)
        } else if metadata.is_file() {
            self.file(name, real, &metadata)
        } else {
            // Pipes, sockets and devices are no files of rules.
            Ok(())
        }
    }
}

/// What a directory holds, by name, without what is passed over.
fn entries(name: &Path, real: &Path) -> Result<Vec<(OsString, FileType)>, ReadError> {
    let failed = |error| unreadable(name, "list the directory", error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(real).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let entry_name = entry.file_name();
        if is_passed_over(&entry_name) {
            continue;
        }
        if entries.len() == FILES_MAX + FOLDERS_MAX {
            return Err(ReadError::TooManyFiles { path: name.to_owned() });
        }
        entries.push((entry_name, entry.file_type().map_err(failed)?));
    }
    entries.sort_unstable_by(|(name, _), (other, _)| name.cmp(other));
    Ok(entries)
}

/// Whether a name in a directory is not that of a rule file: hidden, as the directories of
/// Kubernetes' volumes (`..data`) and swap files are, or what an editor leaves behind.
fn is_passed_over(name: &OsStr) -> bool {
    const ENDS: [&[u8]; 6] = [b"~", b".swp", b".swx", b".tmp", b".bak", b".orig"];
    let name = name.as_encoded_bytes();
    name.starts_with(b".")
        || ENDS.iter().any(|end| name.ends_with(end))
        || (name.len() > 1 && name.starts_with(b"#") && name.ends_with(b"#"))
        // The file by which Vim tries whether it can write.
        || name == b"4913"
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let (changed, id) = {
            use std::os::unix::fs::MetadataExt as _;
            let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
            let nanos = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
            let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos));
            (changed, Some((metadata.dev(), metadata.ino())))
        };
        #[cfg(not(unix))]
        let (changed, id) = (None, None);
        Self { bytes: metadata.len(), modified: metadata.modified().ok(), changed, id }
    }
}

fn broken_way(name: &Path, broken: Broken) -> ReadError {
    let path = name.to_owned();
    match broken.why {
        Why::Loop => ReadError::LinkLoop { path },
        Why::Error(error) if error.kind() != io::ErrorKind::NotFound => {
            unreadable(name, "find it", error)
        }
        Why::Error(_) if broken.by_link => ReadError::DanglingLink { path, target: broken.at },
        Why::Error(_) => ReadError::NotFound { path },
    }
}

pub(super) fn unreadable(name: &Path, doing: &'static str, error: io::Error) -> ReadError {
    let path = name.to_owned();
    if error.kind() == io::ErrorKind::NotFound {
        return ReadError::NotFound { path };
    }
    ReadError::Unreadable { path, doing, source: Arc::new(error) }
}

/// What something is that is neither a file nor a directory.
pub(super) fn kind_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() { "a directory" } else { "not a regular file" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rule_files_and_others() {
        let passed_over = [
            "..data",
            "..2026_11_16_01_48_00.123456789",
            ".rules.yaml.swp",
            ".#rules.yaml",
            "rules.yaml~",
            "rules.swp",
            "rules.swx",
            "rules.yaml.tmp",
            "rules.yaml.bak",
            "rules.yaml.orig",
            "#rules.yaml#",
            "4913",
        ];
        for name in passed_over {
            assert!(is_passed_over(OsStr::new(name)), "{name}");
        }
        for name in ["rules.yaml", "rules", "#", "#1.yaml", "49130", "bak", "a.b.yml", "data.."] {
            assert!(!is_passed_over(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn what_was_just_written_is_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "domain: a").unwrap();
        let mut survey = Survey::take([(&*path, &*path)].into_iter());
        assert!(!survey.is_settled());
        survey.taken += 2 * SETTLED_AFTER;
        assert!(survey.is_settled());
        survey.taken -= 10 * SETTLED_AFTER;
        assert!(!survey.is_settled(), "a time to come says nothing");
    }
}
