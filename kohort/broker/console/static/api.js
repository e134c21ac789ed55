// Requests to the broker: for JSON, and for the stream of ids of changed groups.

/** The broker did not respond, or responded with an error. `text` is the error's text. */
export class NoAnswer extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Return the JSON at `path`; `request` may have a signal, a method and headers. Rejects with NoAnswer. */
export async function ask(path, request = {}) {
  let response;
  try {
    response = await fetch(path, { ...request, headers: { Accept: "application/json", ...request.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new NoAnswer(0, "Broker not reachable");
  }
  let data = null;
  try {
    data = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (response.ok) throw new NoAnswer(0, "the broker's response was cut off");
    // The error response has no JSON; its status is reported below.
  }
  if (!response.ok) throw new NoAnswer(response.status, data?.error ?? `the broker responded with status ${response.status}`);
  return data;
}

/** A path below /api, with each part encoded. */
export function path(...parts) {
  return ["/api", ...parts.map((part) => encodeURIComponent(part))].join("/");
}

/** `values` as a query string, without the empty ones. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/**
 * Listens to the broker's events while the page is visible. `onChange` gets the ids of changed groups, null for any;
 * `onState` whether the stream is open. If it is not, pages poll.
 */
export class Events {
  #source = null;
  #retry = null;

  constructor(onChange, onState) {
    this.onChange = onChange;
    this.onState = onState;
  }

  start() {
    if (this.#source) return;
    const source = (this.#source = new EventSource("/events"));
    source.addEventListener("hello", () => this.onState(true));
    source.addEventListener("groups", (event) => {
      const changes = JSON.parse(event.data);
      this.onChange(changes.any ? null : new Set(changes.changed));
    });
    source.onerror = () => {
      this.onState(false);
      // The broker has rejected the stream, because too many are open. After other errors the browser reconnects itself.
      if (source.readyState === EventSource.CLOSED) {
        this.stop();
        this.#retry = setTimeout(() => this.start(), 30_000);
      }
    };
  }

  stop() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }
}
