import { Breaker, type Permit } from "./breaker.js";
import type { Transport } from "./transport.js";

/** One address: its connection and its breaker. */
export class Server {
  readonly transport: Transport;
  readonly breaker: Breaker;
  /** Whether no call has ended yet: the first call opens the connection. */
  isFirst = true;
  /** Code and message of the last failure. */
  lastFailure = "";

  constructor(transport: Transport, failuresMax: number, openNs: bigint) {
    this.transport = transport;
    this.breaker = new Breaker(failuresMax, openNs);
  }
}

/** The server of a call, and a server to probe beside it. */
export interface Choice {
  readonly server: Server;
  readonly permit: Permit;
  readonly probed?: Server | undefined;
}

/** The servers take turns. A server that does not answer or has no connection is left out while another is in use. */
export class Servers {
  readonly all: readonly Server[];
  #turn = 0;

  constructor(servers: readonly Server[]) {
    this.all = servers;
  }

  /** Returns whether another server is in use. */
  hasOther(than: Server): boolean {
    return this.all.some((other) => other !== than && !other.breaker.isOpen && other.transport.isConnected());
  }

  /** Returns the server of a call; undefined if no breaker permits a call. */
  choose(nowNs: bigint): Choice | undefined {
    const turn = this.#turn++ % this.all.length;
    const servers = turn === 0 ? this.all : [...this.all.slice(turn), ...this.all.slice(0, turn)];
    if (servers.length > 1) {
      // Checked for every server: this also keeps each of them connecting.
      const connected = servers.filter(({ transport }) => transport.isConnected());
      const server = connected.find(({ breaker }) => !breaker.isOpen);
      if (server !== undefined) {
        const probed = servers.find(({ breaker }) => breaker.isOpen && breaker.enter(nowNs) === "probe");
        return { server, permit: "call", probed };
      }
    }
    for (const server of servers) {
      const permit = server.breaker.enter(nowNs);
      if (permit !== "none") {
        return { server, permit };
      }
    }
    return undefined;
  }
}
