//! The script that decides, its name at the server, and commands that call it.

use std::sync::LazyLock;

use crate::client::Command;
use crate::key::{decimal_len, name_in_slot, put_decimal};

/// The whole script, one file per algorithm.
pub(crate) const SCRIPT: &str = concat!(
    include_str!("../lua/head.lua"),
    include_str!("../lua/bucket.lua"),
    include_str!("../lua/interval.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_counter.lua"),
    include_str!("../lua/sliding_log.lua"),
    include_str!("../lua/concurrency.lua"),
    include_str!("../lua/wide.lua"),
    include_str!("../lua/warm_up.lua"),
    include_str!("../lua/tail.lua"),
);

/// What servers know the script by.
static SHA: LazyLock<String> = LazyLock::new(|| sha1_smol::Sha1::from(SCRIPT).digest().to_string());

/// What the script is asked to do; the numbers are those of `head.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ScriptOp {
    /// A check of one plain bucket.
    QuickBucket = 1,
    Check = 2,
    Peek = 3,
    Force = 4,
    Refund = 5,
    GiveBack = 6,
    Reset = 7,
    /// Reads all holders of permits.
    Dump = 8,
    /// Compares and sets.
    Swap = 9,
    /// Takes back what was just taken.
    Undo = 10,
    /// Writes something, to see whether the server does.
    Probe = 11,
    /// A check of plain buckets and fixed windows that are all enforced.
    Plain = 12,
}

/// Begins a command that calls the script with so many keys, each of which has to follow, and then
/// one argument.
pub(crate) fn begin(keys: usize, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(96 + capacity);
    out.push(b'*');
    put_decimal(&mut out, keys + 4);
    out.extend_from_slice(b"\r\n$7\r\nEVALSHA\r\n$40\r\n");
    out.extend_from_slice(SHA.as_bytes());
    out.extend_from_slice(b"\r\n");
    begin_argument(&mut out, decimal_len(keys));
    put_decimal(&mut out, keys);
    end_argument(&mut out);
    out
}

/// Begins an argument of so many bytes, which have to follow, and then `end_argument`.
pub(crate) fn begin_argument(out: &mut Vec<u8>, length: usize) {
    out.push(b'$');
    put_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Ends an argument.
pub(crate) fn end_argument(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Adds a whole argument.
pub(crate) fn put_argument(out: &mut Vec<u8>, argument: &[u8]) {
    begin_argument(out, argument.len());
    out.extend_from_slice(argument);
    end_argument(out);
}

/// Any other command.
pub(crate) fn command(slot: u16, arguments: &[&[u8]]) -> Command {
    let size: usize = arguments.iter().map(|argument| argument.len() + 16).sum();
    let mut bytes = Vec::with_capacity(16 + size);
    bytes.push(b'*');
    put_decimal(&mut bytes, arguments.len());
    bytes.extend_from_slice(b"\r\n");
    arguments.iter().for_each(|argument| put_argument(&mut bytes, argument));
    Command { slot, bytes }
}

/// What every request of the script begins with.
pub(crate) struct Head {
    pub(crate) op: ScriptOp,
    pub(crate) flags: u8,
    /// A bit for each algorithm that is needed.
    pub(crate) kinds: u8,
    /// In microseconds; negative for the server's own.
    pub(crate) now: f64,
    pub(crate) holder: u128,
    pub(crate) quotas: u16,
    pub(crate) parts: u16,
}

impl Head {
    /// A request that has none of it.
    pub(crate) fn new(op: ScriptOp, now: f64) -> Self {
        Self { op, flags: 0, kinds: 0, now, holder: 0, quotas: 0, parts: 0 }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.op as u8, self.flags, self.kinds]);
        out.extend_from_slice(&self.now.to_le_bytes());
        out.extend_from_slice(&self.holder.to_le_bytes());
        out.extend_from_slice(&self.quotas.to_le_bytes());
        out.extend_from_slice(&self.parts.to_le_bytes());
    }
}

/// A command that does what decisions do, writing included, to whoever keeps a slot.
pub(crate) fn probe(prefix: &str, slot: u16) -> Command {
    let name = name_in_slot(prefix, slot);
    let mut bytes = begin(1, name.len() + 64);
    put_argument(&mut bytes, &name);
    let mut request = Vec::with_capacity(32);
    Head::new(ScriptOp::Probe, -1.0).put(&mut request);
    put_argument(&mut bytes, &request);
    Command { slot, bytes }
}
