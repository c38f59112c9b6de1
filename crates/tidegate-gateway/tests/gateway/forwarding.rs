//! Requests to upstreams and answers back, over HTTP/1.1.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use http::Response;
use tidegate_gateway::{Gateway, GatewayConfig, HealthCheck, Open, Route, Upstream};

use crate::support::*;

#[test]
fn a_request_goes_through_and_comes_back() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let answer = curl(&[
        "-i",
        "--path-as-is",
        "-H",
        "Accept:",
        "-H",
        "User-Agent: u",
        &url(&gateway, "/a%2Fb//../c?d=%20e"),
    ]);
    let host = at(&gateway);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(
        body,
        format!(
            "GET /a%2Fb//../c?d=%20e HTTP/1.1\n\
             forwarded: for=127.0.0.1;host=\"{host}\";proto=http\n\
             host: {host}\n\
             user-agent: u\n\
             via: 1.1 tidegate\n\
             x-forwarded-for: 127.0.0.1\n\
             x-forwarded-host: {host}\n\
             x-forwarded-proto: http\n\n"
        )
    );
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for wanted in ["x-upstream: echo", "via: 1.1 tidegate", "date: ", "content-length: "] {
        assert!(head.contains(wanted), "{head}");
    }
}

#[test]
fn connections_to_upstreams_are_used_again() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    for _ in 0..50 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(status(&read_answer(&mut stream)), "200");
    }
    for _ in 0..10 {
        assert_eq!(
            status(&say(&gateway, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")),
            "200"
        );
    }
    assert_eq!(upstream.accepted(), 1);
}

#[test]
fn bodies_and_trailers_go_both_ways() {
    let upstream = serve(|request| async move {
        use http_body_util::{BodyExt as _, StreamBody};
        use hyper::body::Frame;
        let collected = request.into_body().collect().await.unwrap();
        let mut trailers = collected.trailers().cloned().unwrap_or_default();
        trailers.insert("x-down", "2".parse().unwrap());
        let frames = [Ok(Frame::data(collected.to_bytes())), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(tokio_stream::iter(frames)).boxed());
        response.headers_mut().insert("trailer", "x-up, x-down".parse().unwrap());
        response
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let answer = say(
        &gateway,
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\nTrailer: x-up\r\n\
         Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nx-up: 1\r\n\r\n",
    );
    assert_eq!(status(&answer), "200");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    assert!(body.starts_with("B\r\nhello world\r\n0\r\n"), "{answer}");
    assert!(body.contains("x-up: 1\r\n") && body.contains("x-down: 2\r\n"), "{answer}");
    // With a length, and none.
    let echo = echo();
    let gateway = start(GatewayConfig::to(echo.url()));
    let answer = curl(&["-d", "name=value", &url(&gateway, "/")]);
    assert!(
        answer.contains("content-length: 10\n") && answer.ends_with("\nname=value"),
        "{answer}"
    );
    let answer =
        curl(&["-X", "POST", "-H", "Transfer-Encoding: chunked", "-d", "x", &url(&gateway, "/")]);
    assert!(answer.contains("transfer-encoding: chunked\n") && answer.ends_with("\nx"), "{answer}");
}

#[test]
fn nothing_is_held_back_on_the_way() {
    // The upstream answers each piece as it comes, and the client sends the next one only then.
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let mut chunk = [0; 6];
        for _ in 0..3 {
            stream.read_exact(&mut chunk).unwrap();
            stream.write_all(&chunk).unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
    for piece in [b"1\r\na\r\n", b"1\r\nb\r\n", b"1\r\nc\r\n"] {
        stream.write_all(piece).unwrap();
        let mut back = [0; 6];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, piece);
    }
}

#[test]
fn head_and_others_without_a_body_have_none() {
    let upstream = raw_server(|mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let answer = match head.split(' ').nth(1).unwrap() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    for (request, wanted) in
        [("HEAD /", "200"), ("GET /204", "204"), ("GET /304", "304"), ("HEAD /", "200")]
    {
        write!(stream, "{request} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let head = read_head(&mut stream).unwrap();
        assert_eq!(status(&head), wanted);
        assert_eq!(head.contains("content-length: 7"), wanted == "200", "{head}");
    }
    assert_eq!(upstream.accepted(), 1);
    assert_eq!(curl(&["-I", "-o", "/dev/null", "-w", "%{http_code}", &url(&gateway, "/")]), "200");
}

#[test]
fn early_hints_do_not_disturb_the_answer() {
    let upstream = raw_server(|mut stream, _| {
        while read_head(&mut stream).is_some() {
            stream
                .write_all(
                    b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n\
                      HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                )
                .unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    for _ in 0..2 {
        assert_eq!(curl(&[&url(&gateway, "/")]), "ok");
    }
    assert_eq!(upstream.accepted(), 1);
}

#[test]
fn a_client_that_waits_to_be_told_to_go_on_is() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        )
        .unwrap();
    assert_eq!(read_head(&mut stream).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ok").unwrap();
    let answer = read_answer(&mut stream);
    assert!(answer.ends_with("\nok") && !answer.contains("expect"), "{answer}");
    // Nobody is told to go on whose request goes nowhere.
    let mut config = GatewayConfig::to(upstream.url());
    config.body_bytes_max = 1;
    let gateway = start(config);
    let answer = say(
        &gateway,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(status(&answer), "413");
}

#[test]
fn routes_go_by_host_and_path() {
    let named = |name: &'static str| serve(move |_| async move { Response::new(full(name)) });
    let (one, two, three) = (named("one"), named("two"), named("three"));
    let mut config = GatewayConfig::to(one.url());
    config.upstreams.push(Upstream::new("two", [two.url()]));
    config.upstreams.push(Upstream::new("three", [three.url()]));
    config.routes = vec![Route::new("/one/**", "default"), Route::new("/two/**", "two")];
    let mut by_host = Route::new("/**", "three");
    by_host.host = Some("*.three.example".into());
    config.routes.push(by_host);
    let gateway = start(config);
    assert_eq!(curl(&[&url(&gateway, "/one/x")]), "one");
    assert_eq!(curl(&[&url(&gateway, "/two")]), "two");
    assert_eq!(curl(&["--path-as-is", &url(&gateway, "/one/../two/x")]), "two");
    assert_eq!(curl(&["-H", "Host: a.three.example:80", &url(&gateway, "/one/x")]), "three");
    let answer = curl(&["-i", &url(&gateway, "/other")]);
    assert_eq!(status(&answer), "404");
    assert!(answer.contains("application/problem+json"), "{answer}");
    // The host of the target counts, and the header does not.
    let answer = say(
        &gateway,
        "GET http://b.three.example/one/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.ends_with("three"), "{answer}");
}

#[test]
fn wrong_settings_are_told() {
    let start = |change: &dyn Fn(&mut GatewayConfig)| {
        let mut config = GatewayConfig::to("http://127.0.0.1:1");
        change(&mut config);
        Gateway::start(config, Open).unwrap_err().to_string()
    };
    let error = start(&|config| config.upstreams[0].urls = vec!["ftp://a".into()]);
    assert_eq!(
        error,
        "`ftp://a` of the upstream `default` cannot be used: the scheme is none of `http`, `https`, `h2c`, `h2`, `unix`, `h2c+unix`"
    );
    let error = start(&|config| config.routes[0].upstream = "other".into());
    assert_eq!(error, "a route cannot be used: there is no upstream `other`");
    let error = start(&|config| config.routes[0].path = "a".into());
    assert!(error.contains("begin with `/`"), "{error}");
    let error = start(&|config| config.trusted_proxies = vec!["me".into()]);
    assert!(error.contains("`me` in trusted_proxies"), "{error}");
}

#[test]
fn what_is_down_is_left_out() {
    let good = echo();
    let mut config = GatewayConfig::to(good.url());
    config.upstreams[0].urls = vec![format!("http://{}", nobody()), good.url()];
    let gateway = start(config);
    for _ in 0..20 {
        assert_eq!(curl(&["-o", "/dev/null", "-w", "%{http_code}", &url(&gateway, "/")]), "200");
    }
}

#[test]
fn those_that_are_well_take_turns() {
    let servers = [echo(), echo(), echo()];
    let mut config = GatewayConfig::to("");
    config.upstreams[0].urls = servers.iter().map(Server::url).collect();
    let gateway = start(config);
    for _ in 0..9 {
        curl(&[&url(&gateway, "/")]);
    }
    assert_eq!(servers.each_ref().map(Server::accepted), [1, 1, 1]);
}

#[test]
fn an_active_look_leaves_out_what_is_unwell() {
    let well = serve(|_| async { Response::new(full("well")) });
    let (tell, told) = mpsc::channel();
    let unwell = serve(move |request| {
        let _ = tell.send(request.uri().path().to_owned());
        async { Response::builder().status(500).body(full("unwell")).unwrap() }
    });
    let mut config = GatewayConfig::to("");
    config.upstreams[0].urls = vec![unwell.url(), well.url()];
    let every = Duration::from_millis(50);
    config.upstreams[0].check =
        Some(HealthCheck { path: "/health".into(), every, timeout: Duration::from_secs(5) });
    let gateway = start(config);
    // The second look begins after the first one was heard of.
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(GUARD).unwrap(), "/health");
    }
    for _ in 0..4 {
        assert_eq!(curl(&[&url(&gateway, "/")]), "well");
    }
}

#[test]
fn failures_are_told_as_problems() {
    let problem = |answer: &str, wanted: &str, detail: &str| {
        assert_eq!(status(answer), wanted, "{answer}");
        for text in ["content-type: application/problem+json", "cache-control: no-store", detail] {
            assert!(answer.contains(text), "{answer}");
        }
    };
    let gateway = start(GatewayConfig::to(format!("http://{}", nobody())));
    problem(&curl(&["-i", &url(&gateway, "/")]), "502", "cannot be reached");
    // It closes without an answer.
    let rude = raw_server(|mut stream, _| drop(read_head(&mut stream)));
    let gateway = start(GatewayConfig::to(rude.url()));
    problem(&curl(&["-i", &url(&gateway, "/")]), "502", "broke off");
    problem(&curl(&["-i", "-d", "x", &url(&gateway, "/")]), "502", "broke off");
    // Its answer makes no sense.
    for nonsense in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nab",
    ] {
        let server = raw_server(move |mut stream, _| {
            read_head(&mut stream);
            let _ = stream.write_all(nonsense.as_bytes());
        });
        let gateway = start(GatewayConfig::to(server.url()));
        problem(&curl(&["-i", &url(&gateway, "/")]), "502", "makes no sense");
    }
    // It does not answer at all.
    let slow = raw_server(|mut stream, _| {
        read_head(&mut stream);
        let _ = stream.read(&mut [0; 64]);
    });
    let mut config = GatewayConfig::to(slow.url());
    config.routes[0].response = Duration::from_millis(100);
    let gateway = start(config);
    problem(&curl(&["-i", &url(&gateway, "/")]), "504", "in time");
    // There may be no more connections to it.
    let mut config = GatewayConfig::to(slow.url());
    config.upstreams[0].connections_max = 0;
    let gateway = start(config);
    problem(&curl(&["-i", &url(&gateway, "/")]), "503", "too many connections");
}

#[test]
fn a_request_is_sent_again_only_if_nobody_can_have_acted_on_it() {
    // The first connection answers once and then closes when it is asked again; the others tell
    // which they are.
    let upstream = raw_server(|mut stream, which| {
        let mut asked = 0;
        while let Some(head) = read_head(&mut stream) {
            asked += 1;
            if which == 0 && asked == 2 {
                return;
            }
            let body = format!("{which} {}", head.split(' ').next().unwrap());
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    assert_eq!(curl(&[&url(&gateway, "/")]), "0 GET");
    assert_eq!(curl(&[&url(&gateway, "/")]), "1 GET");
    for method in ["POST", "PATCH"] {
        let upstream = raw_server(|mut stream, which| {
            if read_head(&mut stream).is_some() {
                let body = which.to_string();
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}").unwrap();
                read_head(&mut stream);
            }
        });
        let gateway = start(GatewayConfig::to(upstream.url()));
        assert_eq!(curl(&["-X", method, &url(&gateway, "/")]), "0");
        let answer = curl(&["-i", "-X", method, &url(&gateway, "/")]);
        assert_eq!(status(&answer), "502", "{method} {answer}");
    }
    // A part of an answer came, so somebody did act.
    let upstream = raw_server(|mut stream, which| {
        if read_head(&mut stream).is_some() {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{which}").unwrap();
        }
        if read_head(&mut stream).is_some() {
            write!(stream, "HTTP/1.1 2").unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    assert_eq!(curl(&[&url(&gateway, "/")]), "0");
    assert_eq!(status(&curl(&["-i", &url(&gateway, "/")])), "502");
}

#[test]
fn an_upstream_that_dies_on_the_way_breaks_the_answer_off() {
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let answer = say(&gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nhalf"), "{answer}");
    // One that stops is as one that died.
    let (tell, told) = mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
        let _ = tell.send(stream.read(&mut [0]).unwrap_or(0));
    });
    let mut config = GatewayConfig::to(upstream.url());
    config.routes[0].idle = Duration::from_millis(100);
    let gateway = start(config);
    let answer = say(&gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\nhalf"), "{answer}");
    assert_eq!(told.recv_timeout(GUARD).unwrap(), 0, "its connection was closed");
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let (tell, told) = mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        tell.send(true).unwrap();
        read_head(&mut stream);
        tell.send(stream.read(&mut [0]).unwrap_or(0) == 0).unwrap();
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(told.recv_timeout(GUARD).unwrap());
    drop(stream);
    assert!(told.recv_timeout(GUARD).unwrap(), "the upstream's connection was closed");
}

#[test]
fn nginx_as_upstream_is_happy() {
    let nginx = crate::support::Nginx::start(
        "location / { return 200 \"$request_method $request_uri $http_x_forwarded_for $connection_requests\"; }\n\
         location /big { alias /dev/null; } location /up { client_max_body_size 1m; return 201; }",
    );
    let gateway = start(GatewayConfig::to(nginx.url()));
    assert_eq!(curl(&[&url(&gateway, "/a?b")]), "GET /a?b 127.0.0.1 1");
    assert_eq!(curl(&[&url(&gateway, "/a?b")]), "GET /a?b 127.0.0.1 2");
    assert_eq!(status(&curl(&["-i", "-d", "x=y", &url(&gateway, "/up")])), "201");
}
