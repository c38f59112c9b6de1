//! TODO

use std::sync::Arc;

use crate::config::Config;
use crate::drain::Drain;
use crate::listen::Listener;
use crate::service::Service;

/// Serves until the server drains.
pub(crate) async fn serve(
    listener: Listener,
    service: Arc<Service>,
    config: Arc<Config>,
    drain: Drain,
) {
    let metrics = Arc::clone(service.metrics());
    listener.serve(drain, metrics, config.connections_max, |_stream, _peer| async {}).await;
}
