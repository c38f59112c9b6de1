//! Looks at upstreams at intervals, where that is wanted.

use std::sync::Arc;

use http::Request;

use crate::body::Sending;
use crate::config::HealthCheck;
use crate::pool::{Pools, Way};
use crate::upstream::Upstream;

/// Begins to look after the addresses of all upstreams that want it.
pub(crate) fn watch(upstreams: &[Arc<Upstream>]) {
    for upstream in upstreams {
        let Some(check) = &upstream.check else { continue };
        for address in 0..upstream.addresses.len() {
            tokio::task::spawn_local(look_after(Arc::clone(upstream), address, check.clone()));
        }
    }
}

async fn look_after(upstream: Arc<Upstream>, address: usize, check: HealthCheck) {
    let mut interval = tokio::time::interval(check.every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let looking = look(&upstream, address, &check);
        let is_well = tokio::time::timeout(check.timeout, looking).await.unwrap_or(false);
        upstream.looked(address, is_well);
    }
}

/// Asks once, by a connection of its own: whether it is well is also whether it can be reached.
async fn look(upstream: &Arc<Upstream>, address: usize, check: &HealthCheck) -> bool {
    let pools = Pools::new(std::slice::from_ref(upstream));
    let Ok(way) = pools.connect(0, address, check.timeout).await else { return false };
    let of = &upstream.addresses[address];
    let host = upstream.host.as_ref().unwrap_or(&of.host);
    let request = Request::get(&check.path).header(http::header::HOST, host);
    let answered = match way {
        Way::Http1 { mut conn, .. } => {
            let Ok(request) = request.body(Sending::Nothing) else { return false };
            conn.sender.send_request(request).await
        }
        Way::Http2(mut sender) => {
            let url = format!("{}://{}{}", of.scheme, of.authority, check.path);
            let Ok(request) = Request::get(url).body(Sending::Nothing) else { return false };
            sender.send_request(request).await
        }
    };
    answered.is_ok_and(|response| response.status().as_u16() < 400)
}
