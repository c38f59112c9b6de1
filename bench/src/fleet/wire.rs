//! Redis's protocol, as little of it as a load needs: commands as bytes, replies counted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A command as it goes over the wire.
pub(super) fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Asks one thing and gives the reply as text, nested ones one below the other.
pub(super) fn ask(address: &str, words: &[&str]) -> String {
    let mut stream = TcpStream::connect(address).expect("Redis is there");
    stream.write_all(&encode(words)).expect("it is written");
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    read(&mut reader, &mut text);
    text
}

fn read(reader: &mut BufReader<TcpStream>, text: &mut String) {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a reply");
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" => {
            let length: usize = rest.parse().unwrap_or(0);
            let mut bytes = vec![0; length + 2];
            if !rest.starts_with('-') {
                reader.read_exact(&mut bytes).expect("a whole reply");
                text.push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        }
        "*" => {
            for _ in 0..rest.parse().unwrap_or(0) {
                read(reader, text);
                text.push('\n');
            }
        }
        "-" => panic!("Redis says {rest}"),
        _ => text.push_str(rest),
    }
}

/// Microseconds of CPU that Redis has used, its main thread in user space and in the kernel.
pub(super) fn cpu_us(address: &str) -> f64 {
    let info = ask(address, &["INFO", "cpu"]);
    let field = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse().ok()).expect("INFO cpu has it")
    };
    (field("used_cpu_sys_main_thread:") + field("used_cpu_user_main_thread:")) * 1e6
}

/// The words of a line of MONITOR.
pub(super) fn unquote(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut rest) = (Vec::new(), line.as_bytes());
    while let Some(start) = rest.iter().position(|byte| *byte == b'"') {
        let (mut word, mut at) = (Vec::new(), start + 1);
        while rest[at] != b'"' {
            if rest[at] != b'\\' {
                word.push(rest[at]);
                at += 1;
                continue;
            }
            let (byte, length) = match rest[at + 1] {
                b'x' => {
                    let digits = std::str::from_utf8(&rest[at + 2..at + 4]).expect("two digits");
                    (u8::from_str_radix(digits, 16).expect("two digits"), 4)
                }
                b'n' => (b'\n', 2),
                b'r' => (b'\r', 2),
                b't' => (b'\t', 2),
                b'a' => (7, 2),
                b'b' => (8, 2),
                other => (other, 2),
            };
            word.push(byte);
            at += length;
        }
        words.push(word);
        rest = &rest[at + 1..];
    }
    words
}

/// What somebody asks of Redis while `work` goes on: the words of each command with this name that
/// came from a client.
pub(super) fn overhear(address: &str, name: &str, work: impl FnOnce()) -> Vec<Vec<Vec<u8>>> {
    let mut stream = TcpStream::connect(address).expect("Redis is there");
    stream.write_all(&encode(&["MONITOR"])).expect("it is written");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("OK");
    work();
    let mut heard = Vec::new();
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(length) if length > 0 => {}
            _ => return heard,
        }
        if line.contains(" lua] ") {
            continue;
        }
        let words = unquote(&line);
        if words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
            heard.push(words);
        }
    }
}

/// Commands in turn over some connections, each of which sends so many at once and then waits for
/// their replies. How long it took, in seconds.
pub(super) fn load(
    address: &str,
    commands: &[Vec<u8>],
    connections: usize,
    pipeline: usize,
    total: usize,
) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let commands = std::sync::Arc::new(commands.to_vec());
        let began = Instant::now();
        let tasks: Vec<_> = (0..connections)
            .map(|index| {
                let (address, commands) = (address.to_owned(), std::sync::Arc::clone(&commands));
                tokio::spawn(async move {
                    one(&address, &commands, index, pipeline, total / connections).await;
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("the load does not fail");
        }
        began.elapsed().as_secs_f64()
    })
}

async fn one(address: &str, commands: &[Vec<u8>], index: usize, pipeline: usize, count: usize) {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("no delay");
    let (mut out, mut input) = (Vec::new(), Vec::with_capacity(64 * 1024));
    // Everybody begins at another place.
    let mut next = index * commands.len() / 64;
    for _ in 0..count / pipeline {
        out.clear();
        for _ in 0..pipeline {
            out.extend_from_slice(&commands[next % commands.len()]);
            next += 1;
        }
        stream.write_all(&out).await.expect("it is written");
        let mut replies = 0;
        input.clear();
        let mut at = 0;
        while replies < pipeline {
            assert!(stream.read_buf(&mut input).await.expect("a reply") > 0, "Redis hung up");
            while replies < pipeline {
                let Some(end) = skip(&input, at) else { break };
                assert_ne!(input[at], b'-', "{}", String::from_utf8_lossy(&input[at..end]));
                at = end;
                replies += 1;
            }
        }
    }
}

/// Where the reply that begins here ends, if it is there as a whole.
fn skip(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes[at..].iter().position(|byte| *byte == b'\n')? + at;
    let number = || std::str::from_utf8(&bytes[at + 1..line - 1]).ok()?.parse::<i64>().ok();
    match bytes[at] {
        b'$' => {
            let end = line + 1 + usize::try_from(number()?).map_or(0, |length| length + 2);
            (end <= bytes.len()).then_some(end)
        }
        b'*' => {
            let mut end = line + 1;
            for _ in 0..number()?.max(0) {
                end = skip(bytes, end)?;
            }
            Some(end)
        }
        _ => Some(line + 1),
    }
}
