//! `install.sh`, into a folder of its own: what it puts where, what a second run leaves alone, and what stays when it is taken away.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

fn install(into: &Path, arg: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
    Command::new(script).arg(arg).env("DESTDIR", into).output().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn it_is_installed_again_over_what_is_there_and_taken_away_without_what_cannot_be_had_again() {
    let place = tempfile::tempdir().unwrap();
    let [program, unit, settings, kek] = [
        "usr/local/bin/streaming-hub",
        "etc/systemd/system/streaming-hub.service",
        "etc/streaming-hub/streaming-hub.env",
        "etc/streaming-hub/kek",
    ]
    .map(|path| place.path().join(path));
    let binary = env!("CARGO_BIN_EXE_streaming-hub");
    let first = install(place.path(), binary);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    assert_eq!([&program, &unit, &settings, &kek].map(|path| mode(path)), [0o755, 0o644, 0o640, 0o400]);
    assert_eq!(mode(settings.parent().unwrap()), 0o750);

    let key = std::fs::read(&kek).unwrap();
    std::fs::write(&settings, "STREAMING_HUB_ENV=staging\n").unwrap();
    std::fs::remove_file(&program).unwrap();
    assert!(install(place.path(), binary).status.success());
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), "STREAMING_HUB_ENV=staging\n");
    assert!(program.exists() && std::fs::read(&kek).unwrap() == key);

    let away = install(place.path(), "--uninstall");
    assert!(away.status.success(), "{}", String::from_utf8_lossy(&away.stderr));
    assert!(!program.exists() && !unit.exists() && settings.exists() && std::fs::read(&kek).unwrap() == key);
    let said = String::from_utf8(away.stdout).unwrap();
    assert!(said.contains("etc/streaming-hub"), "{said}");

    let nothing = install(place.path(), "/nonexistent/streaming-hub");
    assert!(!nothing.status.success());
    assert!(String::from_utf8(nothing.stderr).unwrap().contains("cargo build --release"));
}
