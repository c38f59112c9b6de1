//! The service as a gateway asks it.

use std::sync::Arc;

use tidegate::rules::HttpRequest;
use tidegate::{Admission, Query};
use tidegate_http::{Asking, Gate, Room};

use crate::front_end::FrontEnd;
use crate::service::Service;

/// A domain of a service's rules, for HTTP requests that are seen through to their end. What it decides
/// is counted with what the service decides otherwise.
#[derive(Clone, Debug)]
pub struct ServiceGate {
    service: Arc<Service>,
    domain: Arc<str>,
}

impl ServiceGate {
    /// A domain of a service's rules.
    pub fn new(service: Arc<Service>, domain: impl Into<Arc<str>>) -> Self {
        Self { service, domain: domain.into() }
    }
}

impl<R: HttpRequest + Sync + ?Sized> Gate<R> for ServiceGate {
    fn waits(&self) -> bool {
        self.service.waits()
    }

    async fn admit(&self, request: &R, asking: Asking) -> Admission {
        let query = Query::new(&self.domain, &[]).cost(asking.cost);
        let (service, keep) = (&self.service, asking.keep);
        service.admit_http(FrontEnd::Gateway, &query, request, &mut Room::take(), keep).await
    }

    fn admit_at_once<T>(
        &self,
        request: &R,
        asking: Asking,
        judge: impl FnOnce(&mut Admission) -> T,
    ) -> Option<T> {
        let query = Query::new(&self.domain, &[]).cost(asking.cost);
        let (service, keep) = (&self.service, asking.keep);
        Room::at_hand(|mapped| {
            service.admit_http_at_once(FrontEnd::Gateway, &query, request, mapped, keep, judge)
        })
    }
}
