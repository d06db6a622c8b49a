// Next.js: a limited application (`proxy.ts` is called `middleware.ts` before Next.js 16).
// In this folder of a checkout: (cd ../.. && npm ci && npm run build && npm pack); npm install ../../tidegate-client-0.9.0.tgz;
// TIDEGATE_URL=http://127.0.0.1:8082 npx next dev -p 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
import { header, Tidegate } from "@tidegate/client/http";
import { rateLimit } from "@tidegate/client/next";
import { NextResponse } from "next/server";

const client = new Tidegate(process.env["TIDEGATE_URL"], { domain: "demo" });

export const proxy = rateLimit({
  client,
  keys: [header("x-api-key", { entry: "api_key", missing: "reject" })],
  next: (init) => NextResponse.next(init),
});

export const config = { matcher: "/" };
