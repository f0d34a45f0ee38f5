"""A small receiver of Streaming Hub's webhooks. It needs Python 3.9 and nothing else.

    WEBHOOK_SECRET=whsec_... python3 data/examples/receiver.py 9000
"""
import hashlib
import hmac
import json
import os
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def verified(secret, timestamp, signatures, body, now=None):
    """Whether a delivery came from the hub. `signatures` are its X-Webhook-Signature headers, `body` its exact bytes."""
    now = time.time() if now is None else now
    if not re.fullmatch("[0-9]{1,12}", timestamp) or abs(now - int(timestamp)) > 300:
        return False
    signed = b"v1:" + timestamp.encode() + b"." + body
    right = "v1,sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    # While a secret is rotated there are two, and a proxy may have joined them with a comma: never split, pick by pattern.
    given = re.findall("v1,sha256=[0-9a-f]{64}", " ".join(signatures))
    return any([hmac.compare_digest(right, one) for one in given])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        signatures = self.headers.get_all("X-Webhook-Signature", [])
        timestamp = self.headers.get("X-Webhook-Timestamp", "")
        if not verified(os.environ["WEBHOOK_SECRET"], timestamp, signatures, body):
            return self.answer(401, {"error": "signature"})
        event_type = self.headers.get("X-Lerian-Event-Type")
        if event_type == "subscription.verification":
            # The hub asks whether this is the right place: answer with its challenge.
            return self.answer(200, {"challenge": json.loads(body)["challenge"]})
        # At least once: remember X-Lerian-Event-Id and do nothing for one that was handled already.
        print("verified", event_type, self.headers["X-Lerian-Event-Id"], body.decode(), flush=True)
        self.answer(200, {})

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
