//! Every command in both versions of the protocol.

use std::time::Duration;

use crate::support::{Answer, Client, bulk, error, ints, ok, start};

/// Two clients, one for each version.
fn both(server: &crate::support::Running) -> [Client; 2] {
    let (two, mut three) = (server.client(), server.client());
    let Answer::Map(_) = three.say("HELLO 3") else { panic!("HELLO 3 answers with a map") };
    [two, three]
}

fn checked(numbers: [i64; 5], rule: Option<&str>) -> Answer {
    let mut all = numbers.map(Answer::Int).to_vec();
    all.push(rule.map_or(Answer::Null, bulk));
    Answer::Array(all)
}

#[test]
fn rules_are_asked() {
    let server = start(|_| {});
    let mut client = server.client();
    let ask = "TIDEGATE.CHECK api user ada";
    assert_eq!(
        client.say("TIDEGATE.PEEK api user ada"),
        checked([1, 2, 2, 0, 0], Some("per-user"))
    );
    assert_eq!(client.say(ask), checked([1, 2, 1, 0, 500], Some("per-user")));
    assert_eq!(
        client.say("tidegate.check api user ada"),
        checked([1, 2, 0, 0, 1000], Some("per-user"))
    );
    assert_eq!(client.say(ask), checked([0, 2, 0, 500, 1000], Some("per-user")));
    // Rounded up.
    server.clock.advance(Duration::from_nanos(1));
    assert_eq!(client.say(ask), checked([0, 2, 0, 500, 1000], Some("per-user")));
    server.clock.advance(Duration::from_nanos(499_999_998));
    assert_eq!(client.say(ask), checked([0, 2, 0, 1, 501], Some("per-user")));
    server.clock.advance(Duration::from_nanos(1));
    assert_eq!(client.say(ask), checked([1, 2, 0, 0, 1000], Some("per-user")));
    assert_eq!(
        client.say("TIDEGATE.CHECK api user eve COST 3"),
        checked([0, 2, 2, -1, 0], Some("per-user"))
    );
    assert_eq!(
        client.say("TIDEGATE.CHECK api user eve COST 0"),
        checked([1, 2, 2, 0, 0], Some("per-user"))
    );
}

#[test]
fn several_descriptors_are_all_or_nothing() {
    let server = start(|_| {});
    for mut client in both(&server) {
        let (user, ip) = (format!("u{}", client.reads), format!("i{}", client.reads));
        let ask = format!("TIDEGATE.CHECK api user {user} AND ip {ip} COST 2");
        assert_eq!(client.say(&ask), checked([1, 2, 0, 0, 60_000], Some("per-user")));
        assert_eq!(client.say(&ask), checked([0, 2, 0, 1000, 60_000], Some("per-user")));
        let ip = format!("TIDEGATE.PEEK api ip {ip}");
        assert_eq!(client.say(&ip), checked([1, 10, 8, 0, 60_000], Some("per-ip")));
    }
}

#[test]
fn limits_that_are_not_plain() {
    let server = start(|_| {});
    for (mut client, name) in both(&server).into_iter().zip(["a", "b"]) {
        // Nothing to act on: no such limit, and one that only watches.
        for ask in ["TIDEGATE.CHECK api nobody x", "TIDEGATE.CHECK api watched x COST 5"] {
            assert_eq!(client.say(ask), checked([1, -1, -1, 0, 0], None));
        }
        assert_eq!(
            client.say("TIDEGATE.CHECK other k v"),
            error("NODOMAIN no rules for domain 'other'")
        );
        assert_eq!(
            client.say("TIDEGATE.CHECK api blocked x"),
            checked([0, 0, 0, -1, 0], Some("blocked"))
        );
        let ask = format!("TIDEGATE.CHECK api shaped {name}");
        assert_eq!(client.say(&ask), checked([1, 4, 3, 0, 500], Some("shaper")));
        // Admitted, and to be held for half a second.
        assert_eq!(client.say(&ask), checked([1, 4, 2, 500, 1000], Some("shaper")));
        let ask = format!("TIDEGATE.CHECK api slots {name}");
        assert_eq!(client.say(&ask), checked([1, 1, 0, 0, 30_000], Some("slots")));
        assert_eq!(client.say(&ask), checked([0, 1, 0, 30_000, 30_000], Some("slots")));
    }
}

#[test]
fn words_that_are_also_keys() {
    let server = start(|_| {});
    let mut client = server.client();
    // Only in capitals, and only where a key could stand, are they more than words.
    for line in ["TIDEGATE.CHECK api and x cost y", "TIDEGATE.CHECK api k AND k COST"] {
        assert_eq!(client.say(line), checked([1, -1, -1, 0, 0], None));
    }
    for (line, text) in [
        ("TIDEGATE.CHECK api k", "ERR wrong number of arguments for 'tidegate.check' command"),
        ("TIDEGATE.PEEK api", "ERR wrong number of arguments for 'tidegate.peek' command"),
        ("TIDEGATE.CHECK api k v k2", "ERR a key has no value"),
        ("TIDEGATE.CHECK api COST 1", "ERR a descriptor needs a key and a value"),
        ("TIDEGATE.CHECK api k v AND", "ERR a descriptor needs a key and a value"),
        ("TIDEGATE.CHECK api AND k v", "ERR AND needs a key and a value before it"),
        ("TIDEGATE.CHECK api k v AND AND k v", "ERR AND needs a key and a value before it"),
        ("TIDEGATE.CHECK api k v COST 1 k v", "ERR COST and its number stand at the end"),
        ("TIDEGATE.CHECK api k v COST", "ERR COST and its number stand at the end"),
        ("TIDEGATE.CHECK api k v COST -1", "ERR COST must be an integer from 0 on, not '-1'"),
        ("TIDEGATE.CHECK api k v COST x", "ERR COST must be an integer from 0 on, not 'x'"),
    ] {
        assert_eq!(client.say(line), error(text), "{line}");
    }
    client.send(b"*4\r\n$14\r\nTIDEGATE.CHECK\r\n$3\r\napi\r\n$1\r\n\xff\r\n$1\r\nv\r\n");
    assert_eq!(client.answer(), error("ERR domain, keys and values have to be UTF-8"));
}

#[test]
fn a_request_has_so_many_descriptors_at_the_most() {
    let server = start(|_| {});
    let mut client = server.client();
    let ask = |count: usize| format!("TIDEGATE.CHECK api k v{}", " AND k v".repeat(count - 1));
    assert_eq!(client.say(&ask(1000)), checked([1, -1, -1, 0, 0], None));
    assert_eq!(client.say(&ask(1001)), error("ERR too many descriptors in one request"));
}

#[test]
fn small_talk() {
    let server = start(|_| {});
    for mut client in both(&server) {
        assert_eq!(client.say("PING"), Answer::Simple("PONG".into()));
        assert_eq!(client.ask(&["ping", "a b\r\n"]), bulk("a b\r\n"));
        assert_eq!(
            client.say("ping a b"),
            error("ERR wrong number of arguments for 'ping' command")
        );
        assert_eq!(client.ask(&["ECHO", ""]), bulk(""));
        assert_eq!(client.say("ECHO"), error("ERR wrong number of arguments for 'echo' command"));
        assert_eq!(client.say("SELECT 0"), ok());
        assert_eq!(client.say("SELECT 1"), error("ERR DB index is out of range"));
        assert_eq!(client.say("SELECT x"), error("ERR value is not an integer or out of range"));
        assert_eq!(
            client.say("GET a b"),
            error("ERR unknown command 'GET', with args beginning with: 'a' 'b' ")
        );
        assert_eq!(
            client.ask(&["a\r\nb"]),
            error("ERR unknown command 'a  b', with args beginning with: ")
        );
        assert_eq!(client.ask(&[""]), error("ERR unknown command '', with args beginning with: "));
        assert_eq!(client.say("QUIT"), ok());
        assert!(client.is_closed());
    }
}

#[test]
fn hello_chooses_the_version() {
    let server = start(|_| {});
    let mut client = server.client();
    let Answer::Array(told) = client.say("HELLO") else { panic!("an array before HELLO 3") };
    assert_eq!(told[..2], [bulk("server"), bulk("tidegate")]);
    assert_eq!(told[4..6], [bulk("proto"), Answer::Int(2)]);
    for (line, text) in [
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO x", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 AUTH default", "ERR Syntax error in HELLO option 'AUTH'"),
        ("HELLO 3 NAME x", "ERR Syntax error in HELLO option 'NAME'"),
    ] {
        assert_eq!(client.say(line), error(text));
        // And all is as before.
        assert!(matches!(client.say("HELLO"), Answer::Array(_)));
    }
    let Answer::Map(told) = client.say("hello 3 setname me") else { panic!("a map") };
    assert!(told.contains(&(bulk("proto"), Answer::Int(3))));
    assert_eq!(client.say("CLIENT GETNAME"), bulk("me"));
    // Without a password, any will do.
    assert!(matches!(client.say("HELLO 2 AUTH default x"), Answer::Array(_)));
    client.say("HELLO 3");
    assert_eq!(client.say("RESET"), Answer::Simple("RESET".into()));
    assert_eq!(client.say("CLIENT GETNAME"), Answer::Null);
    assert!(matches!(client.say("HELLO"), Answer::Array(_)));
}

#[test]
fn clients_introduce_themselves() {
    let server = start(|_| {});
    let [mut one, mut other] = both(&server);
    // Each has a number, in the order in which they were served.
    let mut ids = [one.say("CLIENT ID"), other.say("client id")];
    ids.sort_by_key(|id| id != &Answer::Int(1));
    assert_eq!(ids, [Answer::Int(1), Answer::Int(2)]);
    for client in [&mut one, &mut other] {
        for line in [
            "CLIENT SETINFO LIB-NAME redis-py",
            "client setinfo lib-ver 5.0",
            "CLIENT SETNAME me",
            "CLIENT NO-EVICT ON",
            "CLIENT NO-TOUCH off",
        ] {
            assert_eq!(client.say(line), ok(), "{line}");
        }
        assert_eq!(client.say("CLIENT GETNAME"), bulk("me"));
        assert!(
            matches!(client.say("CLIENT INFO"), Answer::Bulk(text) if text.contains("name=me"))
        );
        assert_eq!(
            client.say("CLIENT KILL x"),
            error("ERR unknown subcommand 'KILL'. Try CLIENT HELP.")
        );
        assert_eq!(
            client.say("CLIENT SETNAME"),
            error("ERR wrong number of arguments for 'client|setname' command")
        );
        assert_eq!(client.say("CLIENT SETINFO X y"), error("ERR Unrecognized option 'X'"));
        assert_eq!(client.say("CLIENT NO-EVICT maybe"), error("ERR syntax error"));
        for name in ["a b", &"x".repeat(257)] {
            let Answer::Error(text) = client.ask(&["CLIENT", "SETNAME", name]) else {
                panic!("{name}")
            };
            assert!(text.starts_with("ERR Client names cannot contain spaces"), "{text}");
        }
    }
}

#[test]
fn the_server_tells_of_itself() {
    let server = start(|_| {});
    for (client, count) in both(&server).iter_mut().zip([3, 4]) {
        assert_eq!(client.say("COMMAND COUNT"), Answer::Int(15));
        let Answer::Array(all) = client.say("COMMAND") else { panic!("an array") };
        assert_eq!(all.len(), 15);
        let Answer::Array(some) = client.say("COMMAND INFO cl.throttle nothing") else {
            panic!("an array")
        };
        let Answer::Array(throttle) = &some[0] else { panic!("{some:?}") };
        assert_eq!(throttle[..2], [bulk("cl.throttle"), Answer::Int(-5)]);
        assert_eq!(throttle[3..6], [1, 1, 1].map(Answer::Int));
        assert_eq!(some[1], Answer::Null);
        let docs = client.say("COMMAND DOCS PING ping");
        let summary = || bulk("Says that the server is there.");
        match docs {
            Answer::Map(docs) => {
                let [(name, Answer::Map(doc))] = &docs[..] else { panic!("{docs:?}") };
                assert_eq!((name, &doc[0]), (&bulk("ping"), &(bulk("summary"), summary())));
            }
            Answer::Array(docs) => {
                let [name, Answer::Array(doc)] = &docs[..] else { panic!("{docs:?}") };
                assert_eq!((name, &doc[..2]), (&bulk("ping"), &[bulk("summary"), summary()][..]));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            client.say("COMMAND NOTHING"),
            error("ERR unknown subcommand 'NOTHING'. Try COMMAND HELP.")
        );
        client.say(&format!("CL.THROTTLE key:{count} 1 1 1"));
        let Answer::Bulk(info) = client.say("INFO") else { panic!("a text") };
        for part in
            ["# Server\r\n", "connected_clients:2\r\n", "# Stats\r\n", "limits_brought:1\r\n"]
        {
            assert!(info.contains(part), "{info}");
        }
        let Answer::Bulk(keys) = client.say("INFO keyspace") else { panic!("a text") };
        assert!(keys.starts_with("# Keyspace\r\ndb0:keys="), "{keys}");
        assert_eq!(client.say("INFO nothing"), bulk(""));
    }
}

#[test]
fn settings_that_tools_ask_for() {
    let server = start(|_| {});
    let [mut two, mut three] = both(&server);
    assert_eq!(two.say("CONFIG GET save"), Answer::Array(vec![bulk("save"), bulk("")]));
    assert_eq!(three.say("CONFIG GET SAVE x"), Answer::Map(vec![(bulk("save"), bulk(""))]));
    assert_eq!(two.say("CONFIG GET nothing"), Answer::Array(vec![]));
    assert!(matches!(three.say("CONFIG GET *"), Answer::Map(all) if all.len() == 4));
    assert_eq!(
        two.say("CONFIG GET"),
        error("ERR wrong number of arguments for 'config|get' command")
    );
    assert_eq!(
        two.say("CONFIG SET save x"),
        error("ERR unknown subcommand 'SET'. Try CONFIG HELP.")
    );
}

#[test]
fn lines_are_commands_too() {
    let server = start(|_| {});
    let mut client = server.client();
    client.send(b"\r\nPING\r\n  cl.throttle \"a b\" 0 1 1\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(client.answer(), Answer::Simple("PONG".into()));
    assert_eq!(client.answer(), ints([0, 1, 0, -1, 1]));
    assert_eq!(client.answer(), Answer::Simple("PONG".into()));
    assert_eq!(client.ask(&["CL.THROTTLE", "a b", "0", "1", "1"]), ints([1, 1, 0, 1, 1]));
}

#[test]
fn with_a_password_it_comes_first() {
    let server = start(|config| config.resp_password = Some("open sesame".into()));
    let mut client = server.client();
    let noauth = error("NOAUTH Authentication required.");
    for line in ["PING", "CL.THROTTLE k 1 1 1", "NOTHING", "CLIENT ID", "INFO"] {
        assert_eq!(client.say(line), noauth, "{line}");
    }
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    for words in [
        &["AUTH", "open sesam"][..],
        &["AUTH", "open sesame!"],
        &["AUTH", ""],
        &["AUTH", "other", "open sesame"],
        &["HELLO", "3", "AUTH", "default", "x"],
    ] {
        assert_eq!(client.ask(words), wrong);
        assert_eq!(client.say("PING"), noauth);
    }
    assert!(
        matches!(client.say("HELLO 3"), Answer::Error(text) if text.starts_with("NOAUTH HELLO must"))
    );
    assert_eq!(client.ask(&["AUTH", "a", "b", "c"]), error("ERR syntax error"));
    assert_eq!(client.ask(&["AUTH", "open sesame"]), ok());
    assert_eq!(client.say("PING"), Answer::Simple("PONG".into()));
    assert_eq!(client.say("RESET"), Answer::Simple("RESET".into()));
    assert_eq!(client.say("PING"), noauth);
    let hello = client.ask(&["HELLO", "3", "AUTH", "default", "open sesame"]);
    assert!(matches!(hello, Answer::Map(_)));
    assert_eq!(client.ask(&["AUTH", "default", "open sesame"]), ok());
    let open = start(|_| {});
    let Answer::Error(text) = open.client().say("AUTH x") else { panic!("nothing to say") };
    assert!(text.starts_with("ERR AUTH <password> called without any password configured"));
}
