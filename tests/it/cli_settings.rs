//! Settings from the command line and the environment: effective values, wrong values all at once, exit codes, nothing secret shown.

use crate::command::hub;
use serde_json::Value;

#[test]
fn config_shows_each_value_and_where_it_came_from() {
    let ended = hub(&["config", "--json", "--lease", "80s"])
        .env("STREAMING_HUB_HTTP_LISTEN_ADDR", ":9090")
        .env("MULTI_TENANT_ENABLED", "true")
        .env("STREAMING_HUB_TENANT_ID", "")
        .end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
    for (name, value, from) in [
        ("LEASE", "80s", "flag"),
        ("HTTP_LISTEN_ADDR", ":9090", "environment STREAMING_HUB_HTTP_LISTEN_ADDR"),
        ("MULTI_TENANT_ENABLED", "true", "environment MULTI_TENANT_ENABLED"),
        ("TENANT_ID", "default", "default"),
    ] {
        assert_eq!(shown[name], serde_json::json!({ "value": value, "from": from }), "{name}");
    }
}

#[test]
fn every_command_tells_all_wrong_settings_at_once_and_ends_with_2() {
    for command in [&["serve"][..], &["dev"], &["config"], &["keys", "list"], &["explain", "record"]] {
        let ended = hub(&[command, &["--lease", "1s"]].concat())
            .env("STREAMING_HUB_RETRY_SCHEDULE", "11h")
            .env("STREAMING_HUB_DISPATCH_SLOTS", "many")
            .end();
        assert_eq!(ended.code, Some(2), "{command:?}: {}", ended.stderr);
        // `dev` has a schedule of its own, whatever the environment says.
        let schedule: &[&str] =
            if command == ["dev"] { &[] } else { &["STREAMING_HUB_RETRY_SCHEDULE: 11h: allowed is"] };
        let told = ["STREAMING_HUB_LEASE: 1s: allowed is", "STREAMING_HUB_DISPATCH_SLOTS: many: allowed is"];
        for told in told.iter().chain(schedule) {
            assert!(ended.stderr.contains(told), "{command:?}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_once_and_a_key_in_the_place_of_its_name_is_not_shown() {
    let key = "zW/S3UcaK0bJ9q2vLh6yXo4tR8mPn1eFdGiHjQkTsVY=";
    for command in ["serve", "config"] {
        let ended = hub(&[command])
            .env("STREAMING_HUB_KAFKA_BROKERS", "127.0.0.1:9092")
            .env("STREAMING_HUB_KAFKA_SCRAM_MECHANISM", "PLAIN")
            .env("STREAMING_HUB_KAFKA_SCRAM_USERNAME", "hub")
            .env("STREAMING_HUB_KAFKA_SCRAM_PASSWORD_FILE", "/nonexistent/password")
            .env("STREAMING_HUB_KEK_REF", key)
            .env("STREAMING_HUB_KAFKA_BROKER", "127.0.0.1:9092")
            .end();
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("STREAMING_HUB_KAFKA_SCRAM_PASSWORD: ").count(), 1, "{}", ended.stderr);
        assert!(!ended.stderr.contains(key) && !ended.stdout.contains(key), "{}", ended.stderr);
        assert!(ended.stderr.contains("STREAMING_HUB_KEK_REF: ***: allowed is"), "{}", ended.stderr);
        assert!(ended.stderr.contains("the nearest is STREAMING_HUB_KAFKA_BROKERS"), "{command}: {}", ended.stderr);
    }
}

#[test]
fn wrong_use_ends_with_2_and_help_with_0() {
    for (args, code) in [
        (&["serve", "--no-such-flag"][..], 2),
        (&["fly"], 2),
        (&["keys", "create", "--role", "king"], 2),
        (&["dev", "--fault", "/nowhere"], 2),
        (&[], 2),
        (&["--version"], 0),
        (&["serve", "--help"], 0),
        (&["completions", "bash"], 0),
    ] {
        assert_eq!(hub(args).end().code, Some(code), "{args:?}");
    }
}

#[test]
fn names_that_mean_nothing_are_told_with_the_nearest() {
    let ended = hub(&["config"]).env("STREAMING_HUB_KAFKA_BROKER", "x:1").env("STREAMING_HUB_RETENTION", "1h").end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("KAFKA_BROKER is not a setting; the nearest is STREAMING_HUB_KAFKA_BROKERS"));
    assert!(ended.stderr.contains("STREAMING_HUB_RETENTION is known, but has no effect in this version"));
}

#[test]
fn secrets_are_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kafka_scram_password"), "canary-7f3a").unwrap();
    for (name, value) in [
        ("STREAMING_HUB_KAFKA_SCRAM_PASSWORD", "canary-7f3a".to_owned()),
        ("STREAMING_HUB_KAFKA_SCRAM_PASSWORD_FILE", dir.path().join("kafka_scram_password").display().to_string()),
        ("CREDENTIALS_DIRECTORY", dir.path().display().to_string()),
    ] {
        // The mechanism is missing, so that the password is also named as wrong.
        let ended = hub(&["config"]).env(name, &value).end();
        assert_eq!(ended.code, Some(2), "{name}");
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        assert!(shown.contains("KAFKA_SCRAM_PASSWORD") && shown.contains("***"), "{name}: {shown}");
        assert!(!shown.contains("canary-7f3a"), "{name}: {shown}");
    }
}

#[test]
fn production_refuses_what_only_development_may_have() {
    let ended = hub(&["serve", "--env", "production"])
        .env("STREAMING_HUB_ALLOW_PRIVATE_SINKS", "true")
        .env("STREAMING_HUB_HTTP_LISTEN_ADDR", ":8080")
        .env("STREAMING_HUB_KAFKA_BROKERS", "kafka:9092")
        .end();
    assert_eq!(ended.code, Some(2));
    for name in ["ALLOW_PRIVATE_SINKS", "HTTP_LISTEN_ADDR", "KAFKA_BROKERS", "KEK_REF"] {
        assert!(ended.stderr.contains(&format!("STREAMING_HUB_{name}:")), "{name}: {}", ended.stderr);
    }
}
