// express: a limited application.
// In this folder of a checkout: (cd .. && npm ci && npm run build); npx tsx express.ts 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
import { header, Tidegate } from "@tidegate/client";
import { rateLimit } from "@tidegate/client/express";
import express from "express";

const client = new Tidegate(process.env["TIDEGATE_ADDR"], { domain: "demo" });
const app = express();
app.use(rateLimit({ client, keys: [header("x-api-key", { entry: "api_key", missing: "reject" })] }));
app.get("/", (_, response) => {
  response.send("hello\n");
});
app.listen(Number(process.argv[2]), "127.0.0.1");
