use proptest::prelude::*;

use super::*;

/// All commands of some bytes that come in these pieces, and what was wrong in the end.
fn all(pieces: &[&[u8]], is_stranger: bool) -> (Vec<Vec<Vec<u8>>>, Option<Garbled>) {
    let mut commands = Vec::new();
    let (mut rest, mut least) = (Vec::new(), 0);
    for piece in pieces {
        rest.extend_from_slice(piece);
        let mut used = 0;
        while rest.len() - used >= least {
            match parse(&rest[used..], is_stranger) {
                Ok(Parsed::Command(length, words)) => {
                    commands.push(words.iter().map(|word| word.to_vec()).collect());
                    (used, least) = (used + length, 0);
                }
                Ok(Parsed::Quoted(length, words)) => {
                    commands.push(words);
                    (used, least) = (used + length, 0);
                }
                Ok(Parsed::Nothing(length)) => (used, least) = (used + length, 0),
                Ok(Parsed::Partial(wanted)) => {
                    assert!(wanted > rest.len() - used, "it would not help to wait");
                    assert!(wanted <= COMMAND_MAX.max(INLINE_MAX), "more than there may be");
                    least = wanted;
                }
                Err(garbled) => return (commands, Some(garbled)),
            }
        }
        rest.drain(..used);
        assert!(rest.len() < COMMAND_MAX.max(INLINE_MAX), "more is kept than there may be");
    }
    (commands, None)
}

fn one(bytes: &str) -> Vec<String> {
    let (commands, garbled) = all(&[bytes.as_bytes()], false);
    assert_eq!((garbled, commands.len()), (None, 1), "{bytes:?}");
    commands[0].iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn wrong(bytes: &[u8]) -> Garbled {
    let (commands, garbled) = all(&[bytes], false);
    assert!(commands.is_empty());
    garbled.unwrap()
}

#[test]
fn commands_are_arrays_or_lines() {
    assert_eq!(one("*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n"), ["ECHO", "\r\n"]);
    assert_eq!(one("*1\r\n$0\r\n\r\n"), [""]);
    assert_eq!(one("PING\r\n"), ["PING"]);
    assert_eq!(one("  SET a\t b \n"), ["SET", "a", "b"]);
    assert_eq!(
        one("ECHO \"a \\x41\\n\\\"\" 'b\\'s \\n' \"\"\r\n"),
        ["ECHO", "a A\n\"", "b's \\n", ""]
    );
    assert_eq!(all(&[b"\r\n*0\r\n*-1\r\n\n  \r\n"], false), (vec![], None));
}

#[test]
fn what_is_no_command_is_told_so() {
    assert_eq!(wrong(b"*x\r\n"), Garbled::Count);
    assert_eq!(wrong(b"*1\rx"), Garbled::Count);
    assert_eq!(wrong(b"*\r\n"), Garbled::Count);
    assert_eq!(wrong(b"*4097\r\n"), Garbled::Count);
    assert_eq!(wrong(b"*99999999999999999999\r\n"), Garbled::Count);
    assert_eq!(wrong(&[b"*", &[b'1'; 40][..]].concat()), Garbled::CountTooLong);
    assert_eq!(wrong(b"*1\r\nx"), Garbled::NoBulk(b'x'));
    assert_eq!(wrong(b"*1\r\n$-1\r\n"), Garbled::Length);
    assert_eq!(wrong(b"*1\r\n$16385\r\n"), Garbled::Length);
    assert_eq!(wrong(b"*1\r\n$01\r\n"), Garbled::Length);
    assert_eq!(wrong(&[b"*1\r\n$", &[b'1'; 40][..]].concat()), Garbled::LengthTooLong);
    assert_eq!(wrong(b"*1\r\n$1\r\nabc"), Garbled::NoEnd);
    assert_eq!(wrong(b"ECHO \"a\n"), Garbled::Unbalanced);
    assert_eq!(wrong(b"ECHO 'a'b\n"), Garbled::Unbalanced);
    assert_eq!(wrong(&[b'x'; INLINE_MAX]), Garbled::InlineTooLong);
    let line = [&b"a ".repeat(ARGUMENTS_MAX + 1)[..], b"\n"].concat();
    assert_eq!(wrong(&line), Garbled::Count);
    assert_eq!(wrong(&[b"'' ", &line[..]].concat()), Garbled::Count);
}

#[test]
fn a_command_is_too_long_before_it_has_come() {
    // Four thousand arguments of at least six bytes and five large ones.
    let mut bytes = b"*4096\r\n".to_vec();
    for _ in 0..3 {
        bytes.extend_from_slice(b"$16000\r\n");
        bytes.extend_from_slice(&[b'x'; 16000]);
        bytes.extend_from_slice(b"\r\n");
    }
    assert_eq!(wrong(&bytes), Garbled::CommandTooLong);
}

/// Who waited for the shortest argument that might follow did not see that none could.
#[test]
fn what_is_wrong_is_seen_as_soon_as_it_is_there() {
    let bytes = b"*2\r\n$4\r\nECHO\r\n$-1\r\n";
    let each: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(all(&each, false), (vec![], Some(Garbled::Length)));
}

#[test]
fn strangers_have_little_room() {
    assert_eq!(all(&[b"*17\r\n"], true).1, Some(Garbled::StrangerCount));
    assert_eq!(all(&[b"*2\r\n$4\r\nAUTH\r\n$1025\r\n"], true).1, Some(Garbled::StrangerLength));
    assert_eq!(all(&[b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"], true).1, Some(Garbled::Length));
    assert_eq!(all(&[b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n"], true).0.len(), 1);
}

/// Bytes that are commands, nearly commands, and neither.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::collection::vec(any::<u8>(), 90..130),
    ];
    let array = prop::collection::vec(word, 0..6).prop_map(|words| {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(&word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    });
    let line = "[ -~]{0,20}\r?\n".prop_map(String::into_bytes);
    let scraps =
        prop::collection::vec(prop::sample::select(b"*$\r\n0123456789-+ab\"'\\x ".to_vec()), 0..10);
    let one = prop_oneof![8 => array, 3 => line, 1 => scraps];
    prop::collection::vec(one, 0..8).prop_map(|all| all.concat())
}

proptest! {
    #[test]
    fn pieces_make_the_same_commands(
        bytes in bytes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        is_stranger in any::<bool>(),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        let whole = all(&[&bytes], is_stranger);
        prop_assert_eq!(&all(&pieces, is_stranger), &whole);
        prop_assert_eq!(&all(&each, is_stranger), &whole);
    }

    #[test]
    fn what_is_written_is_what_is_read(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12), 0..6),
    ) {
        let mut bytes = Vec::new();
        for words in &commands {
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        prop_assert_eq!(all(&[&bytes], false), (commands, None));
    }

    #[test]
    fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(all(&each, false), all(&[&bytes], false));
    }
}
