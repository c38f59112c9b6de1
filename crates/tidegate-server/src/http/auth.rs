//! `/v1/auth`: what a proxy asks before it lets a request through.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use http::{HeaderMap, Method, StatusCode, Uri};
use tidegate::rules::{HttpRequest, Mapped};
use tidegate::{Op, Query};

use super::App;
use super::answer::{Response, refusal, with_headers};
use super::client::{client_ip, is_trusted};
use super::problem::Problem;
use super::query::parameter;
use crate::front_end::FrontEnd;
use crate::listen::Peer;

/// The headers by which a proxy describes the request that it asks about.
struct Names {
    method: &'static str,
    uri: &'static [&'static str],
    host: &'static str,
}

/// Of Traefik, Caddy and others.
const FORWARDED: Names =
    Names { method: "x-forwarded-method", uri: &["x-forwarded-uri"], host: "x-forwarded-host" };
/// As nginx is usually told to send them.
const ORIGINAL: Names = Names {
    method: "x-original-method",
    uri: &["x-original-uri", "x-original-url"],
    host: "x-original-host",
};

impl Names {
    fn are_used(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(self.method) || self.uri.iter().any(|name| headers.contains_key(*name))
    }
}

/// The request that a proxy asks about.
struct Described<'a> {
    method: &'a str,
    host: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
    client_ip: Option<IpAddr>,
}

impl HttpRequest for Described<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn host(&self) -> Option<&str> {
        self.host
    }

    fn path(&self) -> &str {
        self.path
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn header(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.headers.get_all(name).iter().for_each(|value| each(value.as_bytes()));
    }

    fn client_ip(&self) -> Option<IpAddr> {
        self.client_ip
    }
}

impl App {
    pub(crate) async fn auth(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<Response, Problem> {
        let refused = match parameter(uri.query(), "deny")?.as_deref() {
            None | Some("429") => StatusCode::TOO_MANY_REQUESTS,
            Some("403") => StatusCode::FORBIDDEN,
            Some(other) => {
                return Err(Problem::bad(format!("`deny={other}`: it can be 403 or 429")));
            }
        };
        let domain = self.domain(uri.query())?;
        let names = names(uri.query(), headers)?;
        let described = self.describe(names, method, uri, headers, peer)?;
        let query = Query::new(&domain, &[]);
        let mut mapped = Mapped::new();
        let verdict =
            self.service.ask_http(FrontEnd::Http, Op::Check, &query, &described, &mut mapped);
        let verdict = verdict.await?;
        Ok(match verdict.allowed {
            true => with_headers(&self.config, &verdict, StatusCode::OK, "", String::new()),
            false => refusal(&self.config, &verdict, refused),
        })
    }

    /// The domain that was named, or the only one there is.
    fn domain(&self, query: Option<&str>) -> Result<Cow<'static, str>, Problem> {
        let named = parameter(query, "domain")?;
        self.service.limits().with_rules(|rules| {
            let mut known = rules.domains();
            match (named, known.next(), known.next()) {
                (Some(domain), _, _) if rules.knows(&domain) => Ok(domain.into()),
                (Some(domain), _, _) => Err(Problem::no_domain(&domain)),
                (None, Some(only), None) => Ok(only.to_owned().into()),
                (None, None, _) => Err(Problem::not_found("the rules have no domain")),
                (None, _, _) => {
                    Err(Problem::bad("the rules have several domains: say which with ?domain="))
                }
            }
        })
    }

    fn describe<'a>(
        &self,
        names: &Names,
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        peer: Peer,
    ) -> Result<Described<'a>, Problem> {
        let text = |name: &str| -> Result<Option<&'a str>, Problem> {
            let Some(value) = headers.get(name) else { return Ok(None) };
            let value = value.to_str().ok().filter(|value| !value.is_empty());
            value.map(Some).ok_or_else(|| Problem::bad(format!("the header {name} is no text")))
        };
        let mut target = None;
        for name in names.uri {
            target = target.or(text(name)?);
        }
        let Some(target) = target else {
            return Err(Problem::bad(
                "nothing says which request this is about: send X-Forwarded-Uri or X-Original-URI",
            ));
        };
        let (host_of_target, target) = split(target);
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let host = match text(names.host)?.or(host_of_target) {
            Some(host) => Some(host),
            None => text("host")?.or(uri.authority().map(http::uri::Authority::as_str)),
        };
        if headers.contains_key("x-forwarded-for") && !is_trusted(&self.trusted, peer) {
            self.tell_of_stranger(peer);
        }
        Ok(Described {
            method: text(names.method)?.unwrap_or(method.as_str()),
            host,
            path,
            query,
            headers,
            client_ip: client_ip(&self.trusted, peer, headers),
        })
    }

    /// Says once that somebody's word on the client's address is not taken: whoever has put a proxy
    /// in front and wonders why all clients are one finds it in the log.
    fn tell_of_stranger(&self, peer: Peer) {
        if !self.stranger_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?peer,
                "X-Forwarded-For is not taken from this peer: it is not among the trusted proxies, \
                 so that its own address is counted"
            );
        }
    }
}

/// Which headers describe the request. If there are both, clients could have sent the ones that
/// the proxy does not set; only who set up the proxy can tell.
fn names(query: Option<&str>, headers: &HeaderMap) -> Result<&'static Names, Problem> {
    match parameter(query, "headers")?.as_deref() {
        Some("forwarded") => return Ok(&FORWARDED),
        Some("original") => return Ok(&ORIGINAL),
        Some(other) => {
            let detail = format!("`headers={other}`: it can be forwarded or original");
            return Err(Problem::bad(detail));
        }
        None => {}
    }
    match (FORWARDED.are_used(headers), ORIGINAL.are_used(headers)) {
        (true, true) => Err(Problem::bad(
            "both X-Forwarded- and X-Original- headers describe the request: say with \
             ?headers=forwarded or ?headers=original which of them the proxy sets",
        )),
        (_, true) => Ok(&ORIGINAL),
        (_, false) => Ok(&FORWARDED),
    }
}

/// The host of an absolute URL, and its path and query.
fn split(target: &str) -> (Option<&str>, &str) {
    let rest = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://"));
    let Some(rest) = rest else { return (None, target) };
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    (Some(host), if target.is_empty() { "/" } else { target })
}
