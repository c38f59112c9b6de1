//! Several services that share a store.

use std::process::Command;

use serde_json::{Value, json};

use crate::servers::wait_for;
use crate::support::Folder;
use crate::support::serving::{Serving, command};

/// Services with the same rules and the same store.
pub(crate) struct Services {
    pub(crate) all: Vec<Serving>,
    folder: Folder,
}

impl Services {
    /// So many of them, with these flags beside.
    pub(crate) fn start(count: usize, store: &str, rules: &str, flags: &[&str]) -> Self {
        let folder = Folder::new(&[("rules.yaml", rules)]);
        let mut services = Self { all: Vec::new(), folder };
        for _ in 0..count {
            let command = services.command(store, flags);
            services.all.push(Serving::spawn(command));
        }
        services
    }

    /// The command that starts one more.
    pub(crate) fn command(&self, store: &str, flags: &[&str]) -> Command {
        let rules = self.folder.path().join("rules.yaml");
        let own = ["--rules", rules.to_str().unwrap(), "--store", store];
        command(&[&own, flags].concat())
    }

    /// Another command of the program, with the same rules and a store.
    pub(crate) fn subcommand(&self, name: &str, store: &str) -> Command {
        let rules = self.folder.path().join("rules.yaml");
        crate::support::command(&[name, "--rules", rules.to_str().unwrap(), "--store", store])
    }

    /// Where they speak HTTP.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.all.iter().map(|serving| serving.address("http")).collect()
    }

    /// Waits until every service reaches the keys of these checks.
    pub(crate) fn wait_for_store(&self, asks: &[String]) {
        for serving in &self.all {
            for ask in asks {
                wait_for("the store is there", || {
                    let (_, answer) = serving.http("POST", "/v1/peek?status=200", ask);
                    answer.contains("\"source\":\"store\"").then_some(())
                });
            }
        }
    }

    /// What a metric comes to, all of its series and all services together.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        self.all.iter().map(|serving| metric(serving, name)).sum()
    }

    /// What one of them says is left, at the least.
    pub(crate) fn remaining(&self, body: &str) -> u64 {
        let (status, answer) = self.all[0].http("POST", "/v1/peek?status=200", body);
        let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(answer["source"], "store", "{answer}");
        answer["remaining"].as_u64().unwrap()
    }
}

/// What a metric comes to, all of its series together. `name` may go on with labels.
pub(crate) fn metric(serving: &Serving, name: &str) -> f64 {
    let (_, text) = serving.http("GET", "/metrics", "");
    let series = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_whole = name.contains('{') || rest.starts_with('{') || rest.starts_with(' ');
        let value = rest.rsplit(' ').next().filter(|_| is_whole)?;
        Some(value.parse::<f64>().unwrap_or_else(|_| panic!("no number: {line}")))
    });
    series.sum()
}

/// The body of a check of some descriptors, with a cost.
pub(crate) fn body(domain: &str, descriptors: &[(&str, &str)], cost: u64) -> String {
    let descriptors: Vec<Value> =
        descriptors.iter().map(|(key, value)| json!({ "entries": [[key, value]] })).collect();
    json!({ "domain": domain, "descriptors": descriptors, "cost": cost }).to_string()
}
