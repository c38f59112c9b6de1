//! A conversation without a connection, for those who try what clients might say.

use std::sync::Arc;

use super::Resp;
use super::parse::{COMMAND_MAX, INLINE_MAX};
use super::session::{Fed, Next, Session, UNSENT_MAX};
use crate::config::Config;
use crate::service::Service;

/// What a client is answered that sends these pieces, and whether it was hung up on.
pub(crate) fn converse(
    service: &Arc<Service>,
    password: Option<&str>,
    pieces: &[&[u8]],
) -> (Vec<u8>, bool) {
    let config = Config { resp_password: password.map(str::to_owned), ..Config::default() };
    let resp = Arc::new(Resp::new(Arc::clone(service), &config));
    let mut session = Session::new(1);
    let (mut all, mut out, mut rest, mut least) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for piece in pieces {
        rest.extend_from_slice(piece);
        while rest.len() >= least {
            let Fed { used, next } = session.feed(&resp, &rest, &mut out);
            debug_assert!(out.len() < UNSENT_MAX + COMMAND_MAX, "answers have a bound");
            all.append(&mut out);
            rest.drain(..used);
            match next {
                Next::Read(wanted) => least = wanted,
                Next::Again => least = 0,
                Next::Close => return (all, true),
            }
        }
        debug_assert!(rest.len() < COMMAND_MAX.max(INLINE_MAX), "what is kept has a bound");
    }
    (all, false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate::rules::{File, Options, Rules};
    use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter};

    use super::*;
    use crate::clock::ServiceClock;

    const RULES: &str = "
domain: a
descriptors: [ { key: k, rate_limit: { requests_per_unit: 3, unit: hour } } ]
";

    fn service() -> Arc<Service> {
        let loaded = Rules::load(&[File { name: "a.yaml", text: RULES }], &Options::default());
        let clock = ServiceClock::Manual(ManualClock::new());
        let limits = RuleLimiter::build(
            MemoryStore::builder().shards(1).build().into(),
            clock,
            loaded.rules.unwrap(),
            Modes::default(),
        );
        Arc::new(Service::new(limits.unwrap(), 0.8))
    }

    fn command() -> impl Strategy<Value = Vec<u8>> {
        let words = prop::sample::select(vec![
            "PING",
            "cl.throttle",
            "GCRA",
            "TIDEGATE.CHECK",
            "tidegate.peek",
            "AUTH",
            "HELLO",
            "3",
            "2",
            "1",
            "0",
            "-1",
            "COST",
            "AND",
            "TOKENS",
            "a",
            "k",
            "v",
            "CLIENT",
            "ID",
            "SETNAME",
            "COMMAND",
            "DOCS",
            "CONFIG",
            "GET",
            "*",
            "SELECT",
            "RESET",
            "QUIT",
            "x",
            "",
            "\"",
            "'",
        ]);
        (prop::collection::vec(words, 1..7), any::<bool>()).prop_map(|(words, is_line)| {
            if is_line {
                return format!("{}\r\n", words.join(" ")).into_bytes();
            }
            let mut bytes = format!("*{}\r\n", words.len());
            words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
            bytes.into_bytes()
        })
    }

    proptest! {
        #[test]
        fn pieces_get_the_same_answers(
            commands in prop::collection::vec(command(), 0..12),
            size in 1..40usize,
            has_password in any::<bool>(),
        ) {
            let bytes = commands.concat();
            let password = has_password.then_some("x");
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            let whole = converse(&service(), password, &[&bytes]);
            prop_assert_eq!(&converse(&service(), password, &pieces), &whole);
        }
    }
}
