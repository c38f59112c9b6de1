//! The `http` section: what it says about requests, and what is said about it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::net::IpAddr;

use proptest::prelude::*;
use tidegate_rules::{
    File, Found, HttpDescriptor, HttpMismatch, HttpOutcome, Loaded, Mapped, Options, PlainRequest,
    Rules,
};

/// Rules for whatever the tests count by.
const RULES: &str = r#"
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 1, unit: second, exempt: ["2001:db8::1", 10.0.0.0/8] } }
  - { key: v, rate_limit: { requests_per_unit: 2, unit: second } }
  - key: action
    value: post
    descriptors:
      - { key: user, rate_limit: { requests_per_unit: 3, unit: second } }
  - { key: a, rate_limit: { requests_per_unit: 4, unit: second } }
"#;

fn load(http: &str) -> Loaded {
    let text = format!("domain: api\nhttp:\n{http}{RULES}");
    Rules::load(&[File { name: "api.yaml", text: &text }], &Options::default())
}

fn rules(http: &str) -> Rules {
    let loaded = load(http);
    assert!(loaded.report.warnings.is_empty(), "{}", loaded.report);
    loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report))
}

/// What is wrong, as `line:column path: message`, and the hints. The section begins in line 3.
fn errors(http: &str) -> Vec<(String, String)> {
    let loaded = load(http);
    assert!(loaded.rules.is_none());
    shown(&loaded.report.errors)
}

fn warnings(http: &str) -> Vec<(String, String)> {
    let loaded = load(http);
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    shown(&loaded.report.warnings)
}

fn shown(found: &[tidegate_rules::Diagnostic]) -> Vec<(String, String)> {
    let shown = found.iter().map(|it| {
        let place = format!("{}:{} {}: {}", it.place.line, it.place.column, it.path, it.message);
        (place, it.hint.clone().unwrap_or_default())
    });
    shown.collect()
}

/// Whether there is exactly one error, that begins and hints so.
fn assert_error(http: &str, begins: &str, hints: &str) {
    let found = errors(http);
    assert_eq!(found.len(), 1, "{http}: {found:#?}");
    assert!(found[0].0.starts_with(begins), "{http}: {found:#?}");
    assert!(found[0].1.contains(hints), "{http}: {found:#?}");
}

struct Ask<'a> {
    method: &'a str,
    url: &'a str,
    headers: &'a [(&'a str, &'a str)],
    client: Option<&'a str>,
}

const GET: Ask<'static> = Ask { method: "GET", url: "/", headers: &[], client: None };

impl Ask<'_> {
    fn request(&self) -> PlainRequest {
        let client: Option<IpAddr> = self.client.map(|address| address.parse().unwrap());
        PlainRequest::parse(self.method, self.url, self.headers.iter().copied(), client).unwrap()
    }

    /// The descriptors, as `key=value` with commas; nothing, if the request is refused.
    fn map(&self, rules: &Rules) -> Option<Vec<String>> {
        let mut mapped = Mapped::new();
        // What an earlier request leaves behind must not matter.
        let earlier = [("x-user", "earlier"), ("authorization", "Bearer e30.eyJzdWIiOiJ6In0.x")];
        let earlier = PlainRequest::parse("GET", "http://earlier/a/b", earlier, None).unwrap();
        rules.map_http("api", &earlier, &mut mapped);
        rules.map_http("api", &self.request(), &mut mapped);
        let shown = mapped.descriptors().map(|descriptor| {
            let entries: Vec<_> =
                descriptor.entries().map(|it| format!("{}={}", it.key, it.value)).collect();
            entries.join(",")
        });
        let shown = shown.collect();
        assert!(!mapped.is_denied() || mapped.descriptors().len() == 0);
        (!mapped.is_denied()).then_some(shown)
    }
}

fn map(rules: &Rules, url: &str) -> Vec<String> {
    Ask { url, ..GET }.map(rules).unwrap()
}

#[test]
fn the_example_of_the_reference() {
    let rules = rules(
        r#"
  - match: { method: POST, path: /v1/posts }
    descriptors: [ { action: post, user: "${header.x-user-id}" } ]
  - match: { path: "/**" }
    descriptors: [ { ip: "${client_ip}" } ]
"#,
    );
    let post = Ask {
        method: "POST",
        url: "http://api.example/v1/posts?draft=1",
        headers: &[("X-User-Id", "ada")],
        client: Some("192.0.2.7"),
    };
    assert_eq!(post.map(&rules).unwrap(), ["action=post,user=ada", "ip=192.0.2.7"]);
    let get = Ask { method: "GET", ..post };
    assert_eq!(get.map(&rules).unwrap(), ["ip=192.0.2.7"]);
    let nobody = Ask { headers: &[], ..post };
    assert_eq!(nobody.map(&rules).unwrap(), ["ip=192.0.2.7"]);

    let (mut mapped, mut found) = (Mapped::new(), Found::new());
    rules.map_http("api", &post.request(), &mut mapped);
    mapped.with(|descriptors| rules.find("api", descriptors, &mut found));
    let ids: Vec<_> = found.limits.iter().map(|met| &*met.rule.id).collect();
    assert_eq!(ids, ["api.action_post.user", "api.ip"]);
}

#[test]
fn an_unknown_domain_or_one_without_section_gives_nothing() {
    let rules = rules("  []\n");
    let mut mapped = Mapped::new();
    for domain in ["api", "other"] {
        rules.map_http(domain, &GET.request(), &mut mapped);
        assert_eq!(mapped.descriptors().len(), 0);
        assert!(!mapped.is_denied());
        assert!(rules.explain_http(domain, &GET.request()).is_empty());
    }
}

#[test]
fn the_order_is_as_written() {
    let rules = rules("  - descriptors: [ { action: post, user: u, }, { v: z }, { a: b } ]\n");
    assert_eq!(map(&rules, "/"), ["action=post,user=u", "v=z", "a=b"]);
    let http = "  - descriptors: [ { user: u, action: post } ]\n";
    assert!(warnings(http)[0].1.contains("`user`"));
}

#[test]
fn paths_are_matched_in_one_form() {
    let rules = rules(
        r#"
  - { match: { path: /v1/posts }, descriptors: [ { v: exact } ] }
  - { match: { path: "/v1/*" }, descriptors: [ { v: star } ] }
  - { match: { path: "/v*/posts" }, descriptors: [ { v: part } ] }
  - { match: { path: "/v1/**" }, descriptors: [ { v: rest } ] }
  - { match: { path: "/{one}/{two}" }, descriptors: [ { v: "${path.two}-${path.one}" } ] }
  - { match: { path: / }, descriptors: [ { v: root } ] }
  - { match: { path: "/a%2Fb" }, descriptors: [ { v: slash } ] }
  - { match: { path: /b }, descriptors: [ { v: b } ] }
"#,
    );
    let all = ["v=exact", "v=star", "v=part", "v=rest", "v=posts-v1"];
    for url in [
        "/v1/posts",
        "/v1/posts/",
        "/v1/%70osts",
        "/v1/./posts",
        "/x/../v1/posts",
        "/%2e%2e/v1/posts",
        "//v1//posts",
        "/v1/posts?x=/y",
        "http://h/v1/posts#f",
    ] {
        assert_eq!(map(&rules, url), all, "{url}");
    }
    for (url, wanted) in [
        ("/v1", &["v=rest"][..]),
        ("/v1/", &["v=rest"]),
        ("/v1/Posts", &["v=star", "v=rest", "v=Posts-v1"]),
        ("/v1/posts/7", &["v=rest"]),
        ("/v2/posts", &["v=part", "v=posts-v2"]),
        ("/v1/a%2Fb", &["v=star", "v=rest", "v=a/b-v1"]),
        ("/", &["v=root"]),
        ("//", &["v=root"]),
        ("/a/..", &["v=root"]),
        ("/a%2Fb", &["v=slash"]),
        ("/a/b", &["v=b-a"]),
        ("/a/../b", &["v=b"]),
        ("/../../b", &["v=b"]),
        ("/V1", &[]),
    ] {
        assert_eq!(map(&rules, url), wanted, "{url}");
    }
}

#[test]
fn the_rest_takes_nothing_too() {
    let rules = rules(
        "  - { match: { path: \"/**\" }, descriptors: [ { v: all } ] }\n  - { match: { path: \"/a/**\" }, descriptors: [ { v: a } ] }\n",
    );
    for (url, wanted) in [
        ("/", &["v=all"][..]),
        ("/a", &["v=all", "v=a"]),
        ("/a/", &["v=all", "v=a"]),
        ("/a/b/c", &["v=all", "v=a"]),
        ("/ab", &["v=all"]),
        ("*", &["v=all"]),
    ] {
        assert_eq!(map(&rules, url), wanted, "{url}");
    }
}

#[test]
fn methods_hosts_and_headers_have_to_match() {
    let rules = rules(
        r#"
  - { match: { method: GET }, descriptors: [ { v: get } ] }
  - { match: { method: [PUT, POST] }, descriptors: [ { v: write } ] }
  - { match: { host: API.example.com }, descriptors: [ { v: host } ] }
  - { match: { host: "*.example.com." }, descriptors: [ { v: hosts } ] }
  - { match: { host: "[::1]" }, descriptors: [ { v: six } ] }
  - { match: { headers: { X-Plan: "free*", x-there: "*" } }, descriptors: [ { v: free } ] }
  - { match: { headers: { x-many: "1,2" } }, descriptors: [ { v: many } ] }
"#,
    );
    let ask =
        |method, url, headers| Ask { method, url, headers, client: None }.map(&rules).unwrap();
    assert_eq!(ask("GET", "/", &[]), ["v=get"]);
    assert_eq!(ask("POST", "/", &[]), ["v=write"]);
    assert_eq!(ask("post", "/", &[]), [""; 0]);
    assert_eq!(ask("X", "http://Api.Example.COM:8080/", &[]), ["v=host", "v=hosts"]);
    assert_eq!(ask("X", "http://api.example.com./", &[]), ["v=host", "v=hosts"]);
    assert_eq!(ask("X", "/", &[("Host", "b.example.com:1")]), ["v=hosts"]);
    assert_eq!(ask("X", "http://example.com/", &[]), [""; 0]);
    assert_eq!(ask("X", "http://[::1]:80/", &[]), ["v=six"]);
    assert_eq!(ask("X", "/", &[("x-plan", "free-trial"), ("X-THERE", "")]), ["v=free"]);
    assert_eq!(ask("X", "/", &[("x-plan", "free")]), [""; 0]);
    assert_eq!(ask("X", "/", &[("x-plan", "Free"), ("x-there", "1")]), [""; 0]);
    assert_eq!(ask("X", "/", &[("x-many", "1"), ("x-many", "2")]), ["v=many"]);
}

#[test]
fn a_final_entry_ends_it_and_without_descriptors_exempts() {
    let rules = rules(
        r#"
  - { match: { path: /health }, final: true }
  - { match: { path: "/a/**" }, descriptors: [ { v: a } ], final: true }
  - { descriptors: [ { v: all } ] }
"#,
    );
    assert_eq!(map(&rules, "/health"), [""; 0]);
    assert_eq!(map(&rules, "/a/b"), ["v=a"]);
    assert_eq!(map(&rules, "/b"), ["v=all"]);
}

#[test]
fn a_missing_value_skips_or_denies() {
    let rules = rules(
        r#"
  - { descriptors: [ { v: first } ] }
  - { match: { path: /skip }, descriptors: [ { action: post, user: "${header.x-user}" }, { a: "${header.x-user:-anon}" } ] }
  - { match: { path: /deny }, descriptors: [ { v: "${header.x-user}" } ], on_missing: deny }
  - { descriptors: [ { v: last } ] }
"#,
    );
    assert_eq!(map(&rules, "/skip"), ["v=first", "a=anon", "v=last"]);
    let ada = Ask { url: "/deny", headers: &[("X-User", "ada")], ..GET };
    assert_eq!(ada.map(&rules).unwrap(), ["v=first", "v=ada", "v=last"]);
    assert_eq!(Ask { url: "/deny", ..GET }.map(&rules), None);
    let empty = Ask { url: "/deny", headers: &[("X-User", "")], ..GET };
    assert_eq!(empty.map(&rules), None, "an empty value is missing");

    let mut mapped = Mapped::new();
    rules.map_http("api", &empty.request(), &mut mapped);
    assert_eq!(rules.origin(mapped.denied_by().unwrap()), "api.yaml:6");
    rules.map_http("api", &GET.request(), &mut mapped);
    assert!(!mapped.is_denied());
}

#[test]
fn the_cost_is_the_entrys() {
    let rules = rules(
        "  - { descriptors: [ { v: a } ], cost: 5 }\n  - { descriptors: [ { v: b } ], cost: 0 }\n  - { descriptors: [ { v: c } ] }\n",
    );
    let mut mapped = Mapped::new();
    rules.map_http("api", &GET.request(), &mut mapped);
    let costs: Vec<_> = mapped.descriptors().map(|it| it.cost()).collect();
    assert_eq!(costs, [Some(5), Some(0), None]);
    mapped.with(|descriptors| {
        let costs: Vec<_> = descriptors.iter().map(|it| it.cost).collect();
        assert_eq!(costs, [Some(5), Some(0), None]);
    });
}

#[test]
fn addresses_are_grouped_and_tiered() {
    let rules = rules(
        r#"
  - { match: { path: /plain }, descriptors: [ { ip: "${client_ip}" }, { v: "${client_ip/56}" }, { a: "${client_ip/128}" } ] }
  - { match: { path: /tiers }, descriptors: [ { ip: "${client_ip/64,56,48}" }, { action: post, user: "${client_ip/128,32}+${method}" } ] }
"#,
    );
    let ask = |url, client| Ask { url, client: Some(client), ..GET }.map(&rules).unwrap();
    let six = "2001:db8:0:1ff:2:3:4:5";
    assert_eq!(
        ask("/plain", six),
        ["ip=2001:db8:0:1ff::/64", "v=2001:db8:0:100::/56", "a=2001:db8:0:1ff:2:3:4:5"]
    );
    assert_eq!(
        ask("/tiers", six),
        [
            "ip=2001:db8:0:1ff::/64",
            "ip=2001:db8:0:100::/56",
            "ip=2001:db8::/48",
            "action=post,user=2001:db8:0:1ff:2:3:4:5+GET",
            "action=post,user=2001:db8::/32+GET",
        ]
    );
    for four in ["192.0.2.7", "::ffff:192.0.2.7"] {
        assert_eq!(ask("/plain", four), ["ip=192.0.2.7", "v=192.0.2.7", "a=192.0.2.7"]);
        assert_eq!(ask("/tiers", four), ["ip=192.0.2.7", "action=post,user=192.0.2.7+GET"]);
    }
    assert_eq!(map(&rules, "/tiers"), [""; 0], "no address, no descriptor");
}

#[test]
fn who_is_exempt_is_seen_behind_the_group() {
    let rules = rules("  - descriptors: [ { ip: \"${client_ip}\" } ]\n");
    let met = |client| {
        let (mut mapped, mut found) = (Mapped::new(), Found::new());
        let request = Ask { client: Some(client), ..GET }.request();
        rules.map_http("api", &request, &mut mapped);
        mapped.with(|descriptors| rules.find("api", descriptors, &mut found));
        found.limits.len()
    };
    assert_eq!(met("2001:db8::1"), 0);
    assert_eq!(met("2001:db8::2"), 1);
    assert_eq!(met("::ffff:10.1.2.3"), 0);
    assert_eq!(met("192.0.2.7"), 1);
}

#[test]
fn every_variable_has_its_value() {
    let rules = rules(
        r#"
  - match: { path: "/{x}/**" }
    descriptors:
      - { v: "${method} ${host} ${path} ${path.x}" }
      - { v: "${header.X-User}" }
      - { v: "${cookie.sid}" }
      - { v: "${query.q}" }
      - { v: "${jwt.sub}@${jwt.org.id}${jwt.admin}" }
      - { v: "$${client_ip} costs $5" }
      - { v: "${query.none:-a default}" }
"#,
    );
    let ask = Ask {
        url: "http://H:1/a/b%20c/?q=x+y%21&q=2",
        headers: &[
            ("x-user", "1"),
            ("X-USER", "2"),
            ("cookie", "a=b; sid=s1; sid=s2"),
            // {"sub":"ada","org":{"id":7},"admin":true}
            (
                "authorization",
                "bearer e30.eyJzdWIiOiJhZGEiLCJvcmciOnsiaWQiOjd9LCJhZG1pbiI6dHJ1ZX0.",
            ),
        ],
        ..GET
    };
    let wanted = [
        "v=GET h /a/b c a",
        "v=1,2",
        "v=s1",
        "v=x y!",
        "v=ada@7true",
        "v=${client_ip} costs $5",
        "v=a default",
    ];
    assert_eq!(ask.map(&rules).unwrap(), wanted);
    assert_eq!(map(&rules, "/a"), ["v=${client_ip} costs $5", "v=a default"]);
}

#[test]
fn a_long_value_is_hashed() {
    let rules = rules("  - descriptors: [ { v: \"${header.x}\" } ]\n");
    let value = |len| {
        let long = "x".repeat(len);
        Ask { headers: &[("x", &long)], ..GET }.map(&rules).unwrap().remove(0)
    };
    assert_eq!(value(1024).len(), 2 + 1024);
    assert!(value(1025).starts_with("v=sha256:"));
    assert_eq!(value(1025), value(1025));
    assert_ne!(value(1025), value(1026));
    // Nobody counts as somebody else by naming the hash.
    let hash = value(1025)["v=".len()..].to_owned();
    let named = Ask { headers: &[("x", &hash)], ..GET }.map(&rules).unwrap().remove(0);
    assert_ne!(named, value(1025));
}

#[test]
fn merged_domains_append_their_entries() {
    let first = "domain: api\nhttp: [ { descriptors: [ { v: one } ] } ]\ndescriptors: [ { key: v, rate_limit: { requests_per_unit: 1, unit: second } } ]\n";
    let second = "domain: api\nhttp:\n  - { match: { path: /a }, descriptors: [ { v: two } ], final: true }\n  - { descriptors: [ { v: three } ] }\n";
    let files = [File { name: "1.yaml", text: first }, File { name: "2.yaml", text: second }];
    let mut options = Options::default();
    options.merge_domains = true;
    let loaded = Rules::load(&files, &options);
    assert!(loaded.report.warnings.is_empty(), "{}", loaded.report);
    let rules = loaded.rules.unwrap();
    assert_eq!(map(&rules, "/a"), ["v=one", "v=two"]);
    assert_eq!(map(&rules, "/b"), ["v=one", "v=three"]);
}

#[test]
fn an_explanation_says_what_and_why_not() {
    let rules = rules(
        r#"
  - { match: { method: POST }, descriptors: [ { v: 1 } ] }
  - { match: { host: "b.*" }, descriptors: [ { v: 2 } ] }
  - { match: { path: /b }, descriptors: [ { v: 3 } ] }
  - { match: { headers: { x-a: "1*", x-b: "*" } }, descriptors: [ { v: 4 } ] }
  - { descriptors: [ { a: "${header.none}" }, { v: "${client_ip/64,48}" } ], cost: 2 }
  - { match: { path: /a/ }, descriptors: [ { v: 6 } ], final: true }
  - { descriptors: [ { v: 7 } ] }
"#,
    );
    let headers = &[("x-a", "1")];
    let ask = Ask { url: "http://A:1/%61", headers, client: Some("2001:db8::1"), ..GET };
    let explained = rules.explain_http("api", &ask.request());
    let lines: Vec<_> = explained.iter().map(|it| it.origin.place.line).collect();
    assert_eq!(lines, [4, 5, 6, 7, 8, 9, 10]);
    let mut outcomes = explained.into_iter().map(|it| it.outcome);
    let mut next = || outcomes.next().unwrap();
    let not = HttpOutcome::NotMatched;
    let text = str::to_owned;
    let (wanted, found) = (vec![text("POST")], text("GET"));
    assert_eq!(next(), not(HttpMismatch::Method { wanted, found }));
    let (wanted, found) = (text("b.*"), Some(text("a")));
    assert_eq!(next(), not(HttpMismatch::Host { wanted, found }));
    let (wanted, found) = (text("/b"), text("/a"));
    assert_eq!(next(), not(HttpMismatch::Path { wanted, found }));
    let (name, wanted, found) = (text("x-b"), text("*"), None);
    assert_eq!(next(), not(HttpMismatch::Header { name, wanted, found }));
    let made = |values: &[&str], cost| HttpDescriptor::Made {
        descriptors: values.iter().map(|value| vec![(text("v"), text(value))]).collect(),
        cost,
    };
    let missing = |is_denied| HttpDescriptor::Missing { variable: text("header.none"), is_denied };
    let tiers = made(&["2001:db8::/64", "2001:db8::/48"], Some(2));
    let descriptors = vec![missing(false), tiers];
    assert_eq!(next(), HttpOutcome::Applied { descriptors, is_final: false });
    let descriptors = vec![made(&["6"], None)];
    assert_eq!(next(), HttpOutcome::Applied { descriptors, is_final: true });
    match next() {
        HttpOutcome::Final(origin) => assert_eq!(rules.origin(origin), "api.yaml:9"),
        other => panic!("{other:?}"),
    }

    let rules = self::rules(
        "  - { descriptors: [ { v: 1 }, { v: \"${header.none}\" }, { v: 2 } ], on_missing: deny }\n  - { descriptors: [ { v: 3 } ] }\n",
    );
    let explained = rules.explain_http("api", &ask.request());
    let descriptors = vec![made(&["1"], None), missing(true)];
    assert_eq!(explained[0].outcome, HttpOutcome::Applied { descriptors, is_final: false });
    assert_eq!(explained[1].outcome, HttpOutcome::Denied(explained[0].origin));
}

#[test]
fn an_explanation_and_a_mapping_agree() {
    let rules = rules(
        r#"
  - { match: { path: "/a/**" }, descriptors: [ { v: "${header.x}" }, { v: "${path}" } ] }
  - { match: { path: "/*/b", method: GET }, descriptors: [ { ip: "${client_ip/64,56}" } ], final: true }
  - { match: { path: "/deny" }, descriptors: [ { v: "${header.x}" } ], on_missing: deny }
  - { descriptors: [ { v: "${query.q:-none}" } ] }
"#,
    );
    for url in ["/", "/a", "/a/b", "/c/b?q=1", "/deny", "/a/c?q=2"] {
        for headers in [&[][..], &[("x", "1")]] {
            for client in [None, Some("2001:db8::1"), Some("192.0.2.1")] {
                let ask = Ask { method: "GET", url, headers, client };
                let explained = rules.explain_http("api", &ask.request());
                let mut made = Vec::new();
                let mut denied = false;
                for explained in explained {
                    let HttpOutcome::Applied { descriptors, .. } = explained.outcome else {
                        continue;
                    };
                    for descriptor in descriptors {
                        match descriptor {
                            HttpDescriptor::Made { descriptors, .. } => {
                                made.extend(descriptors.into_iter().flatten());
                            }
                            HttpDescriptor::Missing { is_denied, .. } => denied |= is_denied,
                            other => panic!("{other:?}"),
                        }
                    }
                }
                let made = made.iter().map(|(key, value)| format!("{key}={value}")).collect();
                assert_eq!(ask.map(&rules), (!denied).then_some(made), "{url} {headers:?}");
            }
        }
    }
}

#[test]
fn errors_of_a_match_are_placed_and_explained() {
    let entry =
        |inside: &str| format!("  - match: {{ {inside} }}\n    descriptors: [ {{ v: a }} ]\n");
    for (inside, begins, hints) in [
        ("method: \"\"", "3:22 http[0].match.method: `` is not a method", "leave `method` out"),
        ("method: []", "3:22 http[0].match.method: an empty list", "leave `method` out"),
        ("method: [GET, \"\"]", "3:28 http[0].match.method[1]: `` is not a method", ""),
        ("method: [GET, [A]]", "3:28 http[0].match.method[1]: a method is text, found a list", ""),
        ("method: GET POST", "3:22 http[0].match.method: `GET POST` is not", "[GET, POST]"),
        ("method: \"*\"", "3:22 http[0].match.method: `*` is not", "leave `method` out"),
        ("method: { a: b }", "3:22 http[0].match.method: error loading config file", ""),
        ("host: \"\"", "3:20 http[0].match.host: `` is not a host", "leave `host` out"),
        ("host: \"a:80\"", "3:20 http[0].match.host: `a:80` is not a host: the port", "leave"),
        ("host: \"a/b\"", "3:20 http[0].match.host: `a/b` is not a host", "`path`"),
        ("host: bücher.example", "3:20 http[0].match.host: `bücher", "xn--"),
        ("path: a", "3:20 http[0].match.path: `a` is not a path pattern", "`/a`"),
        ("path: \"/**/a\"", "3:20 http[0].match.path: `/**/a` is not", "`*`"),
        ("path: /a//b", "3:20 http[0].match.path: `/a//b` is not", "slashes"),
        ("path: /a?b", "3:20 http[0].match.path: `/a?b` is not", ""),
        ("path: [a]", "3:20 http[0].match.path: error loading", ""),
        ("headers: a", "3:23 http[0].match.headers: headers should be a map, found text", ""),
        ("headers: { a b: c }", "3:25 http[0].match.headers: `a b` is not", ""),
        ("headers: { a: }", "3:26 http[0].match.headers.a: the value of `a`", "`\"*\"`"),
        ("headers: { a: b, A: c }", "3:31 http[0].match.headers: `A` is given twice", ""),
        ("paht: /a", "3:14 http[0].match: config error, unknown key 'paht'", "`path`"),
    ] {
        assert_error(&entry(inside), begins, hints);
    }
}

#[test]
fn errors_of_what_answers_change_are_placed_and_explained() {
    let entry = |inside: &str| format!("  - descriptors: [ {{ v: a }} ]\n    {inside}\n");
    for (inside, begins, hints) in [
        (
            "free_statuses: [404, 6xx]",
            "4:20 http[0].free_statuses: `6xx` is not a status",
            "`404`, `500-599` or `5xx`",
        ),
        ("counted_statuses: 401", "4:23 http[0].counted_statuses: error loading config file", ""),
        (
            "free_statuses: [404]\n    counted_statuses: [401]",
            "5:5 http[0].counted_statuses: `free_statuses` and `counted_statuses` exclude each other",
            "all that is not counted is free",
        ),
        ("cost_header: x cost", "4:18 http[0].cost_header: `x cost` is not the name of", ""),
    ] {
        assert_error(&entry(inside), begins, hints);
    }
}

#[test]
fn errors_of_descriptors_are_placed_and_explained() {
    let entry = |descriptors: &str| {
        format!("  - match: {{ path: \"/a/{{id}}\" }}\n    descriptors: {descriptors}\n")
    };
    for (descriptors, begins, hints) in [
        ("[]", "4:18 http[0]: an entry without descriptors", "`final: true`"),
        ("", "3:5 http[0]: an entry without descriptors", "`final: true`"),
        ("{ v: a }", "4:18 http[0].descriptors: `descriptors` is a list", "[ { key"),
        ("a", "4:18 http[0].descriptors: error loading config file", ""),
        ("[ a ]", "4:20 http[0].descriptors[0]: a descriptor should be a map, found text", ""),
        ("[ {} ]", "4:20 http[0].descriptors[0]: the descriptor has no entries", "client_ip"),
        ("[ { v: } ]", "4:23 http[0].descriptors[0].v: the value of `v`", "client_ip"),
        ("[ { v: \"\" } ]", "4:25 http[0].descriptors[0].v: the value of `v` is empty", ""),
        ("[ { v: [a] } ]", "4:25 http[0].descriptors[0].v: the value of `v` should be text", ""),
        ("[ { v: a, v: b } ]", "4:28 http[0].descriptors[0]: `v` is given twice", ""),
        ("[ { \"${method}\": b } ]", "4:22 http[0].descriptors[0].${method}: a key has no", ""),
        (
            "[ { v: \"${clientip}\" } ]",
            "4:25 http[0].descriptors[0].v: `${clientip}` is not a variable",
            "did you mean `${client_ip}`? variables are `client_ip`, `client_ip/56`, `method`",
        ),
        (
            "[ { v: \"${TENANT}\" } ]",
            "4:25 http[0].descriptors[0].v: `${TENANT}` is not a variable: environment variables are not expanded in rule files",
            "variables are",
        ),
        (
            "[ { v: \"${path.ib}\" } ]",
            "4:25 http[0].descriptors[0].v: `/a/{id}` has no segment `{ib}`",
            "`${path.id}`",
        ),
        ("[ { v: \"${client_ip/129}\" } ]", "4:25 http[0].descriptors[0].v: `129`", "1 to 128"),
        (
            "[ { v: \"${client_ip/64,56}\", a: \"${client_ip/64,56}\" } ]",
            "4:50 http[0].descriptors[0].a: only one variable",
            "",
        ),
        (
            "[ { v: \"${client_ip/64,56}${client_ip/1,2}\" } ]",
            "4:25 http[0].descriptors[0].v: only",
            "",
        ),
        ("[ { v: \"${method\" } ]", "4:25 http[0].descriptors[0].v: `${method` has no `}`", "$${"),
    ] {
        assert_error(&entry(descriptors), begins, hints);
    }
    let http = "  - descriptors: [ { v: \"${path.id}\" } ]\n";
    assert_error(http, "3:25 http[0].descriptors[0].v: `${path.id}` needs a `path`", "\"/{id}\"");
    assert_error("  - a\n", "3:5 http[0]: error loading config file: an entry of http", "");
    assert_error("  -\n", "3:4 http[0]: an entry without descriptors", "");
    let other = |field: &str| format!("  - descriptors: [ {{ v: a }} ]\n    {field}\n");
    assert_error(&other("cost: -1"), "4:11 http[0].cost:", "0 to 4294967295");
    assert_error(&other("on_missing: allow"), "4:17 http[0].on_missing: `allow`", "`skip`, `deny`");
    assert_error(&other("final: maybe"), "4:12 http[0].final:", "`true` or `false`");
    assert_error(&other("mathc: {}"), "4:5 http[0]: config error, unknown key", "`match`");
}

#[test]
fn errors_come_all_at_once() {
    let found = errors(
        r#"
  - match: { method: "", host: "", path: a, headers: { "": b } }
    descriptors: [ { v: "${a} ${path.x} ${b}" }, { a: "${c" } ]
  - match: { path: a }
    cost: much
"#,
    );
    let places: Vec<_> = found.iter().map(|it| it.0.split(' ').next().unwrap()).collect();
    assert_eq!(
        places,
        ["4:22", "4:32", "4:42", "4:56", "5:25", "5:25", "5:55", "6:5", "6:20", "7:11"],
        "{found:#?}"
    );
}

#[test]
fn a_descriptor_that_leads_nowhere_is_a_warning() {
    let entry = |descriptor: &str| format!("  - descriptors: [ {{ {descriptor} }} ]\n");
    for (descriptor, hint) in [
        ("ipp: \"${client_ip}\"", "no rule has the key `ipp`; did you mean `ip`?"),
        ("other: b", "no rule has the key `other`; there are `a`, `action`, `ip`, `v`"),
        ("action: put, user: u", "no rule has the key `action` with the value `put`"),
        ("action: post", "the rules go on with `user`"),
        ("action: \"${method}\"", "the rules go on with `user`"),
        ("action: post, usr: u", "no rule after `action` has the key `usr`; did you mean `user`?"),
        ("v: a, more: b", "no rule after `v` has the key `more`"),
    ] {
        let found = warnings(&entry(descriptor));
        let place = "3:20 http[0].descriptors[0]: this descriptor leads to no rule of the domain";
        assert_eq!(found, [(place.to_owned(), hint.to_owned())], "{descriptor}");
    }
    for descriptor in ["action: post, user: u", "action: \"${method}\", user: \"${host}\"", "v: x"]
    {
        assert_eq!(warnings(&entry(descriptor)), [], "{descriptor}");
    }
}

#[test]
fn patterns_lead_where_they_lead_requests() {
    let text = r#"
domain: api
http:
  - descriptors: [ { path: /v1/a, "x-b": c }, { path: /v1/b }, { path: /v2, x-y: "${method}" } ]
descriptors:
  - key: path
    value: /v1/*
    descriptors: [ { key: "x-*", rate_limit: { requests_per_unit: 1, unit: second } } ]
  - key: path
    rate_limit: { requests_per_unit: 1, unit: second }
"#;
    for lyft_compat in [false, true] {
        let mut options = Options::default();
        options.lyft_compat = lyft_compat;
        let loaded = Rules::load(&[File { name: "api.yaml", text }], &options);
        let hints: Vec<_> = shown(&loaded.report.warnings).into_iter().map(|it| it.1).collect();
        assert_eq!(hints, ["the rules go on with `x-*`", "no rule after `path` has the key `x-y`"]);
    }
}

#[test]
fn an_entry_behind_a_final_one_is_a_warning() {
    for last in ["final: true", "match: { path: \"/**\" }, final: true", "match: {}, final: true"] {
        let http = format!("  - {{ {last} }}\n  - descriptors: [ {{ v: a }} ]\n");
        let found = warnings(&http);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "4:5 http[1]: this entry is never reached");
        assert_eq!(found[0].1, "the entry in api.yaml:3 is final and matches every request");
    }
    let http = "  - { match: { path: /a }, final: true }\n  - descriptors: [ { v: a } ]\n";
    assert_eq!(warnings(http), []);
}

#[test]
fn a_method_in_small_letters_is_a_warning() {
    let found = warnings("  - { match: { method: get }, descriptors: [ { v: a } ] }\n");
    assert!(found[0].0.starts_with("3:24 http[0].match.method: methods are compared"), "{found:?}");
    assert_eq!(found[0].1, "did you mean `GET`?");
}

proptest! {
    #[test]
    fn no_section_and_no_request_panics(
        path in "/?[/*{}a.%2]{0,10}",
        host in "[*a.:\\[\\]]{1,6}",
        value in "(\\$\\{(client_ip|path|header|query|jwt)[./]?[a0-9,]{0,4}(:-a?)?\\}|[$a{}]){1,3}",
        url in "/[/.%2ea]{0,10}[?]?[a=&%]{0,6}",
    ) {
        let http = format!("  - match: {{ path: '{path}', host: '{host}' }}\n    descriptors: [ {{ v: '{value}' }} ]\n  - descriptors: [ {{ v: '{value}' }} ]\n");
        let Some(rules) = load(&http).rules else { return Ok(()) };
        let headers = [("host", &*host), ("a", "b")];
        let client = Some("2001:db8::1".parse().unwrap());
        let request = PlainRequest::parse("GET", &url, headers, client).unwrap();
        let mut mapped = Mapped::new();
        rules.map_http("api", &request, &mut mapped);
        let explained = rules.explain_http("api", &request).into_iter().flat_map(|it| match it.outcome {
            HttpOutcome::Applied { descriptors, .. } => descriptors,
            _ => Vec::new(),
        });
        let made = explained.map(|it| match it {
            HttpDescriptor::Made { descriptors, .. } => descriptors.len(),
            _ => 0,
        });
        prop_assert_eq!(mapped.descriptors().len(), made.sum::<usize>());
    }
}
