//! Snapshots: what is remembered, in a file, so that long quotas survive a restart.
//!
//! A file is a header (magic, version, seed, time), the limits, the states and a checksum. All
//! numbers are little-endian. It is written beside its place and moved there when it is whole, and
//! only its owner may read it, because it holds the seed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip128::{Hasher128, SipHasher13};
use tidegate_core::{Ask, Inherit, Limit, State, Timestamp};

use super::{MemoryBuilder, MemoryStore};
use crate::fingerprint::{Fingerprint, Seed};
use crate::registry::{RegisterError, Registered};

const MAGIC: &[u8; 8] = b"tidegate";
const VERSION: u32 = 1;
/// The key of the checksum, which guards against accidents and not against forgers.
const CHECKSUM_KEY: [u64; 2] = [0x7469_6465, 0x6761_7465];

/// A store made from a snapshot, or an empty one and the reason why.
#[derive(Debug)]
pub struct Restored {
    /// The store, ready either way.
    pub store: MemoryStore,
    /// How many keys were restored; or why the file was not used.
    pub keys: Result<usize, SnapshotError>,
}

/// Why a snapshot could not be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be read or written.
    #[error("cannot {what} snapshot `{}`", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The file is something else.
    #[error("`{}` is not a tidegate snapshot", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
    },
    /// The file was written by another version.
    #[error(
        "snapshot `{}` has format version {found}, and this program reads version {known}",
        path.display()
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The version that is understood.
        known: u32,
    },
    /// The snapshot knows more limits than the store may.
    #[error("the limits of snapshot `{}` do not fit the store", path.display())]
    Limits {
        /// Which file.
        path: PathBuf,
        /// The bound that was met.
        #[source]
        source: RegisterError,
    },
    /// The file is cut off or has been changed.
    #[error("snapshot `{}` is damaged: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

impl MemoryStore {
    /// Writes what is remembered to a file, which replaces an older one when it is whole.
    ///
    /// Shards are written one after the other while others go on being used: each key is as it was
    /// at one moment, different keys at slightly different ones. Spent keys and reservations are
    /// left out.
    ///
    /// # Errors
    /// When the file cannot be written; an older one is then still in place.
    pub fn snapshot(&self, path: impl AsRef<Path>, now: Timestamp) -> Result<usize, SnapshotError> {
        let path = path.as_ref();
        let beside = beside(path);
        let written = self.write_snapshot(&beside, now).and_then(|keys| {
            fs::rename(&beside, path)?;
            sync_folder(path)?;
            Ok(keys)
        });
        written.map_err(|source| {
            // What is left of a failed attempt is of no use; that it may stay is no second error.
            let _ = fs::remove_file(&beside);
            SnapshotError::Io { what: "write", path: path.to_owned(), source }
        })
    }

    fn write_snapshot(&self, path: &Path, now: Timestamp) -> io::Result<usize> {
        let file = create_private(path)?;
        let mut out = Checked::new(BufWriter::new(file));
        out.bytes(MAGIC)?;
        out.u32(VERSION)?;
        out.u64(self.seed.words[0])?;
        out.u64(self.seed.words[1])?;
        out.u64(now.as_nanos())?;
        // Held, so that no limit is forgotten between its keys and itself.
        let _held = self.registry.all();
        let mut keys = 0;
        for shard in &self.shards {
            let mut batch = Vec::new();
            shard.lock().for_each(&self.registry, |entry| {
                if !entry.limit.limit().is_spent(entry.state, &Ask::at(now)) {
                    let words = entry.limit.limit().encode(entry.state);
                    batch.push((entry.fingerprint, entry.limit.index, words));
                }
            });
            keys += batch.len();
            for (fingerprint, limit, words) in batch {
                out.u32(TAG_KEY)?;
                out.u32(limit)?;
                out.u64(fingerprint.id)?;
                out.u32(u32::try_from(words.len()).map_err(io::Error::other)?)?;
                for word in words {
                    out.u64(word)?;
                }
            }
        }
        // After the keys, so that every limit that they name is there.
        for limit in self.registry.all() {
            out.u32(TAG_LIMIT)?;
            out.u32(limit.index)?;
            out.text(limit.id())?;
            out.text(&limit.limit().to_string())?;
        }
        out.u32(TAG_END)?;
        out.finish()?;
        Ok(keys)
    }
}

const TAG_KEY: u32 = 1;
const TAG_LIMIT: u32 = 2;
const TAG_END: u32 = 3;

impl MemoryBuilder {
    /// A store with what a snapshot remembers. Without a usable file it starts empty, and says why.
    ///
    /// The limits of the snapshot are known to the store under their ids. Register those in force
    /// as usual: where one has changed, what its keys have used is carried over.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    #[must_use]
    pub fn restore(self, path: impl AsRef<Path>, now: Timestamp) -> Restored {
        let path = path.as_ref();
        match read_snapshot(path) {
            Err(error) => Restored { store: self.build(), keys: Err(error) },
            Ok(snapshot) => {
                let store = self.build_with(snapshot.seed);
                match store.load(path, &snapshot, now) {
                    Ok(()) => Restored { keys: Ok(store.len()), store },
                    Err(error) => Restored { store: self.build(), keys: Err(error) },
                }
            }
        }
    }
}

/// A snapshot in memory, its checksum verified.
struct Snapshot {
    seed: Seed,
    limits: Vec<(u32, String, Limit)>,
    keys: Vec<(u64, u32, Vec<u64>)>,
}

impl MemoryStore {
    fn load(&self, path: &Path, snapshot: &Snapshot, now: Timestamp) -> Result<(), SnapshotError> {
        let ask = Ask::at(now);
        let mut limits = HashMap::new();
        for (index, id, limit) in &snapshot.limits {
            let known = self.registry.register(id, limit.clone(), Inherit::Used, Vec::new);
            let full = |source| SnapshotError::Limits { path: path.to_owned(), source };
            limits.insert(*index, known.map_err(full)?);
        }
        let stray = || damaged(path, "its states do not belong to its limits");
        for (id, index, words) in &snapshot.keys {
            let limit: &Registered = limits.get(index).ok_or_else(stray)?;
            let state: State = limit.limit().decode(words).ok_or_else(stray)?;
            if limit.limit().is_spent(&state, &ask) {
                continue;
            }
            // The key's own fingerprint, without the limit, tells where it belongs.
            let key = Fingerprint::of_key(id ^ limit.salt);
            let mut shard = self.shards[self.shard_of(key)].lock();
            shard.since_origin(now, &self.registry);
            // A smaller bound than before keeps what it can.
            let _ = shard.insert(key.under(limit.salt), limit, state, &ask, self.room());
        }
        Ok(())
    }
}

fn read_snapshot(path: &Path) -> Result<Snapshot, SnapshotError> {
    let io = |source| SnapshotError::Io { what: "read", path: path.to_owned(), source };
    let bytes = fs::read(path).map_err(io)?;
    let mut input = Input { path, rest: &bytes };
    if input.take(MAGIC.len()).ok() != Some(MAGIC) {
        return Err(SnapshotError::Foreign { path: path.to_owned() });
    }
    let found = input.u32()?;
    if found != VERSION {
        let path = path.to_owned();
        return Err(SnapshotError::Version { path, found, known: VERSION });
    }
    let (body, sum) = bytes
        .split_last_chunk::<16>()
        .ok_or_else(|| damaged(path, "it is cut off before its checksum"))?;
    if checksum(body) != u128::from_le_bytes(*sum) {
        return Err(damaged(path, "its checksum does not match; it was cut off or changed"));
    }
    let seed = Seed::new([input.u64()?, input.u64()?]);
    let _written_at = input.u64()?;
    let mut snapshot = Snapshot { seed, limits: Vec::new(), keys: Vec::new() };
    loop {
        match input.u32()? {
            TAG_KEY => snapshot.keys.push(input.key()?),
            TAG_LIMIT => snapshot.limits.push(input.limit()?),
            TAG_END => return Ok(snapshot),
            _ => return Err(damaged(path, "it holds a record of unknown kind")),
        }
    }
}

fn damaged(path: &Path, what: &'static str) -> SnapshotError {
    SnapshotError::Damaged { path: path.to_owned(), what }
}

/// Bytes that are read from the front, never beyond the end.
struct Input<'a> {
    path: &'a Path,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SnapshotError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| damaged(self.path, "it is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, SnapshotError> {
        let count = self.u32()? as usize;
        let bytes = self.take(count)?;
        std::str::from_utf8(bytes).map_err(|_| damaged(self.path, "a name in it is not text"))
    }

    fn key(&mut self) -> Result<(u64, u32, Vec<u64>), SnapshotError> {
        let limit = self.u32()?;
        let id = self.u64()?;
        let count = self.u32()? as usize;
        let bytes = self.take(count.saturating_mul(8))?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok((id, limit, words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }

    fn limit(&mut self) -> Result<(u32, String, Limit), SnapshotError> {
        let (index, id, text) = (self.u32()?, self.text()?.to_owned(), self.text()?);
        let limit = text.parse().map_err(|_| damaged(self.path, "a limit in it cannot be read"))?;
        Ok((index, id, limit))
    }
}

/// A writer that keeps a checksum of what went through it.
struct Checked<W> {
    out: W,
    sum: SipHasher13,
}

impl Checked<BufWriter<File>> {
    fn new(out: BufWriter<File>) -> Self {
        Self { out, sum: checksum_hasher() }
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.write(bytes);
        self.out.write_all(bytes)
    }

    fn u32(&mut self, number: u32) -> io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(&mut self, number: u64) -> io::Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.u32(u32::try_from(text.len()).map_err(io::Error::other)?)?;
        self.bytes(text.as_bytes())
    }

    /// The checksum goes last, and the file to the disk.
    fn finish(mut self) -> io::Result<()> {
        let sum = self.sum.finish128().as_u128();
        self.out.write_all(&sum.to_le_bytes())?;
        self.out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

fn checksum_hasher() -> SipHasher13 {
    SipHasher13::new_with_keys(CHECKSUM_KEY[0], CHECKSUM_KEY[1])
}

fn checksum(bytes: &[u8]) -> u128 {
    let mut hasher = checksum_hasher();
    hasher.write(bytes);
    hasher.finish128().as_u128()
}

/// Where a snapshot is written before it takes its place: in the same folder, so that moving it is
/// atomic.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Two snapshots at once, of one process or of two, must not write to the same file.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}.{count}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn create_private(path: &Path) -> io::Result<File> {
    // One left behind by a process that died may have other rights.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

/// Makes the move itself durable, where folders can be opened.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}
