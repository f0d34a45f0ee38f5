//! `streaming-hub serve` as an operator sees it: readiness, signals, keys over the command socket, one process a store, exit codes.

use crate::command::{Serving, hub, json_line, serve};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use streaming_hub::store::disk::FileDisk;
use streaming_hub::store::{Birth, FORMAT, Store, StoreSettings};

fn started(folder: &Path) -> Serving {
    serve(folder).until_logged("the hub is ready")
}

fn keys(folder: &Path, args: &[&str]) -> crate::command::Ended {
    let run = hub(&[&["keys"], args, &["--data-dir", folder.to_str().unwrap()]].concat());
    run.env("STREAMING_HUB_STORE_RESERVE_BYTES", "0").end()
}

async fn status(url: &str, key: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(url).bearer_auth(key).send().await.unwrap().status().as_u16()
}

fn with_tls() {
    // The client wants a provider even for plain HTTP; whoever comes second is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

// C13.1, C13.2, C13.5, A1.1
#[tokio::test]
async fn keys_are_made_over_the_socket_of_the_running_hub_and_outlive_it() {
    with_tls();
    let folder = tempfile::tempdir().unwrap();
    let running = started(folder.path());
    assert_eq!(status(&format!("{}/readyz", running.url()), "").await, 200);
    let made = keys(folder.path(), &["create", "--role", "operator", "--name", "ops"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let key = made.stdout.trim();
    let url = format!("{}/admin/api-keys", running.url());
    assert_eq!((status(&url, key).await, status(&url, "shk_wrong").await), (200, 401));
    running.signal(Signal::TERM);
    let (ended, said) = running.wait();
    assert_eq!(ended.code(), Some(0), "{said}");
    assert!(!folder.path().join("hub.sock").exists());

    let listed = keys(folder.path(), &["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!((listed[0]["name"].as_str(), listed[0]["role"].as_str()), (Some("ops"), Some("operator")));
    assert!(!listed.to_string().contains(key), "a key is shown once");
    let running = started(folder.path());
    let url = format!("{}/admin/api-keys", running.url());
    assert_eq!(status(&url, key).await, 200);
    assert_eq!(keys(folder.path(), &["revoke", id]).code, Some(0));
    assert_eq!(status(&url, key).await, 401);
}

// C13.5
#[test]
fn a_second_process_on_the_same_store_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let _running = started(folder.path());
    let second = serve(folder.path()).end();
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("in use by another process"), "{}", second.stderr);
}

// C13.5: whatever a command made would be of its user and under its settings, and in the way of the hub for ever
#[test]
fn a_command_makes_no_store_and_touches_none_of_another_user() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let folder = tempfile::tempdir().unwrap();
    for place in [folder.path().to_owned(), folder.path().join("nowhere")] {
        let ended = keys(&place, &["create", "--role", "operator"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        assert!(ended.stderr.contains("start the hub first"), "{}", ended.stderr);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was made");
    }
    let running = started(folder.path());
    running.signal(Signal::TERM);
    running.wait();
    // Only root can give a file away, as it is root who types commands beside a service of another user.
    if rustix::process::geteuid().is_root() {
        let store = folder.path().join("hub.redb");
        chown(&store, Some(12_345), None).unwrap();
        std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o600)).unwrap();
        let ended = keys(folder.path(), &["list"]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains("belongs to user 12345"), "{}", ended.stderr);
        chown(&store, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    }
    assert_eq!(keys(folder.path(), &["list"]).code, Some(0));
}

#[test]
fn a_data_dir_that_cannot_be_used_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    for place in [file.clone(), file.join("below")] {
        let ended = serve(&place).end();
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains("DATA_DIR cannot be used"), "{}", ended.stderr);
        assert!(ended.stderr.contains(file.to_str().unwrap()), "{}", ended.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

// A1.4: in the words of whoever typed it
#[test]
fn a_refused_key_is_told_in_flags_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let _running = serve(folder.path()).env("MULTI_TENANT_ENABLED", "true").until_logged("the hub is ready");
    let ended = keys(folder.path(), &["create", "--role", "tenant"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr.matches("required").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("--tenant:") && !ended.stderr.contains("/tenant_id"), "{}", ended.stderr);
}

// C13.3
#[tokio::test]
async fn what_was_answered_outlives_kill_9() {
    with_tls();
    let folder = tempfile::tempdir().unwrap();
    let running = started(folder.path());
    let key = keys(folder.path(), &["create", "--role", "viewer"]).stdout;
    running.signal(Signal::KILL);
    running.wait();
    let running = started(folder.path());
    assert_eq!(status(&format!("{}/admin/api-keys", running.url()), key.trim()).await, 200);
}

// C13.2
#[test]
fn a_service_manager_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let running = serve(folder.path()).env("NOTIFY_SOCKET", path.to_str().unwrap()).until_logged("the hub is ready");
    let told = || {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!(told().trim(), "READY=1");
    running.signal(Signal::TERM);
    assert_eq!(told().trim(), "STOPPING=1");
    assert_eq!(running.wait().0.code(), Some(0));
}

#[test]
fn a_lost_or_wrong_kek_is_never_answered_with_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let kek = folder.path().join("kek");
    let running = started(folder.path());
    running.signal(Signal::TERM);
    running.wait();
    let right = std::fs::read_to_string(&kek).unwrap();
    std::fs::remove_file(&kek).unwrap();
    let ended = serve(folder.path()).end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("no KEK at") && !kek.exists(), "{}", ended.stderr);
    let wrong = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e9f";
    let other = serve(folder.path()).env("STREAMING_HUB_KEK_REF", "KEK").env("KEK", wrong).end();
    assert_eq!(other.code, Some(2));
    assert!(other.stderr.contains("not the one that sealed"), "{}", other.stderr);
    let running =
        serve(folder.path()).env("STREAMING_HUB_KEK_REF", "KEK").env("KEK", &right).until_logged("the hub is ready");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().0.code(), Some(0));
}

// C13.6
#[test]
fn a_newer_store_ends_with_78_and_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings { cache_bytes: 1 << 20, quick_repair_above: u64::MAX };
    let birth = Birth { store_id: [1; 16], delivery_key: [2; 32] };
    let store = Store::open(Arc::new(FileDisk::take(folder.path()).unwrap()), settings, &birth).unwrap();
    let mut row = store.hub_row().unwrap();
    row.format = FORMAT + 1;
    store.write(|txn| txn.put_hub_row(&row)).unwrap();
    drop(store);
    std::fs::write(folder.path().join("kek"), "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e9f")
        .unwrap();
    std::fs::set_permissions(folder.path().join("kek"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    // Twice: the first has changed nothing about it.
    for _ in 0..2 {
        let ended = serve(folder.path()).end();
        assert_eq!(ended.code, Some(78), "{}", ended.stderr);
        assert!(ended.stderr.contains("run the newer program again"), "{}", ended.stderr);
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = hub(&["serve", "--data-dir", folder.path().to_str().unwrap(), "--http-listen-addr", &address]).end();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
}

// C1.7, C13.1: it is said which broker does not answer and why, each of them, and a hub that needs Kafka is not called ready.
#[test]
fn each_broker_that_does_not_answer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let running = serve(folder.path())
        .env("STREAMING_HUB_KAFKA_BROKERS", "127.0.0.1:1,127.0.0.1:2")
        .env("STREAMING_HUB_READY_REQUIRES_KAFKA", "true")
        .until_logged("kafka does not answer; trying on");
    let said = json_line(running.seen(), "kafka does not answer; trying on");
    let detail = said["detail"].as_str().unwrap();
    for broker in ["127.0.0.1:1: cannot connect: ", "127.0.0.1:2: cannot connect: "] {
        assert!(detail.contains(broker), "{said}");
    }
    running.signal(Signal::TERM);
    let seen = running.seen().to_owned();
    let log = seen + &running.wait().1;
    json_line(&log, "the hub serves; it is ready when Kafka answers (READY_REQUIRES_KAFKA)");
    assert!(!log.contains("the hub is ready") && !log.contains("no events will come"), "{log}");
}

// C13.1
#[test]
fn a_hub_without_a_source_of_events_says_so() {
    for (ingest, said) in [("false", true), ("true", false)] {
        let folder = tempfile::tempdir().unwrap();
        let running =
            serve(folder.path()).env("STREAMING_HUB_HTTP_INGEST_ENABLED", ingest).until_logged("the hub is ready");
        assert_eq!(running.seen().contains("no events will come"), said, "{}", running.seen());
    }
}
