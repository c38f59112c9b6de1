//! What the mapping needs to know of a request.

use std::net::IpAddr;

/// A request over HTTP. Front ends implement it on their own types.
pub trait HttpRequest {
    /// The method, as it was sent.
    fn method(&self) -> &str;
    /// The host, with or without port, from the URL or the `Host` header.
    fn host(&self) -> Option<&str>;
    /// The path as it was sent, without query.
    fn path(&self) -> &str;
    /// What follows the `?`.
    fn query(&self) -> Option<&str>;
    /// Gives every value of a header, in their order. The name is in lower case and has to be
    /// compared without regard to case.
    fn header(&self, name: &str, each: &mut dyn FnMut(&[u8]));
    /// The address of the client, behind however many proxies are trusted.
    fn client_ip(&self) -> Option<IpAddr>;
}

/// A request as plain text, for tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainRequest {
    method: String,
    host: Option<String>,
    path: String,
    query: Option<String>,
    headers: Vec<(String, String)>,
    client_ip: Option<IpAddr>,
}

impl PlainRequest {
    /// A request for an absolute URL (`http://host:port/path?query`), or for one that begins with
    /// the path; the host is then that of the `Host` header, if there is one.
    ///
    /// A fragment, and user and password, are left out. The error says what is wrong with which
    /// part.
    ///
    /// ```
    /// use tidegate_rules::{HttpRequest as _, PlainRequest};
    ///
    /// let headers = [("X-User-Id", "ada")];
    /// let request = PlainRequest::parse("GET", "http://a.example:80/v1/posts?page=2", headers, None)?;
    /// assert_eq!(request.host(), Some("a.example:80"));
    /// assert_eq!((request.path(), request.query()), ("/v1/posts", Some("page=2")));
    /// # Ok::<(), String>(())
    /// ```
    pub fn parse<N: Into<String>, V: Into<String>>(
        method: &str,
        url: &str,
        headers: impl IntoIterator<Item = (N, V)>,
        client_ip: Option<IpAddr>,
    ) -> Result<Self, String> {
        if !is_token(method) {
            return Err(format!("`{method}` is not a method"));
        }
        if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(format!("`{url}` is not a URL: it contains white space"));
        }
        let headers = headers
            .into_iter()
            .map(|(name, value)| {
                let (name, value) = (name.into(), value.into());
                match is_token(&name) {
                    true => Ok((name, value.trim_matches([' ', '\t']).to_owned())),
                    false => Err(format!("`{name}` is not the name of a header")),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let whole = url.split_once('#').map_or(url, |(before, _)| before);
        let (authority, target) = split_authority(whole)?;
        let host = match authority {
            Some(authority) => Some(check_authority(authority)?.to_owned()),
            None => {
                let host = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
                host.map(|(_, value)| value.clone()).filter(|host| !host.is_empty())
            }
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let path = if path.is_empty() { "/" } else { path }.to_owned();
        Ok(Self { method: method.to_owned(), host, path, query, headers, client_ip })
    }
}

/// The authority of an absolute URL, and what follows it.
fn split_authority(url: &str) -> Result<(Option<&str>, &str), String> {
    if url.starts_with('/') || url == "*" {
        return Ok((None, url));
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(format!("`{url}` is not a URL: it begins neither with `http://` nor with `/`"));
    };
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(format!("`{url}` is not a URL of HTTP: its scheme is `{scheme}`"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    Ok((Some(authority), target))
}

fn check_authority(authority: &str) -> Result<&str, String> {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, after) = split_port(host);
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    if name.is_empty() || name == "[]" {
        return Err("the URL has no host".to_owned());
    }
    let is_name = match name.strip_prefix('[') {
        Some(rest) => rest.ends_with(']'),
        None => !name.contains(['[', ']', ':']),
    };
    if !is_name || !after.is_none_or(is_port) {
        return Err(format!("`{host}` is not a host with or without port"));
    }
    Ok(host)
}

/// A host without its port, and the port. An IPv6 address stands in brackets.
pub(crate) fn split_port(host: &str) -> (&str, Option<&str>) {
    let colon = match host.rfind(']') {
        Some(end) => host[end..].find(':').map(|at| end + at),
        None => host.rfind(':'),
    };
    colon.map_or((host, None), |at| (&host[..at], Some(&host[at + 1..])))
}

/// Writes a host in one form: without port, without the dot at the end, in lower case.
pub(crate) fn write_host(out: &mut String, host: &str) {
    let start = out.len();
    let (name, _) = split_port(host);
    out.push_str(name.strip_suffix('.').unwrap_or(name));
    out[start..].make_ascii_lowercase();
}

/// Whether a text may be a method or the name of a header.
pub(crate) fn is_token(text: &str) -> bool {
    let is_in = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_in)
}

impl HttpRequest for PlainRequest {
    fn method(&self) -> &str {
        &self.method
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    fn header(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        let values = self.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        values.for_each(|(_, value)| each(value.as_bytes()));
    }

    fn client_ip(&self) -> Option<IpAddr> {
        self.client_ip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [(&str, &str); 0] = [];

    fn parse(url: &str) -> Result<PlainRequest, String> {
        PlainRequest::parse("GET", url, NONE, None)
    }

    #[test]
    fn urls_come_in_two_forms() {
        for (url, host, path, query) in [
            ("/a/b?c=d?e#f", None, "/a/b", Some("c=d?e")),
            ("/", None, "/", None),
            ("//a/b", None, "//a/b", None),
            ("*", None, "*", None),
            ("http://h", Some("h"), "/", None),
            ("HTTPS://h:8080/a?", Some("h:8080"), "/a", Some("")),
            ("http://h?q", Some("h"), "/", Some("q")),
            ("http://me:secret@h/a", Some("h"), "/a", None),
            ("http://[::1]:80/a", Some("[::1]:80"), "/a", None),
            ("http://h/http://i", Some("h"), "/http://i", None),
        ] {
            let request = parse(url).unwrap();
            let got = (request.host(), request.path(), request.query());
            assert_eq!(got, (host, path, query), "{url}");
        }
    }

    #[test]
    fn what_is_no_request_is_said() {
        for url in [
            "",
            "a",
            "h/a",
            "ftp://h/a",
            "http:///a",
            "http://h:x/",
            "http://h:70000/",
            "http://a:b:1/",
            "http://[::1/",
            "/a b",
            "/a\n",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
        assert!(PlainRequest::parse("", "/", NONE, None).is_err());
        assert!(PlainRequest::parse("GE T", "/", NONE, None).is_err());
        assert!(PlainRequest::parse("GET", "/", [("a b", "")], None).is_err());
    }

    #[test]
    fn the_host_of_a_path_is_in_the_header() {
        let request = PlainRequest::parse("GET", "/", [("HOST", " h:1 ")], None).unwrap();
        assert_eq!(request.host(), Some("h:1"));
        let both = PlainRequest::parse("GET", "http://i/", [("host", "h")], None).unwrap();
        assert_eq!(both.host(), Some("i"));
    }

    #[test]
    fn a_host_has_one_form() {
        for (host, wanted) in [
            ("API.example.COM", "api.example.com"),
            ("api.example.com.:443", "api.example.com"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            (":80", ""),
            ("", ""),
        ] {
            let mut out = String::from("kept ");
            write_host(&mut out, host);
            assert_eq!(out, format!("kept {wanted}"));
        }
    }
}
