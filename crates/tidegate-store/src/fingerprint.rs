//! Keys as the memory store knows them: fingerprints under a secret seed.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

/// The secret under which keys are hashed.
///
/// SipHash-1-3 is keyed, so that nobody outside can tell which keys share a shard or a slot, and
/// it is the same function in every build, so that a snapshot can be read by the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) words: [u64; 2],
}

impl Seed {
    /// A seed from the operating system's random numbers.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        Ok(Self { words: [getrandom::u64()?, getrandom::u64()?] })
    }

    #[inline(always)]
    pub(crate) fn hash(&self, bytes: &[u8]) -> Fingerprint {
        let mut hasher = SipHasher13::new_with_keys(self.words[0], self.words[1]);
        hasher.write(bytes);
        let hash = hasher.finish128();
        Fingerprint { slot: hash.h1, tag: hash.h2 as u32 }
    }
}

/// 96 bits that stand for a key, or for a key under one limit.
///
/// Among a million of them, the chance that any two are the same is below 10^-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    /// Places the key; zero is reserved for empty slots.
    pub(crate) slot: u64,
    pub(crate) tag: u32,
}

impl Fingerprint {
    /// A key's fingerprint under one limit. Combining is reversible, so that no two keys of the
    /// same limit become the same by it.
    #[inline(always)]
    pub(crate) fn under(self, salt: Self) -> Self {
        Self { slot: self.slot ^ salt.slot, tag: self.tag ^ salt.tag }
    }

    pub(crate) fn as_u128(self) -> u128 {
        u128::from(self.tag) << 64 | u128::from(self.slot)
    }
}
