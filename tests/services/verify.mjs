// Verifies a recorded delivery as a receiver would, with the two libraries that know Standard Webhooks.
// Reads {"secret", "headers", "body_base64"} from standard input; prints a line for each library that accepts it, and fails if one does not.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const modules = createRequire(join(process.env.HUB_TEST_NODE_MODULES, "_"));
const { secret, headers, body_base64 } = JSON.parse(readFileSync(0, "utf8"));
const body = Buffer.from(body_base64, "base64");

for (const name of ["standardwebhooks", "svix"]) {
  const { Webhook } = modules(name);
  const accepts = (text, sent) => {
    try {
      new Webhook(secret).verify(text, sent);
      return true;
    } catch {
      return false;
    }
  };
  // svix takes its own header names, or the standard ones.
  if (!accepts(body.toString("utf8"), headers)) throw new Error(`${name} refuses a good delivery`);
  if (accepts(body.toString("utf8") + " ", headers)) throw new Error(`${name} accepts another body`);
  console.log(`${name} ok`);
}
