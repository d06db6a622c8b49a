// fastify: a limited application.
// In this folder of a checkout: (cd .. && npm ci && npm run build); npx tsx fastify.ts 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
import { header, Tidegate } from "@tidegate/client";
import { rateLimit } from "@tidegate/client/fastify";
import Fastify from "fastify";

const client = new Tidegate(process.env["TIDEGATE_ADDR"], { domain: "demo" });
const app = Fastify();
await app.register(rateLimit, { client, keys: [header("x-api-key", { entry: "api_key", missing: "reject" })] });
app.get("/", (request) => `hello, ${request.rateLimit?.remaining ?? 0} left\n`);
await app.listen({ host: "127.0.0.1", port: Number(process.argv[2]) });
