// A small receiver of Streaming Hub's webhooks. It needs Node 18 and nothing else.
//
//     WEBHOOK_SECRET=whsec_... node data/examples/receiver.mjs 9000
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

// Whether a delivery came from the hub. `signatures` are its X-Webhook-Signature headers, `body` its exact bytes.
export function verified(secret, timestamp, signatures, body, now = Date.now() / 1000) {
  if (!/^[0-9]{1,12}$/.test(timestamp) || Math.abs(now - Number(timestamp)) > 300) return false;
  const right = createHmac("sha256", secret).update(`v1:${timestamp}.`).update(body).digest();
  // While a secret is rotated there are two, and Node joins repeated headers with a comma: never split, pick by pattern.
  const given = [signatures].flat().join(" ").match(/v1,sha256=[0-9a-f]{64}/g) ?? [];
  return given.map((one) => timingSafeEqual(Buffer.from(one.slice(10), "hex"), right)).includes(true);
}

async function receive(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const header = (name) => request.headers[name] ?? "";
  const answer = (status, value) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
  if (!verified(process.env.WEBHOOK_SECRET, header("x-webhook-timestamp"), header("x-webhook-signature"), body)) {
    return answer(401, { error: "signature" });
  }
  const eventType = header("x-lerian-event-type");
  // The hub asks whether this is the right place: answer with its challenge.
  if (eventType === "subscription.verification") return answer(200, { challenge: JSON.parse(body).challenge });
  // At least once: remember X-Lerian-Event-Id and do nothing for one that was handled already.
  console.log("verified", eventType, header("x-lerian-event-id"), body.toString());
  answer(200, {});
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  createServer(receive).listen(Number(process.argv[2]), "127.0.0.1");
}
