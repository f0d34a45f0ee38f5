//! The receivers that README.md shows: their signature check on the given vectors, and each as a receiver of a real hub.

use crate::api::{Api, Echo};
use crate::command::serve;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Reads cases as JSON from standard input and prints for each whether it is verified.
const PYTHON: &str = "import base64, json, sys; sys.path.insert(0, 'data/examples'); from receiver import verified
print(json.dumps([verified(c['secret'], c['timestamp'], c['signatures'], base64.b64decode(c['body']), c['now']) for c in json.load(sys.stdin)]))";
const NODE: &str = "import { verified } from './data/examples/receiver.mjs'; import { readFileSync } from 'node:fs';
console.log(JSON.stringify(JSON.parse(readFileSync(0)).map((c) => verified(c.secret, c.timestamp, c.signatures, Buffer.from(c.body, 'base64'), c.now))))";

fn cases() -> Vec<(Value, bool)> {
    let text = std::fs::read_to_string(format!("{ROOT}/tests/cases/signature-vectors.json")).unwrap();
    let given: Value = serde_json::from_str(&text).unwrap();
    let mut cases = Vec::new();
    for vector in given["vectors"].as_array().unwrap() {
        let (seconds, signature) = (vector["timestamp"].as_i64().unwrap(), vector["signature"].as_str().unwrap());
        let wrong = format!("v1,sha256={}", "0".repeat(64));
        let mut case = |signatures: Value, off: i64, verified| {
            let case = json!({
                "secret": vector["secret"], "timestamp": seconds.to_string(), "signatures": signatures,
                "body": vector["body_base64"], "now": seconds + off,
            });
            cases.push((case, verified));
        };
        case(json!([signature]), 0, true);
        case(json!([signature]), 300, true);
        case(json!([signature]), -300, true);
        case(json!([signature]), 301, false);
        case(json!([signature]), -301, false);
        case(json!([wrong, signature]), 0, true);
        case(json!([format!("{wrong}, {signature}")]), 0, true);
        case(json!([format!("{signature},{wrong}")]), 0, true);
        case(json!([wrong]), 0, false);
        case(json!([signature.to_uppercase()]), 0, false);
        case(json!([&signature[..signature.len() - 1]]), 0, false);
        case(json!([]), 0, false);
    }
    let [first] = &cases[..1] else { unreachable!() };
    let mut timeless = first.0.clone();
    timeless["timestamp"] = json!("soon");
    cases.push((timeless, false));
    cases
}

// C9.1, C9.2
#[test]
fn the_examples_verify_as_the_contract_says() {
    let cases = cases();
    assert!(cases.len() > 50);
    let input = Value::Array(cases.iter().map(|(case, _)| case.clone()).collect()).to_string();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), input).unwrap();
    for (program, args) in [("python3", vec!["-c", PYTHON]), ("node", vec!["--input-type=module", "-e", NODE])] {
        let input = std::fs::File::open(file.path()).unwrap();
        let output = Command::new(program).args(args).current_dir(ROOT).stdin(input).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        let said: Vec<bool> = serde_json::from_slice(&output.stdout).unwrap();
        for ((case, expected), said) in cases.iter().zip(&said) {
            assert_eq!(said, expected, "{program}: {case}");
        }
        assert_eq!(said.len(), cases.len());
    }
}

#[test]
fn the_readme_shows_the_examples_as_they_are() {
    let readme = std::fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    for (file, language) in [("data/examples/receiver.py", "```python\n"), ("data/examples/receiver.mjs", "```js\n")] {
        let code = std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap();
        let shown = readme.split(language).nth(1).unwrap().split("```").next().unwrap();
        assert!(shown.contains("verified(") && code.contains(shown.trim()), "README.md shows another {file}");
    }
}

struct Receiver {
    child: Child,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// C4.7, C9.1
#[tokio::test]
async fn the_examples_receive_from_a_real_hub() {
    for (program, file) in [("python3", "data/examples/receiver.py"), ("node", "data/examples/receiver.mjs")] {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let running = serve(folder.path())
            .env("STREAMING_HUB_HTTP_INGEST_ENABLED", "true")
            .env("STREAMING_HUB_SINK_ALLOW", &format!("127.0.0.1:{port}+plain"))
            .env("STREAMING_HUB_TENANT_ID", "t-abc")
            .until_logged("the hub is ready");
        let api = Api::of(&running, folder.path());
        let (id, secret) = api.subscribe(&format!("http://127.0.0.1:{port}/hook"), Echo::Wanted).await;
        let mut child = Command::new(program)
            .args([file, &port.to_string()])
            .current_dir(ROOT)
            .env("WEBHOOK_SECRET", secret)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let _receiver = Receiver { child };
        // It listens a moment after it was started.
        let mut proven = api.verify(&id).await;
        for _ in 0..400 {
            if proven["verification_state"] == "active" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            proven = api.verify(&id).await;
        }
        assert_eq!(proven["verification_state"], "active", "{program}: {proven}");
        api.send_one();
        let mut heard = String::new();
        said.read_line(&mut heard).unwrap();
        let expected = "verified loan_application.approved 0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01 {\"amount\":10.50}";
        assert_eq!(heard.trim(), expected, "{program}");
    }
}
