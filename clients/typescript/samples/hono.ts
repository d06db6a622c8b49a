// hono: a limited application.
// In this folder of a checkout: (cd .. && npm ci && npm run build); npx tsx hono.ts 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
import { serve } from "@hono/node-server";
import { header, Tidegate } from "@tidegate/client";
import { rateLimit } from "@tidegate/client/hono";
import { Hono } from "hono";

const client = new Tidegate(process.env["TIDEGATE_ADDR"], { domain: "demo" });
const app = new Hono();
app.use(rateLimit({ client, keys: [header("x-api-key", { entry: "api_key", missing: "reject" })] }));
app.get("/", (context) => context.text("hello\n"));
serve({ fetch: app.fetch, hostname: "127.0.0.1", port: Number(process.argv[2]) });
