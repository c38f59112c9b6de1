//! How refusals and admissions are told: gRPC, HEAD, merged headers, and what can be configured.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use tidegate::Limit;
use tidegate::headers::Field;
use tidegate_tower::{Asked, Gate, RulesError, TidegateLayer, key};

use crate::{Answer, Body, Counting, ask, get, header, limit, limiter, text};

/// A layer whose one unit of a minute is used.
async fn used_up() -> TidegateLayer<impl Gate<Asked>> {
    let (layer, ..) = limit(Limit::per_minute(1));
    assert_eq!(ask(&layer, &Counting::new(), get("/")).await.status(), 200);
    layer
}

/// What it answers to a request that it refuses.
async fn refused<G: Gate<Asked>>(layer: &TidegateLayer<G>, request: Request<Body>) -> Answer {
    let service = Counting::new();
    let answer = ask(layer, &service, request).await;
    assert_eq!(service.calls(), 0);
    answer
}

fn names(answer: &Answer) -> Vec<&str> {
    let mut names: Vec<&str> = answer.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn grpc_is_refused_in_its_own_words() {
    let request = Request::post("/pkg.Service/Method").header("content-type", "application/grpc");
    let answer = refused(&used_up().await, request.body(Body::default()).unwrap()).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "grpc-status"), Some("8"));
    let message = "the limit `limit-0` of 1 is reached; try again in 60 s";
    assert_eq!(header(&answer, "grpc-message"), Some(message));
    assert_eq!(header(&answer, "content-type"), Some("application/grpc"));
    assert_eq!(header(&answer, "retry-after"), Some("60"));
    assert_eq!(header(&answer, "ratelimit"), Some("\"limit-0\";r=0;t=60"));
    // Trailers only: nothing follows.
    assert!(answer.body().is_end_stream());
    assert_eq!(text(answer).await, "");
}

#[tokio::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let layer = used_up().await;
    let get = refused(&layer, get("/")).await;
    let head = refused(&layer, Request::head("/").body(Body::default()).unwrap()).await;
    assert_eq!(head.status(), 429);
    assert_eq!(header(&head, "content-type"), Some("application/problem+json"));
    let length = text(get).await.len().to_string();
    assert_eq!(header(&head, "content-length"), Some(&*length));
    assert_eq!(text(head).await, "");
}

#[tokio::test]
async fn a_refusal_can_be_told_otherwise() {
    let layer = used_up().await.status(StatusCode::IM_A_TEAPOT).on_refusal(|verdict, answer| {
        assert!(!verdict.allowed);
        answer.headers_mut().insert("x-sorry", "yes".parse().unwrap());
        *answer.body_mut() = "slow down".into();
    });
    let answer = refused(&layer, get("/")).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "x-sorry")), (418, Some("yes")));
    assert_eq!(header(&answer, "retry-after"), Some("60"));
    assert_eq!(text(answer).await, "slow down");
}

#[tokio::test]
async fn a_refusal_can_have_a_body_of_its_own() {
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    let layer = used_up().await.body(content_type, "slow down").only_on_refusal();
    let answer = refused(&layer, get("/")).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(header(&answer, "content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(header(&answer, "retry-after"), Some("60"));
    assert_eq!(text(answer).await, "slow down");
    let grpc = Request::post("/").header("content-type", "application/grpc");
    let answer = refused(&layer, grpc.body(Body::default()).unwrap()).await;
    assert_eq!(header(&answer, "grpc-status"), Some("8"));
}

#[tokio::test]
async fn admissions_need_not_speak_of_limits() {
    let (layer, ..) = limit(Limit::per_minute(1));
    let layer = layer.only_on_refusal();
    let service = Counting::new();
    assert_eq!(names(&ask(&layer, &service, get("/")).await), Vec::<&str>::new());
    let answer = ask(&layer, &service, get("/")).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (429, Some("60")));
}

#[tokio::test]
async fn headers_have_other_names_or_none() {
    let layer = used_up()
        .await
        .rename(Field::Limit, HeaderName::from_static("x-rate-limit-limit"))
        .without(Field::Policy)
        .without(Field::XRetryAfter)
        .without(Field::CacheControl);
    assert_eq!(
        names(&refused(&layer, get("/")).await),
        [
            "content-type",
            "ratelimit",
            "retry-after",
            "x-rate-limit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ]
    );
}

#[tokio::test]
async fn resets_can_be_told_as_a_time() {
    let layer = used_up().await.reset_as_epoch();
    let answer = refused(&layer, get("/")).await;
    assert_eq!(header(&answer, "x-ratelimit-reset"), Some("1700000060"));
}

#[tokio::test]
async fn jitter_only_makes_later() {
    let layer = used_up().await.retry_jitter(Duration::from_secs(1000));
    let mut waits = Vec::new();
    for _ in 0..20 {
        let answer = refused(&layer, get("/")).await;
        let wait = header(&answer, "retry-after").unwrap().to_owned();
        assert_eq!(header(&answer, "x-ratelimit-retry-after"), Some(&*wait));
        assert_eq!(header(&answer, "ratelimit"), Some(&*format!("\"limit-0\";r=0;t={wait}")));
        let body = text(answer).await;
        assert!(body.contains(&format!("\"retry_after_seconds\":{wait}}}")), "{body}");
        waits.push(wait.parse::<u64>().unwrap());
    }
    assert!(waits.iter().all(|wait| (60..=1060).contains(wait)), "{waits:?}");
    // That twenty of a thousand are all the same happens to nobody.
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

#[tokio::test]
async fn browsers_are_shown_the_headers_when_another_origin_asks() {
    let (layer, ..) = limit(Limit::per_minute(1));
    let layer = layer.expose_headers();
    let other = || Request::get("/").header("origin", "https://a.example").body(Body::default());
    let name = "access-control-expose-headers";
    let service = Counting::new();
    let admitted = ask(&layer, &service, other().unwrap()).await;
    let refused = ask(&layer, &service, other().unwrap()).await;
    let same_origin = ask(&layer, &service, get("/")).await;
    for answer in [&admitted, &refused] {
        let exposed = header(answer, name).unwrap();
        for field in Field::ALL.into_iter().filter(|field| *field != Field::CacheControl) {
            assert!(exposed.split(", ").any(|name| name == field.name()), "{field:?}");
        }
    }
    assert_eq!(header(&same_origin, name), None);
}

fn with_limits_of_its_own() -> Response<Body> {
    Response::builder()
        .header("x-ratelimit-limit", "7")
        .header("x-ratelimit-remaining", "3")
        .header("x-ratelimit-reset", "9")
        .header("ratelimit-policy", "\"theirs\";q=7;w=10")
        .header("ratelimit", "\"theirs\";r=3;t=9")
        .header("cache-control", "public")
        .body(Body::default())
        .unwrap()
}

#[tokio::test]
async fn of_two_limits_the_stricter_is_told_and_lists_have_both() {
    let service = Counting::answering(with_limits_of_its_own);
    for (units, wanted) in [(100, ("7", "3", "9")), (4, ("7", "3", "9")), (3, ("3", "2", "20"))] {
        let (layer, ..) = limit(Limit::per_minute(units));
        let answer = ask(&layer, &service, get("/")).await;
        let told = ["limit", "remaining", "reset"]
            .map(|name| header(&answer, &format!("x-ratelimit-{name}")).unwrap());
        assert_eq!(<(_, _, _)>::from(told), wanted, "{units}");
        let all = |name| answer.headers().get_all(name).iter().collect::<Vec<_>>();
        let both = format!("\"theirs\";q=7;w=10, \"limit-0\";q={units};w=60");
        assert_eq!(all("ratelimit-policy"), [&*both]);
        let [state] = all("ratelimit")[..] else { panic!("a list is one field") };
        let leads = if wanted.0 == "7" { "\"theirs\"" } else { "\"limit-0\"" };
        assert!(state.to_str().unwrap().starts_with(leads), "{units}: {state:?}");
        assert_eq!(header(&answer, "cache-control"), Some("public"));
    }
}

#[tokio::test]
async fn what_is_no_number_is_left_alone() {
    let service = Counting::answering(|| {
        let answer = Response::builder().header("x-ratelimit-limit", "many");
        answer.body(Body::default()).unwrap()
    });
    let (layer, ..) = limit(Limit::per_minute(5));
    let answer = ask(&layer, &service, get("/")).await;
    assert_eq!(header(&answer, "x-ratelimit-limit"), Some("many"));
    assert_eq!(header(&answer, "x-ratelimit-remaining"), None);
}

#[tokio::test]
async fn who_has_no_key_is_not_counted_or_refused() {
    let (limiter, _clock) = limiter(Limit::per_minute(1));
    let layer = TidegateLayer::new(limiter, key::bearer_token());
    let service = Counting::new();
    for _ in 0..3 {
        let answer = ask(&layer, &service, get("/")).await;
        assert_eq!((answer.status().as_u16(), names(&answer).len()), (200, 0));
    }
    let strict = layer.deny_missing();
    let answer = refused(&strict, get("/")).await;
    assert_eq!(answer.status(), 429);
    assert!(text(answer).await.contains("the request lacks a value that it is counted by"));
    let token = Request::get("/").header("authorization", "Bearer t");
    let answer = ask(&strict, &service, token.body(Body::default()).unwrap()).await;
    assert_eq!(answer.status(), 200);
}

#[test]
fn wrong_rules_say_where() {
    let error = TidegateLayer::from_rules("domain: a\ndescriptors:\n  - ky: b\n").unwrap_err();
    assert!(error.to_string().contains("rules:3:5: "), "{error}");
    let error = TidegateLayer::from_rules_file("there/is/no/such.yaml").unwrap_err();
    assert_eq!(error.to_string(), "reading rules from `there/is/no/such.yaml`");
    assert!(matches!(error, RulesError::Read { .. }));
}
