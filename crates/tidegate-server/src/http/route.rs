//! Which path leads where.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use tidegate::ExceptionKind;

use super::App;
use super::answer::Response;
use super::body;
use super::check::Deed;
use super::lyft::bad_request;
use super::problem::Problem;
use crate::front_end::FrontEnd;
use crate::listen::Peer;
use crate::soon::soon;

/// A path and what is there.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    /// None for any.
    pub(crate) methods: &'static [&'static str],
    pub(crate) help: &'static str,
    endpoint: Endpoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Index,
    Do(Deed),
    Explain,
    Reserve,
    Settle,
    Cancel,
    Keys,
    Except(ExceptionKind),
    Exceptions,
    Auth,
    Rules,
    Health,
    Ready,
    Metrics,
    OpenApi,
    Json,
}

const fn route(
    path: &'static str,
    methods: &'static [&'static str],
    endpoint: Endpoint,
    help: &'static str,
) -> Route {
    Route { path, methods, help, endpoint }
}

/// Everything there is.
pub(crate) const ROUTES: &[Route] = &[
    route("/v1/check", &["POST"], Endpoint::Do(Deed::Check), "decide a request, or several"),
    route("/v1/peek", &["POST"], Endpoint::Do(Deed::Peek), "the same, and take nothing"),
    route("/v1/explain", &["POST"], Endpoint::Explain, "which limits a request meets, and why"),
    route("/v1/release", &["POST"], Endpoint::Do(Deed::Release), "give back permits"),
    route("/v1/refund", &["POST"], Endpoint::Do(Deed::Refund), "give back units (admin)"),
    route("/v1/reserve", &["POST"], Endpoint::Reserve, "take now, settle later"),
    route("/v1/reserve/{id}/settle", &["POST"], Endpoint::Settle, "say what it came to"),
    route("/v1/reserve/{id}/cancel", &["POST"], Endpoint::Cancel, "give all of it back"),
    route("/v1/keys", &["GET", "DELETE"], Endpoint::Keys, "look at a key, reset it (admin)"),
    route(
        "/v1/keys/block",
        &["POST", "DELETE"],
        Endpoint::Except(ExceptionKind::Block),
        "block a key for a while, or no longer (admin)",
    ),
    route(
        "/v1/keys/limit",
        &["POST", "DELETE"],
        Endpoint::Except(ExceptionKind::Limit),
        "give a key another limit for a while, or no longer (admin)",
    ),
    route("/v1/exceptions", &["GET"], Endpoint::Exceptions, "all keys with exceptions (admin)"),
    route("/v1/auth", &[], Endpoint::Auth, "what a proxy asks before it lets a request through"),
    route("/json", &[], Endpoint::Json, "Envoy's question as JSON, as Lyft's service takes it"),
    route("/v1/rules", &["GET"], Endpoint::Rules, "the rules in force"),
    route("/v1/openapi.json", &["GET"], Endpoint::OpenApi, "this, for programs"),
    route("/metrics", &["GET"], Endpoint::Metrics, "for Prometheus"),
    route("/healthcheck", &[], Endpoint::Health, "200, or 500 when about to end"),
    route("/ready", &["GET"], Endpoint::Ready, "200, or 503 when about to end"),
    route("/", &["GET"], Endpoint::Index, "this page"),
];

/// What is at a path, and the id that is in it.
fn find(path: &str) -> Option<(&'static Route, &str)> {
    if let Some(rest) = path.strip_prefix("/v1/reserve/") {
        let (id, deed) = rest.split_once('/')?;
        let wanted = match deed {
            "settle" => Endpoint::Settle,
            "cancel" => Endpoint::Cancel,
            _ => return None,
        };
        let route = ROUTES.iter().find(|route| route.endpoint == wanted)?;
        return (!id.is_empty()).then_some((route, id));
    }
    ROUTES.iter().find(|route| route.path == path).map(|route| (route, ""))
}

impl App {
    /// Answers a request, whatever it is.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> Response {
        match self.dispatch(request, peer).await {
            Ok(response) => response,
            Err(problem) => {
                if problem.is_bad_request() {
                    self.service.metrics().bad_request(FrontEnd::Http);
                }
                problem.into_response()
            }
        }
    }

    async fn dispatch(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> Result<Response, Problem> {
        let (head, body) = request.into_parts();
        let (method, uri, headers) = (&head.method, &head.uri, &head.headers);
        let Some((route, id)) = find(uri.path()) else {
            return Err(Problem::not_found("there is nothing here; see /"));
        };
        check_method(route, method)?;
        if route.endpoint.is_for_admins() {
            self.admit_admin(peer, uri, headers)?;
        }
        let query = uri.query();
        let waits = self.service.waits();
        match route.endpoint {
            Endpoint::Do(deed) => {
                let body = read(headers, body).await?;
                soon(waits, self.check(deed, query, &body)).await
            }
            Endpoint::Explain => self.explain(read(headers, body).await?).await,
            Endpoint::Reserve => {
                let body = read(headers, body).await?;
                soon(waits, self.reserve(query, &body)).await
            }
            Endpoint::Settle => {
                let (id, body) = (id_of(id)?, read(headers, body).await?);
                soon(waits, self.settle(&id, &body)).await
            }
            Endpoint::Cancel => soon(waits, self.cancel(&id_of(id)?)).await,
            Endpoint::Keys if *method == Method::DELETE => soon(waits, self.reset_key(query)).await,
            Endpoint::Keys => soon(waits, self.key(query)).await,
            Endpoint::Except(kind) if *method == Method::DELETE => {
                soon(waits, self.lift(query, kind)).await
            }
            Endpoint::Except(kind) => {
                let body = read(headers, body).await?;
                match kind {
                    ExceptionKind::Block => soon(waits, self.block(query, &body)).await,
                    ExceptionKind::Limit => soon(waits, self.limit(query, &body)).await,
                }
            }
            Endpoint::Exceptions => Ok(self.exceptions()),
            Endpoint::Auth => soon(waits, self.auth(method, uri, headers, peer)).await,
            Endpoint::Json => match body::read(body).await {
                Ok(body) => Ok(soon(waits, self.json(&body)).await),
                Err(problem) if problem.status == StatusCode::BAD_REQUEST => Ok(bad_request()),
                Err(problem) => Err(problem),
            },
            Endpoint::Rules => self.rules(query),
            Endpoint::Health => Ok(self.health()),
            Endpoint::Ready => Ok(self.ready()),
            Endpoint::Metrics => Ok(self.metrics()),
            Endpoint::OpenApi => Ok(self.openapi()),
            Endpoint::Index => Ok(self.index()),
        }
    }
}

impl Endpoint {
    fn is_for_admins(self) -> bool {
        matches!(self, Self::Do(Deed::Refund) | Self::Keys | Self::Except(_) | Self::Exceptions)
    }
}

fn check_method(route: &Route, method: &Method) -> Result<(), Problem> {
    let name = if *method == Method::HEAD { "GET" } else { method.as_str() };
    match route.methods.is_empty() || route.methods.contains(&name) {
        true => Ok(()),
        false => Err(Problem::method(route.methods)),
    }
}

/// A body of JSON.
async fn read(headers: &HeaderMap, body: Incoming) -> Result<bytes::Bytes, Problem> {
    body::check_type(headers)?;
    body::read(body).await
}

/// The id in a path, decoded.
fn id_of(id: &str) -> Result<String, Problem> {
    super::query::decode(&id.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_document_has_exactly_the_routes_there_are() {
        let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let mut documented: Vec<&str> = paths.keys().map(String::as_str).collect();
        let mut known: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        documented.sort_unstable();
        known.sort_unstable();
        assert_eq!(documented, known);
        for route in ROUTES {
            let path = paths[route.path].as_object().unwrap();
            let mut methods: Vec<String> = path
                .keys()
                .filter(|name| !name.starts_with("x-"))
                .map(|name| name.to_ascii_uppercase())
                .collect();
            methods.sort_unstable();
            let mut wanted = route.methods.to_vec();
            if route.methods.is_empty() {
                assert_eq!(path["x-any-method"], true, "{}", route.path);
                wanted = vec!["GET", "POST"];
            }
            wanted.sort_unstable();
            assert_eq!(methods, wanted, "{}", route.path);
            let is_admin = path.values().any(|operation| operation.get("security").is_some());
            assert_eq!(is_admin, route.endpoint.is_for_admins(), "{}", route.path);
        }
    }

    #[test]
    fn every_route_is_found_by_its_path() {
        for route in ROUTES {
            let path = route.path.replace("{id}", "x");
            let (found, id) = find(&path).unwrap();
            assert_eq!(found.path, route.path);
            assert_eq!(id, if route.path.contains("{id}") { "x" } else { "" });
        }
    }
}
