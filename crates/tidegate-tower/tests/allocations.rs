//! What the layer costs in memory: little for a request, and nothing that stays.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping")]

use std::alloc::System;
use std::convert::Infallible;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate_tower::TidegateLayer;
use tower::{Layer as _, Service, service_fn};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RULES: &str = r#"
domain: api
http:
  - { match: { path: "/open/{who}" }, descriptors: [ { open: "${path.who}" } ] }
  - { match: { path: "/shut" }, descriptors: [ { shut: yes } ] }
  - { match: { path: "/once" }, descriptors: [ { once: yes } ] }
  - { match: { path: "/shaped" }, descriptors: [ { shaped: yes } ] }
descriptors:
  - { key: open, rate_limit: { requests_per_unit: 1000000, unit: second, algorithm: token_bucket } }
  - { key: shut, rate_limit: { requests_per_unit: 0, unit: second } }
  - { key: once, rate_limit: { requests_per_unit: 10, algorithm: concurrency } }
  - key: shaped # so fast that nobody waits
    rate_limit: { requests_per_unit: 1000000000, unit: second, algorithm: leaky_bucket, queue: { size: 10 }, excess: delay }
"#;

type Body = Full<Bytes>;

/// How often one request asks for memory, when many have been before it, and how many bytes more are
/// in use after a thousand others.
fn cost<S: Service<Request<Body>>>(service: &mut S, path: &'static str) -> (usize, isize) {
    let mut ask = || {
        let request = Request::get(path).body(Body::default()).unwrap();
        let region = Region::new(ALLOCATOR);
        {
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(service.poll_ready(&mut context), Poll::Ready(Ok(()))));
            let future = pin!(service.call(request));
            assert!(future.poll(&mut context).is_ready());
        }
        region.change().allocations
    };
    for _ in 0..100 {
        ask();
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..1000 {
        ask();
    }
    let change = region.change();
    let grown = change.bytes_allocated as isize - change.bytes_deallocated as isize;
    (ask(), grown)
}

/// One test, since the allocator counts for the whole process.
#[test]
fn requests_leave_nothing_behind() {
    let bare = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::default()))
    });
    assert_eq!(cost(&mut bare.clone(), "/open/ada"), (0, 0), "without a layer");
    let layer = TidegateLayer::from_rules(RULES).unwrap();
    let mut service = layer.layer(bare);
    assert_eq!(cost(&mut service, "/elsewhere"), (0, 0), "without a limit");
    // The text of the headers, its count of owners, and the map that they stand in.
    let (admitted, grown) = cost(&mut service, "/open/ada");
    assert!(admitted <= 4, "{admitted} allocations for one who is admitted");
    assert_eq!(grown, 0);
    let (refused, grown) = cost(&mut service, "/shut");
    assert!(refused <= 6, "{refused} allocations for one who is refused");
    assert_eq!(grown, 0);
    let (held, grown) = cost(&mut service, "/once");
    assert!(held <= 10, "{held} allocations for one who holds a permit");
    assert_eq!(grown, 0);
    let (shaped, grown) = cost(&mut service, "/shaped");
    assert!(shaped <= 9, "{shaped} allocations for one who may have others behind it");
    assert_eq!(grown, 0);
}
