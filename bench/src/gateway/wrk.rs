//! wrk: as many requests as a proxy takes, for a while.

use super::servers::Setting;

/// The connections that it has open.
pub(super) const CONNECTIONS: usize = 64;

/// What it has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) requests: f64,
    /// Those that were not answered by 2xx or 3xx.
    pub(super) refused: f64,
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Lets it ask for `/` for some seconds.
pub(super) fn load(setting: Setting, address: &str, seconds: usize) -> Seen {
    let output = setting
        .command("wrk")
        .arg(format!("-t{}", setting.threads))
        .arg(format!("-c{CONNECTIONS}"))
        .arg(format!("-d{seconds}s"))
        .arg("--latency")
        .arg(format!("http://{address}/"))
        .output()
        .expect("wrk is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let seen = read(&text);
    assert!(!text.contains("Socket errors"), "wrk could not speak to {address}:\n{text}");
    seen.unwrap_or_else(|| panic!("wrk says something else than usual:\n{text}"))
}

fn read(text: &str) -> Option<Seen> {
    // Shares of other things stand before it.
    let latencies = text.split_once("Latency Distribution")?.1;
    Some(Seen {
        requests: before(text, " requests in")?.parse().ok()?,
        refused: after(text, "Non-2xx or 3xx responses:")
            .map_or(Some(0.0), |it| it.parse().ok())?,
        per_second: after(text, "Requests/sec:")?.parse().ok()?,
        p50_us: micros(after(latencies, "50%")?)?,
        p99_us: micros(after(latencies, "99%")?)?,
    })
}

/// The word before a text.
fn before<'t>(text: &'t str, behind: &str) -> Option<&'t str> {
    text.split_once(behind)?.0.rsplit(char::is_whitespace).next()
}

/// The word after a text.
fn after<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    text.split_once(before)?.1.split_whitespace().next()
}

fn micros(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_alphabetic())?;
    let number: f64 = text[..unit].parse().ok()?;
    match &text[unit..] {
        "us" => Some(number),
        "ms" => Some(number * 1e3),
        "s" => Some(number * 1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_prints_is_read() {
        let text = "    Latency     0.7ms    0.4ms   9.9ms   75.50%\n  Latency Distribution\n     50%  641.00us\n     75%    1.02ms\n     \
                    90%    1.51ms\n     99%    2.88ms\n  90000 requests in 1.10s, 20.00MB read\n  \
                    Non-2xx or 3xx responses: 89100\nRequests/sec:  81818.18\n";
        let seen = read(text).unwrap();
        assert_eq!((seen.requests, seen.refused), (90000.0, 89100.0));
        assert_eq!((seen.per_second, seen.p50_us, seen.p99_us), (81818.18, 641.0, 2880.0));
    }
}
