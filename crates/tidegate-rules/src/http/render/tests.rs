use super::*;
use crate::http::PlainRequest;
use crate::http::pattern::Wrong;
use proptest::prelude::*;

type Headers<'a> = &'a [(&'a str, &'a str)];

fn request(url: &str, headers: Headers<'_>, client_ip: Option<&str>) -> PlainRequest {
    let client_ip = client_ip.map(|address| address.parse().unwrap());
    PlainRequest::parse("GET", url, headers.iter().copied(), client_ip).unwrap()
}

fn render_all(source: &str, request: &PlainRequest, tier: usize) -> Result<String, String> {
    let segments = |_: &str| -> Result<usize, Wrong> { Ok(1) };
    let template = Template::parse(source, &segments).unwrap();
    let (mut scratch, mut out) = (Scratch::default(), String::from("before"));
    let mut asked = Asked::new(request, &mut scratch);
    match template.render(&mut asked, tier, &mut out) {
        Ok(_) => Ok(out.split_off("before".len())),
        Err(missing) => Err(missing.to_string()),
    }
}

fn render(source: &str, url: &str, headers: Headers<'_>) -> Result<String, String> {
    render_all(source, &request(url, headers, None), 0)
}

fn ok(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn missing(variable: &str) -> Result<String, String> {
    Err(variable.to_owned())
}

#[test]
fn the_parts_of_a_url() {
    let url = "http://API.example.com.:8080/v1/%70osts/?a=1";
    assert_eq!(render("${method} ${host} ${path}", url, &[]), ok("GET api.example.com /v1/posts"));
    assert_eq!(render("${path.id}", url, &[]), ok("posts"));
    assert_eq!(render("${path.id}", "/a/b%2Fc", &[]), ok("b/c"));
    assert_eq!(render("${path}", "/", &[]), ok("/"));
    assert_eq!(render("${host}", "/", &[]), missing("host"));
    assert_eq!(render("${host}", "/", &[("host", "H:1")]), ok("h"));
}

#[test]
fn headers_join_and_an_empty_one_is_missing() {
    let headers = [("X-A", "1"), ("x-b", ""), ("x-a", "2"), ("X-a", "")];
    assert_eq!(render("${header.x-A}", "/", &headers), ok("1,2"));
    assert_eq!(render("${header.x-b}", "/", &headers), missing("header.x-b"));
    assert_eq!(render("${header.x-b:-none}", "/", &headers), ok("none"));
    assert_eq!(render("${header.x-c}", "/", &headers), missing("header.x-c"));
    assert_eq!(render("u-${header.x-c:-}", "/", &headers), ok("u-"));
}

#[test]
fn the_first_cookie_counts() {
    let headers = [("cookie", "a=1; sid2=no;sid = x; sid=s1==; sid=s2"), ("cookie", "b=2; e=")];
    for (name, wanted) in [("sid", "s1=="), ("a", "1"), ("b", "2"), ("sid2", "no")] {
        assert_eq!(render(&format!("${{cookie.{name}}}"), "/", &headers), ok(wanted));
    }
    for name in ["e", "SID", "si", "c"] {
        let name = format!("cookie.{name}");
        assert_eq!(render(&format!("${{{name}}}"), "/", &headers), missing(&name));
    }
}

#[test]
fn the_first_parameter_counts_without_escapes() {
    let url = "/?q=a+b%26c&q=2&%6E%61me=x&e=&flag&bad=%zz&f=%ff";
    for (name, wanted) in [("q", "a b&c"), ("name", "x"), ("bad", "%zz"), ("f", "\u{fffd}")] {
        assert_eq!(render(&format!("${{query.{name}}}"), url, &[]), ok(wanted));
    }
    for name in ["e", "flag", "Q", "none"] {
        let name = format!("query.{name}");
        assert_eq!(render(&format!("${{{name}}}"), url, &[]), missing(&name));
    }
    assert_eq!(render("${query.q}", "/", &[]), missing("query.q"));
}

#[test]
fn claims_of_a_bearer_token() {
    // {"sub":"ada","org":{"id":7}}
    let token = "Bearer e30.eyJzdWIiOiJhZGEiLCJvcmciOnsiaWQiOjd9fQ.sig";
    let headers = [("Authorization", token)];
    assert_eq!(render("${jwt.sub}/${jwt.org.id}", "/", &headers), ok("ada/7"));
    assert_eq!(render("${jwt.none}", "/", &headers), missing("jwt.none"));
    assert_eq!(render("${jwt.sub:-anon}", "/", &[]), ok("anon"));
    assert_eq!(render("${jwt.sub:-anon}", "/", &[("authorization", "Basic YTpi")]), ok("anon"));
    assert_eq!(render("${jwt.sub}", "/", &[("authorization", "Bearer x.y.z")]), missing("jwt.sub"));
}

#[test]
fn long_values_are_hashed_and_short_ones_are_not() {
    let (fits, long) = ("x".repeat(1024), "x".repeat(1025));
    assert_eq!(render("${header.a}", "/", &[("a", &fits)]), ok(&fits));
    let hashed = render("${header.a}", "/", &[("a", &long)]).unwrap();
    let digest: String =
        Sha256::digest(long.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hashed, format!("sha256:{digest}"));
    assert_eq!(hashed.len(), 7 + 64);
    assert!(render("u${header.a}", "/", &[("a", &fits)]).unwrap().starts_with("sha256:"));
    assert_eq!(render(&long, "/", &[]), ok(&long), "what the rules say stays as it is");
}

#[test]
fn addresses_and_their_tiers() {
    let six = request("/", &[], Some("2001:db8:0:1ff::5"));
    let source = "${client_ip/64,56,128}";
    for (tier, wanted) in
        [(0, "2001:db8:0:1ff::/64"), (1, "2001:db8:0:100::/56"), (2, "2001:db8:0:1ff::5")]
    {
        assert_eq!(render_all(source, &six, tier), ok(wanted));
    }
    assert_eq!(render_all("${client_ip}", &six, 2), ok("2001:db8:0:1ff::/64"));
    let four = request("/", &[], Some("::ffff:192.0.2.7"));
    assert_eq!(render_all(source, &four, 0), ok("192.0.2.7"));
    assert_eq!(render(source, "/", &[]), missing("client_ip/64,56,128"));
}

#[test]
fn the_address_comes_along_with_itself_alone() {
    let address = |source: &str, client: Option<&str>| {
        let template = Template::parse(source, &|_| Ok(0)).unwrap();
        let (mut scratch, mut out) = (Scratch::default(), String::new());
        let request = request("/", &[], client);
        template.render(&mut Asked::new(&request, &mut scratch), 0, &mut out).unwrap()
    };
    let client = "2001:db8::5";
    assert_eq!(address("${client_ip/48}", Some(client)), Some(client.parse().unwrap()));
    assert_eq!(address("ip ${client_ip}", Some(client)), None);
    assert_eq!(address("${client_ip:-none}", None), None);
    assert_eq!(address("${method}", Some(client)), None);
}

/// The definition, character by character, for the headers `a` and `b`; nothing, where a variable
/// is missing. What is no template is an error.
fn by_definition(source: &[char], values: [&str; 2]) -> Result<Option<String>, ()> {
    let starts = |at: usize, with: &str| {
        with.chars().enumerate().all(|(more, it)| source.get(at + more) == Some(&it))
    };
    let (mut out, mut at, mut is_missing) = (String::new(), 0, false);
    while at < source.len() {
        if starts(at, "$${") {
            out.push_str("${");
            at += 3;
        } else if starts(at, "${") {
            let end = (at..source.len()).find(|end| source[*end] == '}').ok_or(())?;
            let inner: String = source[at + 2..end].iter().collect();
            at = end + 1;
            if inner.contains("${") {
                return Err(());
            }
            let parts: Vec<&str> = inner.splitn(2, ":-").collect();
            let value = match parts[0] {
                "header.a" => values[0],
                "header.b" => values[1],
                _ => return Err(()),
            };
            match (value, parts.get(1)) {
                ("", Some(default)) => out.push_str(default),
                ("", None) => is_missing = true,
                (value, _) => out.push_str(value),
            }
        } else {
            out.push(source[at]);
            at += 1;
        }
    }
    Ok((!is_missing).then_some(out))
}

proptest! {
    #[test]
    fn rendering_is_by_definition(
        pieces in proptest::collection::vec(
            prop_oneof![
                3 => Just("${header.a}".to_owned()),
                3 => Just("${header.b:-x}".to_owned()),
                1 => Just("${header.b:-}".to_owned()),
                1 => "\\$\\{header\\.[ab](:-[a$]{0,2})?\\}",
                4 => "[a$]{0,2}",
                1 => "[{}$:é-]{0,3}",
            ],
            0..8,
        ),
        a in "[a-z$]{0,3}",
        b in "[{}$]{0,3}",
    ) {
        let source = pieces.concat();
        let chars: Vec<char> = source.chars().collect();
        let wanted = by_definition(&chars, [&a, &b]);
        match Template::parse(&source, &|_| Ok(0)) {
            Err(_) => prop_assert_eq!(wanted, Err(())),
            Ok(_) => {
                let got = render(&source, "/", &[("a", &a), ("b", &b)]).ok();
                prop_assert_eq!(Ok(got), wanted);
            }
        }
    }

    #[test]
    fn no_request_panics(
        path in "/[/.%2eéa]{0,12}",
        query in "[a=&%+2]{0,12}",
        cookie in "[a=; ]{0,12}",
        token in "(Bearer )?[a.=_-]{0,12}",
    ) {
        let request = request(&format!("{path}?{query}"), &[("cookie", &cookie), ("authorization", &token)], None);
        for source in ["${path}", "${path.x}", "${query.a}", "${cookie.a}", "${jwt.a}"] {
            let _ = render_all(source, &request, 0);
        }
    }
}
