//! What clients say when they come and go: `HELLO`, `AUTH`, `CLIENT`, `SELECT`, `RESET`, `QUIT`.

use super::Resp;
use super::command::{Quoted, unknown_part, wrong_arity};
use super::parse::integer;
use super::reply::Protocol;
use super::session::{NAME_MAX, Session, Turn};

/// The one user there is.
const USER: &[u8] = b"default";

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`
pub(crate) fn hello(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    let mut protocol = turn.session.protocol;
    let mut has_said_password = turn.session.has_said_password;
    let mut name = None;
    if let Some((version, mut options)) = arguments.split_first() {
        protocol = match integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => {
                return turn.refuse(format_args!("NOPROTO unsupported protocol version"));
            }
            None => {
                return turn.refuse(format_args!(
                    "ERR Protocol version is not an integer or out of range"
                ));
            }
        };
        while let Some((option, values)) = options.split_first() {
            options = match values {
                [user, password, more @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    if !is_password(turn.resp, user, password) {
                        return wrong_password(turn);
                    }
                    has_said_password = true;
                    more
                }
                [given, more @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    if !is_name(given) {
                        return no_name(turn);
                    }
                    name = Some(*given);
                    more
                }
                _ => {
                    let option = Quoted(option);
                    return turn
                        .refuse(format_args!("ERR Syntax error in HELLO option '{option}'"));
                }
            };
        }
    }
    if turn.resp.password.is_some() && !has_said_password {
        return turn.refuse(format_args!(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time"
        ));
    }
    // Nothing has changed until all of it was right.
    turn.session.protocol = protocol;
    turn.session.has_said_password = has_said_password;
    if let Some(name) = name {
        turn.session.set_name(name);
    }
    let id = turn.session.id;
    let mut reply = turn.reply();
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"tidegate");
    reply.bulk(b"version");
    reply.bulk(env!("CARGO_PKG_VERSION").as_bytes());
    reply.bulk(b"proto");
    reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(i64::try_from(id).unwrap_or(i64::MAX));
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}

/// `AUTH [user] password`
pub(crate) fn auth(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    let (user, password) = match arguments {
        [_] if turn.resp.password.is_none() => {
            return turn.refuse(format_args!(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?"
            ));
        }
        [password] => (USER, *password),
        [user, password] => (*user, *password),
        _ => return turn.refuse(format_args!("ERR syntax error")),
    };
    if !is_password(turn.resp, user, password) {
        return wrong_password(turn);
    }
    turn.session.has_said_password = true;
    turn.reply().simple("OK");
}

#[cold]
fn wrong_password(turn: &mut Turn<'_>) {
    turn.refuse(format_args!("WRONGPASS invalid username-password pair or user is disabled."));
}

/// Where no password is needed, any will do.
fn is_password(resp: &Resp, user: &[u8], password: &[u8]) -> bool {
    let is_right = resp.password.as_ref().is_none_or(|known| is_same(known.as_bytes(), password));
    is_right & (user == USER)
}

/// Compares in a time that does not tell where a guess goes wrong.
fn is_same(known: &[u8], guess: &[u8]) -> bool {
    let mut difference = known.len() ^ guess.len();
    for (index, byte) in guess.iter().enumerate() {
        let other = known.get(index % known.len().max(1)).copied().unwrap_or(0);
        difference |= usize::from(std::hint::black_box(byte ^ other));
    }
    difference == 0
}

/// `CLIENT SETINFO|SETNAME|GETNAME|ID|INFO|NO-EVICT|NO-TOUCH …`
pub(crate) fn client(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    let Some((part, values)) = arguments.split_first() else {
        return wrong_arity(turn, "client");
    };
    let is = |name: &str| part.eq_ignore_ascii_case(name.as_bytes());
    match values {
        [] if is("ID") => {
            let id = i64::try_from(turn.session.id).unwrap_or(i64::MAX);
            turn.reply().integer(id);
        }
        [] if is("GETNAME") => match turn.session.name.clone() {
            Some(name) => turn.reply().bulk(&name),
            None => turn.reply().null(),
        },
        [] if is("INFO") => {
            let text = turn.session.describe();
            turn.reply().verbatim(&text);
        }
        [name] if is("SETNAME") => match is_name(name) {
            true => {
                turn.session.set_name(name);
                turn.reply().simple("OK");
            }
            false => no_name(turn),
        },
        [name, value] if is("SETINFO") => set_info(turn, name, value),
        [switch] if is("NO-EVICT") || is("NO-TOUCH") => {
            match switch.eq_ignore_ascii_case(b"ON") || switch.eq_ignore_ascii_case(b"OFF") {
                true => turn.reply().simple("OK"),
                false => turn.refuse(format_args!("ERR syntax error")),
            }
        }
        _ => match ["ID", "GETNAME", "INFO", "SETNAME", "SETINFO", "NO-EVICT", "NO-TOUCH"]
            .into_iter()
            .find(|name| is(name))
        {
            Some(name) => {
                wrong_arity(turn, &format!("client|{}", name.to_ascii_lowercase()));
            }
            None => unknown_part(turn, "client", part),
        },
    }
}

/// What library a client is. Nobody here wants to know, but it wants to say.
fn set_info(turn: &mut Turn<'_>, name: &[u8], value: &[u8]) {
    let is_known = name.eq_ignore_ascii_case(b"LIB-NAME") || name.eq_ignore_ascii_case(b"LIB-VER");
    match (is_known, value.iter().all(u8::is_ascii_graphic)) {
        (true, true) => turn.reply().simple("OK"),
        (true, false) => {
            let name = name.to_ascii_lowercase();
            let name = Quoted(&name);
            turn.refuse(format_args!(
                "ERR {name} cannot contain spaces, newlines or special characters."
            ));
        }
        (false, _) => {
            let name = Quoted(name);
            turn.refuse(format_args!("ERR Unrecognized option '{name}'"));
        }
    }
}

/// `SELECT index`
pub(crate) fn select(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    match arguments.first().and_then(|index| integer(index)) {
        Some(0) => turn.reply().simple("OK"),
        Some(_) => turn.refuse(format_args!("ERR DB index is out of range")),
        None => turn.refuse(format_args!("ERR value is not an integer or out of range")),
    }
}

/// `RESET`
pub(crate) fn reset(turn: &mut Turn<'_>, _: &[&[u8]]) {
    *turn.session = Session::new(turn.session.id);
    turn.reply().simple("RESET");
}

/// `QUIT`
pub(crate) fn quit(turn: &mut Turn<'_>, _: &[&[u8]]) {
    turn.session.is_over = true;
    turn.reply().simple("OK");
}

/// Whether a connection may be called so.
fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_MAX && name.iter().all(u8::is_ascii_graphic)
}

#[cold]
fn no_name(turn: &mut Turn<'_>) {
    turn.refuse(format_args!(
        "ERR Client names cannot contain spaces, newlines or special characters, or be longer \
         than {NAME_MAX} bytes."
    ));
}

impl Session {
    /// An empty name is none.
    fn set_name(&mut self, name: &[u8]) {
        self.name = if name.is_empty() { None } else { Some(name.into()) };
    }

    fn describe(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        let protocol = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        format!("id={} name={} db=0 resp={protocol}\n", self.id, String::from_utf8_lossy(name))
    }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn passwords_are_the_same_or_not() {
        assert!(is_same(b"", b"") && is_same(b"secret", b"secret"));
        for (known, guess) in [("secret", "secreT"), ("secret", "secre"), ("secret", "secrets")] {
            assert!(!is_same(known.as_bytes(), guess.as_bytes()));
        }
        assert!(!is_same(b"ab", b"abab") && !is_same(b"", b"x") && !is_same(b"x", b""));
    }
}
