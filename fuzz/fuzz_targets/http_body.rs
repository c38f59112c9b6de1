//! Any bytes as the body of a request over HTTP: every answer is one of those there are, and JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tidegate_server::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    let answers = fuzzing::http_body(bytes);
    let Some(((status, lyft), others)) = answers.split_last() else { return };
    match status {
        200 | 429 => {
            let json: Value = serde_json::from_slice(lyft).expect("JSON");
            assert_eq!(json["overallCode"] == "OK", *status == 200, "{json}");
        }
        400 => assert_eq!(&lyft[..], b"Bad Request\n"),
        other => panic!("/json answered {other}"),
    }
    for (status, body) in others {
        let json: Value = serde_json::from_slice(body).expect("JSON");
        match status {
            200 => assert!(json["status"].is_null(), "{json}"),
            429 => assert_eq!(json["allowed"], false, "{json}"),
            400 | 404 | 503 => assert_eq!(json["status"], *status, "{json}"),
            other => panic!("answered {other}: {json}"),
        }
    }
});
