//! `tidegate explain`: which rules a request meets, and why the others do not apply.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use serde_json::{Value, json};

use support::{Ended, Folder};

const RULES: &str = "\
domain: api
http:
  - match: { method: POST, path: /v1/posts }
    descriptors: [{ action: post, user: '${header.x-user-id}' }]
    on_missing: deny
  - match: { host: static.example.com }
    descriptors: []
    final: true
  - match: { path: '/**' }
    descriptors: [{ ip: '${client_ip}' }]
descriptors:
  - key: action
    value: post
    descriptors:
      - key: user
        rate_limit: { requests_per_unit: 2, unit: second }
  - key: plan
    value: free
    rate_limit: { requests_per_unit: 1, unit: minute, name: free }
  - key: plan
    value: 'f*'
    rate_limit: { requests_per_unit: 2, unit: minute, name: pattern }
  - key: plan
    value: '*oo'
    rate_limit: { requests_per_unit: 9, unit: minute }
  - key: plan
    rate_limit: { requests_per_unit: 3, unit: minute, name: other }
  - key: off
    enabled: false
    rate_limit: { requests_per_unit: 3, unit: minute }
  - key: few
    percent: 50%
    rate_limit: { requests_per_unit: 3, unit: minute }
  - key: ip
    exempt: [10.0.0.0/8, '2001:db8::5/128']
    rate_limit: { requests_per_unit: 3, unit: minute }
  - key: watched
    shadow_mode: true
    rate_limit: { requests_per_unit: 0, unit: minute }
  - key: free
    rate_limit: { unlimited: true }
  - key: blocked
    rate_limit: { requests_per_unit: 0, unit: minute }
  - key: weighed
    rate_limit: { requests_per_unit: 30, unit: day, cost: 10, time_zone: Europe/Berlin }
";

fn explain(arguments: &[&str]) -> Ended {
    let folder = Folder::new(&[("a.yaml", RULES)]);
    folder.run(&[&["explain", "--rules", "a.yaml"], arguments].concat())
}

/// What is said of a request that can be explained.
#[track_caller]
fn said(arguments: &[&str]) -> String {
    let ended = explain(arguments);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{arguments:?}");
    ended.stdout
}

#[track_caller]
fn says(arguments: &[&str], wanted: &str) {
    let said = said(arguments);
    assert!(said.contains(wanted), "{arguments:?} says\n{said}\nand not\n{wanted}");
}

/// What could not be asked, and why.
#[track_caller]
fn cannot(arguments: &[&str], wanted: &str) {
    let ended = explain(arguments);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{arguments:?}");
    assert_eq!(ended.stderr, wanted, "{arguments:?}");
}

#[test]
fn several_descriptors_are_decided_as_one_request() {
    let wanted = "\
descriptor 0: action=post user=ada
  action=post
    + action=post (a.yaml:12): the value is the same
    - and 11 other rules
  user=ada
    + user (a.yaml:15): for all values that no other rule is for
  => api.action_post.user (a.yaml:16)

descriptor 1: plan=free
  plan=free
    + plan=free (a.yaml:17): the value is the same
    - plan=f* (a.yaml:20): a rule for exactly this value goes first
    - plan=*oo (a.yaml:23): `free` does not match `*oo`
    - plan (a.yaml:26): a rule for the value goes first
    - and 8 other rules
  => free (a.yaml:19)

limits met, and what each says to a key that has used nothing
  api.action_post.user (a.yaml:16)
    limit:   fixed_window 2/1s
    key:     3:api,6:action=4:post,4:user=3:ada
    answer:  admitted, 1 of 2 left
  free (a.yaml:19)
    limit:   fixed_window 1/1m
    key:     3:api,4:plan=4:free
    answer:  admitted, 0 of 1 left
the request passes
";
    assert_eq!(said(&["action=post", "user=ada", ",", "plan=free"]), wanted);
}

#[test]
fn patterns_come_after_values_and_before_keys() {
    let foo = "\
  plan=foo
    + plan=f* (a.yaml:20): the first pattern that matches
    - plan=free (a.yaml:17): the value is `foo`, not `free`
    - plan=*oo (a.yaml:23): an earlier pattern matches too
    - plan (a.yaml:26): a rule for the value goes first
    - and 8 other rules
  => pattern (a.yaml:22)
";
    says(&["plan=foo"], foo);
    let gold = "\
  plan=gold
    + plan (a.yaml:26): for all values that no other rule is for
    - plan=free (a.yaml:17): the value is `gold`, not `free`
    - plan=f* (a.yaml:20): `gold` does not match `f*`
    - plan=*oo (a.yaml:23): `gold` does not match `*oo`
    - and 8 other rules
  => other (a.yaml:27)
";
    says(&["plan=gold"], gold);
}

#[test]
fn too_short_too_long_and_unknown() {
    let no_limit = "no limit is met: the request passes\n";
    let short = "  => no limit at this depth; below it are rules for `user`\n\n";
    says(&["action=post"], &format!("{short}{no_limit}"));
    let long = "  city=bonn\n  => no rule for this entry here, so no limit\n\n";
    says(&["action=post", "user=ada", "city=bonn"], &format!("{long}{no_limit}"));
    let unknown = said(&["user=ada"]);
    assert!(unknown.contains("    - action=post (a.yaml:12): the key is `user`, not `action`\n"));
    assert!(
        unknown.ends_with(&format!("=> no rule for this entry here, so no limit\n\n{no_limit}"))
    );
}

#[test]
fn limits_that_are_left_out_say_why() {
    for (entry, why) in [
        ("off=1", "api.off (a.yaml:30) is left out: it is turned off (`enabled: false`)"),
        ("ip=10.1.2.3", "api.ip (a.yaml:36) is left out: the last entry is exempt"),
        ("free=1", "api.free says unlimited"),
    ] {
        says(&[entry], &format!("  => {why}\n\nno limit is met: the request passes\n"));
    }
    let left_out = "is left out: the key is not in the share that `percent` gives";
    let shares = (0..64).map(|number| said(&[&format!("few={number}")]).contains(left_out));
    let count = shares.filter(|is_left_out| *is_left_out).count();
    assert!((10..54).contains(&count), "{count} of 64 are left out of a half");
}

#[test]
fn limits_have_marks_and_answers() {
    for (request, limit, answer, end) in [
        (
            &["watched=1"][..],
            "0/1m, shadow: refuses nobody",
            "refused for good: the limit is 0",
            "passes",
        ),
        (&["blocked=1"], "0/1m", "refused for good: the limit is 0", "is refused"),
        (
            &["weighed=1"],
            "30/day, each unit costs 10, by the calendar of Europe/Berlin",
            "admitted, 20 of 30 left",
            "passes",
        ),
        (
            &["weighed=1", "--cost", "4"],
            "30/day, each unit costs 10, by the calendar of Europe/Berlin",
            "refused for good: the limit is 30",
            "is refused",
        ),
    ] {
        let said = said(request);
        assert!(said.contains(&format!("    limit:   fixed_window {limit}\n")), "{said}");
        assert!(said.contains(&format!("    answer:  {answer}\nthe request {end}\n")), "{said}");
    }
}

#[test]
fn http_requests_are_written_as_for_curl() {
    let arguments = [
        "-X",
        "POST",
        "-H",
        "X-User-Id: ada",
        "https://example.com/v1/posts?draft=1",
        "--client-ip",
        "192.0.2.7",
    ];
    let said = said(&arguments);
    let wanted = "\
http entries
  + a.yaml:3: matches: action=post user=ada
  - a.yaml:6: the host is example.com, not static.example.com
  + a.yaml:9: matches: ip=192.0.2.7

descriptor 0: action=post user=ada
";
    assert!(said.starts_with(wanted), "{said}");
    assert!(said.contains("descriptor 1: ip=192.0.2.7\n"), "{said}");
    assert!(said.ends_with("the request passes\n"), "{said}");
}

#[test]
fn http_without_a_value() {
    let denied = "\
http entries
  + a.yaml:3: matches: refused, because ${header.x-user-id} has no value
  - a.yaml:6: not asked, because a.yaml:3 refuses the request
  - a.yaml:9: not asked, because a.yaml:3 refuses the request

the request is refused: it lacks a value, and `on_missing` is `deny`
";
    assert_eq!(said(&["--request", "POST", "/v1/posts"]), denied);
    let skipped = "\
http entries
  - a.yaml:3: the method is GET, not POST
  - a.yaml:6: the host is absent, not static.example.com
  + a.yaml:9: matches: a descriptor is left out, because ${client_ip} has no value

no limit is met: the request passes
";
    assert_eq!(said(&["/v1/posts"]), skipped);
    let last = "\
  + a.yaml:6: matches, and gives no descriptor; entries further down do not apply
  - a.yaml:9: not asked, because a.yaml:6 is final
";
    says(&["-H", "Host: static.example.com", "/logo.png"], last);
}

/// The address counts as the /64 that it is in, and is exempt by what it is.
#[test]
fn an_address_is_exempt_though_its_network_is_counted() {
    let exempt = said(&["--client-ip", "2001:db8::5", "/"]);
    assert!(exempt.contains("descriptor 0: ip=2001:db8::/64\n"), "{exempt}");
    assert!(exempt.ends_with("exempt\n\nno limit is met: the request passes\n"), "{exempt}");
    says(&["--client-ip", "2001:db8::6", "/"], "    key:     3:api,2:ip=13:2001:db8::/64\n");
}

#[test]
fn what_cannot_be_asked_says_how_it_can() {
    let comma = "hint: a `,` between two descriptors stands alone: user=ada , ip=192.0.2.7\n";
    cannot(&["plan=free", ",plan=gold"], &format!("error: `,plan=gold` is not KEY=VALUE\n{comma}"));
    cannot(&["=free"], &format!("error: `=free` is not KEY=VALUE\n{comma}"));
    cannot(
        &["plan=free", ","],
        "error: a descriptor is empty\nhint: `,` stands between two descriptors: user=ada , ip=192.0.2.7\n",
    );
    cannot(
        &["plan"],
        "error: `plan` is neither KEY=VALUE nor a URL\nhint: write the entries of a descriptor as action=post user=ada\n",
    );
    cannot(
        &["example.com/v1"],
        "error: `example.com/v1` is neither KEY=VALUE nor a URL\nhint: begin a URL with https:// or, without a host, with /\n",
    );
    cannot(
        &["/v1/posts", "plan=free"],
        "error: the URL `/v1/posts` is not the only word\nhint: ask either for one URL or for descriptors\n",
    );
    cannot(
        &["-X", "POST", "plan=free"],
        "error: -X, -H and --client-ip describe an HTTP request, and there is no URL\nhint: end with a URL such as https://example.com/v1/posts or /v1/posts\n",
    );
    cannot(&["-H", "ada", "/"], "error: `ada` is not a header\nhint: write it as 'name: value'\n");
    cannot(&["-X", "PO ST", "/"], "error: `PO ST` is not a method\n");
    cannot(
        &["--domain", "web", "a=b"],
        "error: the rules have no domain `web`\nhint: they have api\n",
    );
    for arguments in [&[][..], &["--client-ip", "1.2.3", "/"], &["--cost", "-1", "plan=free"]] {
        assert_eq!(explain(arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_comma_in_a_value_is_noticed() {
    let ended = explain(&["plan=free,"]);
    assert_eq!(ended.stderr, "note: the value of `plan` is `free,`, with the `,`\n");
    assert_eq!(ended.code, Some(0));
}

#[test]
fn several_domains_need_a_name() {
    let web =
        "domain: web\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 1, unit: day}}]\n";
    let folder = Folder::new(&[("rules/a.yaml", RULES), ("rules/b.yaml", web)]);
    let ended = folder.run(&["explain", "--rules", "rules", "k=v"]);
    let wanted = "error: the rules have several domains\nhint: say which with --domain: api, web\n";
    assert_eq!((ended.code, &*ended.stderr), (Some(2), wanted));
    let ended = folder.run(&["explain", "--rules", "rules", "--domain", "web", "k=v"]);
    assert!(ended.stdout.contains("  web.k (rules/b.yaml:2)\n"), "{}", ended.stdout);
    let ended = folder.run(&["explain", "--rules", "rules", "--domain", "web", "/"]);
    let wanted = "the rules have no `http` section, so that HTTP requests meet no limit\n\n";
    assert!(ended.stdout.starts_with(wanted), "{}", ended.stdout);
    assert_eq!(ended.code, Some(0));
}

#[test]
fn rules_that_are_wrong_could_not_be_asked() {
    let folder = Folder::new(&[("a.yaml", "domain: a\nstranger: 1\n")]);
    let ended = folder.run(&["explain", "--rules", "a.yaml", "k=v"]);
    assert!(ended.stderr.starts_with("a.yaml:2:1: config error, unknown key 'stranger'\n"));
    assert!(ended.stderr.contains("error: the rules have 1 error\nhint: `tidegate check`"));
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""));
    assert_eq!(folder.run(&["explain", "--rules", "none.yaml", "k=v"]).code, Some(2));
}

#[test]
fn json_has_the_same_in_it() {
    let parse = |arguments: &[&str]| -> Value {
        serde_json::from_str(&said(&[&["--format", "json"], arguments].concat())).unwrap()
    };
    let found = parse(&["action=post", "user=ada"]);
    let limit = json!({
        "rule": "api.action_post.user",
        "origin": "a.yaml:16",
        "limit": "fixed_window 2/1s",
        "key": "3:api,6:action=4:post,4:user=3:ada",
        "answer": "admitted, 1 of 2 left",
        "allowed": true,
        "remaining": 1,
    });
    let taken = |rule: &str, line: u32, why: &str| json!({ "rule": rule, "origin": format!("a.yaml:{line}"), "taken": true, "why": why });
    let steps = json!([
        { "key": "action", "value": "post", "candidates": [taken("action=post", 12, "the value is the same")] },
        { "key": "user", "value": "ada", "candidates": [taken("user", 15, "for all values that no other rule is for")] },
    ]);
    let descriptor = json!({
        "entries": [["action", "post"], ["user", "ada"]],
        "steps": steps,
        "end": "api.action_post.user (a.yaml:16)",
    });
    let wanted =
        json!({ "allowed": true, "http": [], "descriptors": [descriptor], "limits": [limit] });
    assert_eq!(found, wanted);

    // Every key is there, also where there is nothing to say.
    let found = parse(&["-X", "POST", "/v1/posts"]);
    assert_eq!(found["allowed"], false);
    assert_eq!((&found["descriptors"], &found["limits"]), (&json!([]), &json!([])));
    assert_eq!(found["http"][0]["applies"], true);
    assert_eq!(found["http"][1]["applies"], false);
}
