//! stub
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Limit, State, Timestamp};
use tidegate_store::{Answer, Call, Holding, Outcome};

use crate::client::{Client, ClientError};
use crate::stats::Stats;
use crate::store::{RedisError, TimeSource};

#[derive(Debug)]
pub(crate) struct Engine {}

#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) serial: u64,
}

pub(crate) struct Seen {
    pub(crate) item: usize,
    pub(crate) state: Option<State>,
    pub(crate) now: Timestamp,
}

impl Engine {
    pub(crate) fn new(_: Arc<Client>, _: String, _: TimeSource, _: Arc<Stats>) -> Self {
        Self {}
    }
    pub(crate) fn attach(_: &Limit) -> Result<Attached, String> {
        Ok(Attached { serial: 0 })
    }
    pub(crate) async fn apply(
        &self,
        _: &Call<'_>,
        _: &mut [Answer],
        _: &mut SmallVec<[Seen; 4]>,
    ) -> Result<Outcome, RedisError> {
        Err(ClientError::Down.into())
    }
    pub(crate) async fn reserve(
        &self,
        _: &Call<'_>,
        _: &mut [Answer],
        _: u128,
        _: Duration,
    ) -> Result<Outcome, RedisError> {
        Err(ClientError::Down.into())
    }
    pub(crate) async fn settle(&self, _: u128, _: u64, _: Timestamp) -> Result<bool, RedisError> {
        Err(ClientError::Down.into())
    }
    pub(crate) async fn settle_holding(
        &self,
        _: &Holding,
        _: u64,
        _: Timestamp,
    ) -> Result<(), RedisError> {
        Err(ClientError::Down.into())
    }
    pub(crate) async fn remove_all(&self) -> Result<u64, RedisError> {
        Err(ClientError::Down.into())
    }
}

pub(crate) fn probe(_: &str, slot: u16) -> crate::client::Command {
    crate::client::Command { slot, bytes: Vec::new() }
}
