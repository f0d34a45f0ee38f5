//! `streaming-hub dev`: the product with nothing installed.

use crate::command::hub;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn dev(folder: &Path, args: &[&str]) -> (Option<i32>, Value, String) {
    let ended = hub(&[&["dev", "--once", "--json"], args].concat()).within(folder).end();
    let summary = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}{}", ended.stdout, ended.stderr));
    (ended.code, summary, ended.stderr)
}

fn count(summary: &Value, name: &str) -> u64 {
    summary[name].as_u64().unwrap()
}

// C3.6, C5.4, C9.1
#[test]
fn everything_played_is_settled_signed_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let ended = hub(&["dev", "--events", "200", "--once", "--json"]).within(folder.path()).end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let fields: Vec<&str> = ended.stdout.split('"').skip(1).step_by(2).collect();
    let expected = [
        "accepted",
        "dropped",
        "quarantined",
        "duplicates",
        "delivered",
        "signatures_verified",
        "out_of_order",
        "dead_letters",
        "seconds",
    ];
    assert_eq!(fields, expected);
    let summary: BTreeMap<String, f64> = serde_json::from_str(&ended.stdout).unwrap();
    let of = |name| summary[name];
    assert_eq!(of("accepted") + of("dropped") + of("quarantined") + of("duplicates"), 200.0);
    assert!(of("dropped") > 0.0 && of("quarantined") > 0.0 && of("duplicates") > 0.0, "{summary:?}");
    assert_eq!((of("delivered"), of("signatures_verified")), (of("accepted"), of("accepted")));
    assert_eq!((of("out_of_order"), of("dead_letters")), (0.0, 0.0));
    let lines = ended.stderr.lines().filter(|line| line.starts_with("200 /ok")).count();
    assert!(lines as f64 >= of("delivered"), "one line for each delivery");
    assert!(folder.path().join("data/dev/hub.redb").exists());
}

// C6.3, C9.6
#[test]
fn fault_paths_show_retries_dead_letters_and_holds() {
    for (path, delivered) in [("/fail", false), ("/redirect", false), ("/flaky", true), ("/limit", true)] {
        let folder = tempfile::tempdir().unwrap();
        let (code, summary, said) = dev(folder.path(), &["--events", "6", "--fault", path]);
        assert_eq!(code, Some(0), "{path}: {said}");
        let accepted = count(&summary, "accepted");
        assert!(accepted > 0);
        let expected = if delivered { (accepted, 0) } else { (0, accepted) };
        assert_eq!((count(&summary, "delivered"), count(&summary, "dead_letters")), expected, "{path}: {said}");
        assert_eq!(count(&summary, "out_of_order"), 0, "{path}: {said}");
    }
}

#[test]
fn a_kept_store_takes_new_events_and_a_fresh_one_takes_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["--events", "13"][..], &["--events", "13"], &["--events", "13", "--keep"]] {
        let (code, summary, said) = dev(folder.path(), args);
        let counts = ["accepted", "delivered", "dead_letters"].map(|name| count(&summary, name));
        assert_eq!((code, counts), (Some(0), [10, 10, 0]), "{args:?}: {said}");
    }
}

#[test]
fn it_touches_nothing_but_its_own_folder_whatever_the_environment_says() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::write(folder.path().join("data/hub.redb"), "the store of a real hub").unwrap();
    let ended = hub(&["dev", "--events", "5", "--once", "--json"])
        .env("STREAMING_HUB_ENV", "production")
        .env("STREAMING_HUB_KEK_REF", "NOT_SET")
        .env("MULTI_TENANT_ENABLED", "false")
        .within(folder.path())
        .end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(folder.path().join("data/hub.redb")).unwrap(), "the store of a real hub");
    let ended = hub(&["dev", "--once", "--http-listen-addr", ":0"]).within(folder.path()).end();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

// C13.2
#[test]
fn ctrl_c_ends_it_cleanly_with_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code) in [(&["--rate", "50"][..], 0), (&["--once", "--rate", "1"], 1)] {
        let running = hub(&[&["dev", "--json", "--log-level", "info"], args].concat())
            .within(folder.path())
            .until_logged("the hub is ready");
        running.signal(Signal::INT);
        let (status, said) = running.wait();
        assert_eq!(status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains("stopped"), "{args:?}: {said}");
    }
}
