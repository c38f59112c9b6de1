//! A client of our own, for what wrk does not tell: when each answer came, and which it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection that is kept, and what came by it.
pub(super) struct Conn {
    stream: TcpStream,
    buffer: Vec<u8>,
    head_len: usize,
}

impl Conn {
    pub(super) async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, buffer: Vec::with_capacity(8192), head_len: 0 }
    }

    /// Sends a request and waits for the whole answer; its status.
    pub(super) async fn ask(&mut self, request: &[u8]) -> u16 {
        self.stream.write_all(request).await.expect("it is written");
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await.expect("it is read");
            assert!(read > 0, "the connection was closed within an answer");
            if let Some((head_len, length)) = measure(&self.buffer)
                && self.buffer.len() >= head_len + length
            {
                // Nothing was asked for that could come behind it.
                assert_eq!(self.buffer.len(), head_len + length, "there is more than an answer");
                self.head_len = head_len;
                return status(&self.buffer);
            }
        }
    }

    /// The body of the last answer.
    pub(super) fn body(&self) -> &[u8] {
        &self.buffer[self.head_len..]
    }

    /// A header of the last answer; the name is in small letters.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.buffer[..self.head_len]).ok()?;
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

fn status(answer: &[u8]) -> u16 {
    let digits = answer.get(9..12).unwrap_or_default();
    digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit.wrapping_sub(b'0')))
}

/// The length of the head and that of the body, once the head is there.
fn measure(answer: &[u8]) -> Option<(usize, usize)> {
    const NAME: &[u8] = b"content-length:";
    let mut length = None;
    let mut rest = answer;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest[..end].trim_ascii();
        rest = &rest[end + 1..];
        if line.is_empty() {
            let length = length.expect("an answer that tells its length");
            return Some((answer.len() - rest.len(), length));
        }
        if line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
            let number = std::str::from_utf8(line[NAME.len()..].trim_ascii()).ok()?;
            length = Some(number.parse().expect("a length"));
        }
    }
}

/// A request for a path.
pub(super) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").into_bytes()
}

/// How many were answered how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

/// Sends so many requests by so many connections and waits for the answers, but not for ever.
/// Requests have numbers.
pub(super) fn ask_all(
    address: &str,
    connections: usize,
    requests: u64,
    lasting: Duration,
    request: fn(u64) -> Vec<u8>,
) -> Tally {
    on_runtime(async {
        let (ends, next) = (Instant::now() + lasting, Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for _ in 0..connections {
            let (mut conn, next) = (Conn::open(address).await, Arc::clone(&next));
            tasks.push(tokio::spawn(async move {
                let mut tally = Tally::default();
                while Instant::now() < ends {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= requests {
                        break;
                    }
                    match conn.ask(&request(number)).await {
                        200 => tally.admitted += 1,
                        429 => tally.refused += 1,
                        other => panic!("an answer with status {other}"),
                    }
                }
                tally
            }));
        }
        let mut all = Tally::default();
        for task in tasks {
            let tally = task.await.expect("the load does not fail");
            all.admitted += tally.admitted;
            all.refused += tally.refused;
        }
        all
    })
}

/// Whom to ask, for what, and by how many connections.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: String,
    pub(super) path: String,
    pub(super) connections: usize,
}

/// What came of asking without a pause. Times are since the beginning.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub(super) began: SystemTime,
    pub(super) lasted: Duration,
    pub(super) admitted: Vec<Duration>,
    pub(super) refused: Vec<Duration>,
}

impl Answers {
    pub(super) fn offered_per_second(&self) -> f64 {
        (self.admitted.len() + self.refused.len()) as f64 / self.lasted.as_secs_f64()
    }

    /// A time as one since 1970.
    pub(super) fn wall(&self, time: Duration) -> Duration {
        self.began.duration_since(UNIX_EPOCH).expect("a clock after 1970") + time
    }
}

/// Asks all of them at once, as fast as they answer, for a while.
pub(super) fn saturate(targets: &[Target], lasting: Duration) -> Vec<Answers> {
    on_runtime(async {
        let mut conns = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            for _ in 0..target.connections {
                conns.push((at, get(&target.path), Conn::open(&target.address).await));
            }
        }
        let (began, wall) = (Instant::now(), SystemTime::now());
        let tasks: Vec<_> = conns
            .into_iter()
            .map(|(at, request, conn)| (at, tokio::spawn(ask_on(conn, request, began, lasting))))
            .collect();
        let none =
            Answers { began: wall, lasted: lasting, admitted: Vec::new(), refused: Vec::new() };
        let mut answers = vec![none; targets.len()];
        for (at, task) in tasks {
            let (admitted, refused) = task.await.expect("the load does not fail");
            answers[at].admitted.extend(admitted);
            answers[at].refused.extend(refused);
        }
        for answers in &mut answers {
            answers.admitted.sort_unstable();
            answers.refused.sort_unstable();
        }
        answers
    })
}

async fn ask_on(
    mut conn: Conn,
    request: Vec<u8>,
    began: Instant,
    lasting: Duration,
) -> (Vec<Duration>, Vec<Duration>) {
    let (mut admitted, mut refused) = (Vec::new(), Vec::new());
    loop {
        let status = conn.ask(&request).await;
        let at = began.elapsed();
        if at > lasting {
            return (admitted, refused);
        }
        match status {
            200 => admitted.push(at),
            429 => refused.push(at),
            other => panic!("an answer with status {other}"),
        }
    }
}

/// Runs something on a thread's own runtime.
pub(super) fn on_runtime<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let answer = b"HTTP/1.1 429 Too Many Requests\r\nContent-length: 3\r\n\r\nabc";
        assert_eq!(measure(answer), Some((answer.len() - 3, 3)));
        assert_eq!(status(answer), 429);
        assert_eq!(measure(&answer[..answer.len() - 4]), None);
    }
}
