//! Keys as the memory store knows them: fingerprints under a secret seed.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The secret under which keys are hashed.
///
/// The function is rapidhash, version 3, in the form that an input cannot multiply away its
/// secrets. All of these come from the seed, so nobody outside can tell which keys share a shard
/// or a slot, nor look for two that collide: hashes are never shown, only what SipHash
/// makes of them. The function is the same in
/// every build, so that a snapshot can be read by the next one.
#[derive(Clone, Copy)]
pub(crate) struct Seed {
    pub(crate) words: [u64; 2],
    secrets: RapidSecrets,
}

impl Seed {
    pub(crate) fn new(words: [u64; 2]) -> Self {
        // Both words through a cryptographic hash, so that each of them counts in full.
        let secrets = RapidSecrets::seed(prf(words, b"keys")[0]);
        Self { words, secrets }
    }

    /// A seed from the operating system's random numbers.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        Ok(Self::new([getrandom::u64()?, getrandom::u64()?]))
    }

    /// The fingerprint of a key, before any limit.
    #[inline(always)]
    pub(crate) fn hash(&self, bytes: &[u8]) -> Fingerprint {
        Fingerprint::of_key(rapidhash_v3_inline::<true, true, true>(bytes, &self.secrets))
    }

    /// The salt of a limit: another function of the same secret, so that a key and the id of a
    /// limit that read the same have nothing to do with each other.
    pub(crate) fn salt(&self, id: &str) -> u64 {
        prf(prf(self.words, b"salts"), id.as_bytes())[0]
    }
}

impl Fingerprint {
    /// What stands for a fingerprint outside: nobody learns hashes from it.
    pub(crate) fn shown(self, seed: &Seed) -> u128 {
        let [low, high] = prf(prf(seed.words, b"shown"), &self.id.to_le_bytes());
        u128::from(high) << 64 | u128::from(low)
    }
}

/// SipHash-1-3, where speed does not matter.
fn prf(key: [u64; 2], bytes: &[u8]) -> [u64; 2] {
    let mut hasher = SipHasher13::new_with_keys(key[0], key[1]);
    hasher.write(bytes);
    let hash = hasher.finish128();
    [hash.h1, hash.h2]
}

/// 64 bits that stand for a key, or for a key under one limit.
///
/// The chance that any two of a million are the same is below 3 in 10^8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    /// What is compared.
    pub(crate) id: u64,
    /// Where the key belongs in a table. It is the same under all limits, so that those of one key
    /// are neighbours and share a cache line.
    pub(crate) place: u32,
}

impl Fingerprint {
    #[inline(always)]
    pub(crate) fn of_key(hash: u64) -> Self {
        Self { id: hash, place: hash as u32 }
    }

    /// A key's fingerprint under one limit. Salting is reversible, so that no two keys of the same
    /// limit become the same by it.
    #[inline(always)]
    pub(crate) fn under(self, salt: u64) -> Self {
        Self { id: self.id ^ salt, place: self.place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Were ids and keys hashed alike, key `b` under limit `a` would be key `a` under limit `b`.
    #[test]
    fn a_key_and_an_id_that_read_the_same_are_not_the_same() {
        let seed = Seed::new([1, 2]);
        assert_ne!(seed.hash(b"a").id, seed.salt("a"));
        let swapped =
            (seed.hash(b"a").under(seed.salt("b")), seed.hash(b"b").under(seed.salt("a")));
        assert_ne!(swapped.0, swapped.1);
    }

    /// A snapshot of one build is read by the next: the function may never change.
    #[test]
    fn fingerprints_are_the_same_for_ever() {
        let seed = Seed::new([1, 2]);
        assert_eq!(seed.hash(b"user:42").id, KNOWN_HASH);
        assert_eq!(seed.salt("limit-0"), KNOWN_SALT);
    }

    const KNOWN_HASH: u64 = 8_254_466_510_959_284_573;
    const KNOWN_SALT: u64 = 3_291_924_159_817_011_875;

    #[test]
    fn every_word_of_the_seed_counts() {
        let hashes = [[1, 2], [1, 3], [2, 2]].map(|words| Seed::new(words).hash(b"key").id);
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    }
}
