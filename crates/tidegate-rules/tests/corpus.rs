//! An extra check: Lyft's own cases, where the folder that holds them is there.
//!
//! The cases are another project's data and no part of this one; `tests/lyft.rs` says the same in
//! our own words and runs everywhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]
#![allow(clippy::print_stdout, reason = "a test that compares nothing says so")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate_rules::{
    Descriptor, Entry, File, Found, Options, Override, Reached, Rules, Unit, check_lyft,
};

fn corpus() -> Option<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/lyft-corpus");
    let cases = fs::read_to_string(root.join("cases.json")).ok();
    if cases.is_none() {
        println!("no corpus beside the project: nothing to compare with");
    }
    Some((root, serde_json::from_str(&cases?).unwrap()))
}

struct Texts(Vec<(String, String)>);

impl Texts {
    fn read(root: &Path, names: &Value) -> Self {
        let names = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        Self(
            names
                .map(|name| (name.to_owned(), fs::read_to_string(root.join(name)).unwrap()))
                .collect(),
        )
    }

    fn files(&self) -> Vec<File<'_>> {
        self.0.iter().map(|(name, text)| File { name, text }).collect()
    }
}

fn options(merge: &Value) -> Options {
    let mut options = Options::default();
    options.merge_domains = merge.as_bool().unwrap_or(false);
    options
}

#[test]
fn files_load_or_fail_as_at_lyft() {
    let Some((root, cases)) = corpus() else { return };
    for case in cases["load"].as_array().unwrap() {
        let texts = Texts::read(&root, &case["files"]);
        let loaded = Rules::load(&texts.files(), &options(&case["merge_domain_configs"]));
        let errors: Vec<_> =
            loaded.report.errors.iter().map(|error| error.message.clone()).collect();
        match case["error"].as_str() {
            None => assert!(errors.is_empty(), "{case}: {errors:?}"),
            // Of a syntax error only the beginning can be the same.
            Some(wanted) if wanted.contains("yaml: line") => {
                assert!(
                    errors[0].starts_with("error loading config file: yaml: line"),
                    "{errors:?}"
                );
            }
            Some(wanted) => {
                assert!(errors.iter().any(|error| error == wanted), "{case}: {errors:?}")
            }
        }
        assert_eq!(loaded.rules.is_some(), case["ok"].as_bool().unwrap());
    }
}

#[test]
fn what_lyft_would_say_is_foretold() {
    let Some((root, cases)) = corpus() else { return };
    for case in cases["load"].as_array().unwrap() {
        let texts = Texts::read(&root, &case["files"]);
        let merge = case["merge_domain_configs"].as_bool().unwrap();
        let report = check_lyft(&texts.files(), merge);
        let said: Vec<_> = report.errors.iter().map(|error| &*error.message).collect();
        match case["error"].as_str() {
            None => assert!(said.is_empty(), "{case}: {said:?}"),
            Some(wanted) if wanted.contains("yaml: line") => {
                assert_eq!(said.len(), 1, "{case}: {said:?}");
                assert!(said[0].starts_with("error loading config file: yaml: line"), "{said:?}");
            }
            Some(wanted) => assert_eq!(said, [wanted], "{case}"),
        }
        // The last of the files is the one that is blamed.
        let blamed = report.errors.first().map(|error| error.file.as_str());
        let last = texts.0.last().map(|(name, _)| name.as_str());
        assert!(blamed.is_none() || blamed == last, "{case}: {blamed:?}");
    }
}

#[test]
fn descriptors_match_as_at_lyft() {
    let Some((root, cases)) = corpus() else { return };
    for case in cases["match"].as_array().unwrap() {
        let quirk = case["note"].as_str().is_some_and(|note| note.starts_with("QUIRK"));
        for lyft_compat in [false, true] {
            let texts = Texts::read(&root, &case["config"]);
            let mut options = options(&case["merge"]);
            options.lyft_compat = lyft_compat;
            let rules = Rules::load(&texts.files(), &options).rules.unwrap();
            let pairs: Vec<(String, String)> =
                serde_json::from_value(case["entries"].clone()).unwrap();
            let entries: Vec<_> = pairs.iter().map(|(key, value)| Entry::new(key, value)).collect();
            let limit = case["override"].as_object().map(|limit| Override {
                requests_per_unit: limit["requests_per_unit"].as_u64().unwrap().try_into().unwrap(),
                unit: Unit::parse(limit["unit"].as_str().unwrap()).unwrap(),
            });
            let descriptor = Descriptor { limit, ..Descriptor::new(&entries) };
            let domain = case["domain"].as_str().unwrap();
            let mut found = Found::new();
            rules.find(domain, &[descriptor], &mut found);
            let got = match found.reached[0] {
                Reached::Override(limit) => Some((limit.requests_per_unit, limit.unit)),
                _ => found
                    .limits
                    .first()
                    .map(|met| (met.rule.requests_per_unit, met.rule.unit.unwrap())),
            };
            let wanted = case["match"].as_bool().unwrap().then(|| {
                let unit = Unit::parse(case["unit"].as_str().unwrap()).unwrap();
                (u32::try_from(case["requests_per_unit"].as_u64().unwrap()).unwrap(), unit)
            });
            // The one deliberate difference: a pattern for one key does not match another key.
            let wanted = wanted.filter(|_| lyft_compat || !quirk);
            assert_eq!(got, wanted, "{case} with lyft_compat {lyft_compat}");
            if let Some(wanted) = case["stats_key"].as_str() {
                let got = rules.stats_key(domain, &found, 0, &entries);
                assert_eq!(got.as_deref(), Some(wanted), "{case}");
            }
            if let Some(shadow) = case["shadow_mode"].as_bool() {
                assert_eq!(found.limits[0].rule.shadow, shadow, "{case}");
            }
            if let Some(metadata) = case.get("metadata") {
                assert_eq!(rules.metadata(&found, 0), Some(metadata), "{case}");
            }
            if let Some(share) = case["share"].as_array() {
                let key = String::from_utf8(found.key(&found.limits[0]).to_vec()).unwrap();
                for (pattern, entry) in share.iter().zip(&entries) {
                    let part = match pattern.as_str().unwrap() {
                        "" => format!("={}:{}", entry.value.len(), entry.value),
                        pattern => format!("~{}:{pattern}", pattern.len()),
                    };
                    assert!(key.contains(&part), "{case}: {key}");
                }
            }
        }
    }
}
