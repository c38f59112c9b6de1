//! The request that a text holds, and what the rules make of it.

use std::net::{IpAddr, Ipv6Addr};

use tidegate_rules::{
    Found, HttpDescriptor, HttpOutcome, HttpRequest, Mapped, PlainRequest, Rules,
};

/// A request that nobody has checked: front ends hand on what was sent.
struct Raw<'t> {
    method: &'t str,
    host: Option<&'t str>,
    path: &'t str,
    query: Option<&'t str>,
    headers: Vec<(&'t str, &'t str)>,
    client_ip: Option<IpAddr>,
}

impl HttpRequest for Raw<'_> {
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
        for (_, value) in self.headers.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name))
        {
            // What was no text has become this sign; a header need not be text.
            let bytes = value.split('\u{fffd}').map(str::as_bytes).collect::<Vec<_>>();
            each(&bytes.join(&0xff));
        }
    }

    fn client_ip(&self) -> Option<IpAddr> {
        self.client_ip
    }
}

pub(crate) fn check(rules: &Rules, text: &str) {
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#> ")).collect();
    let first = lines.first().copied().unwrap_or("GET /v1/posts/7?q=a");
    let (method, url) = first.split_once(' ').unwrap_or((first, "/"));
    let mut client_ip = Some(IpAddr::V6(Ipv6Addr::LOCALHOST));
    let mut headers = Vec::new();
    for line in lines.iter().skip(1) {
        match (line.strip_prefix("from "), line.split_once(':')) {
            (Some(address), _) => client_ip = address.parse().ok(),
            (None, Some(header)) => headers.push(header),
            (None, None) => {}
        }
    }
    if let Ok(request) = PlainRequest::parse(method, url, headers.iter().copied(), client_ip) {
        check_request(rules, &request);
    }
    let (target, query) =
        url.split_once('?').map_or((url, None), |(url, query)| (url, Some(query)));
    let (host, path) = match target.split_once("://") {
        Some((_, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (Some(host), path)
        }
        None => (None, target),
    };
    check_request(rules, &Raw { method, host, path, query, headers, client_ip });
}

fn check_request(rules: &Rules, request: &impl HttpRequest) {
    let mut mapped = Mapped::new();
    let mut domains: Vec<_> = rules.domains().collect();
    domains.sort_unstable();
    for domain in domains {
        rules.map_http(domain, request, &mut mapped);
        let got = made(&mapped);
        let mut wanted = Vec::new();
        let mut denied = None;
        for explained in rules.explain_http(domain, request) {
            let HttpOutcome::Applied { descriptors, .. } = explained.outcome else { continue };
            for descriptor in descriptors {
                match descriptor {
                    HttpDescriptor::Made { descriptors, cost } => {
                        wanted.extend(descriptors.into_iter().map(|entries| (entries, cost)));
                    }
                    HttpDescriptor::Missing { is_denied: true, .. } => {
                        denied = Some(explained.origin);
                    }
                    _ => {}
                }
            }
        }
        if denied.is_some() {
            wanted.clear();
        }
        assert_eq!(mapped.denied_by(), denied);
        assert_eq!(mapped.is_denied(), denied.is_some());
        assert_eq!(got, wanted);
        mapped.with(|descriptors| {
            let mut found = Found::new();
            rules.find(domain, descriptors, &mut found);
            for (descriptor, asked) in descriptors.iter().enumerate() {
                let _ = rules.stats_key(domain, &found, descriptor, asked.entries);
                let _ = rules.explain(domain, asked.entries);
            }
        });
        rules.map_http(domain, request, &mut mapped);
        assert_eq!(made(&mapped), got);
    }
}

/// The descriptors and their costs.
fn made(mapped: &Mapped) -> Vec<(Vec<(String, String)>, Option<u64>)> {
    let owned = mapped.descriptors().map(|descriptor| {
        let entries = descriptor.entries().map(|it| (it.key.to_owned(), it.value.to_owned()));
        (entries.collect(), descriptor.cost())
    });
    owned.collect()
}
