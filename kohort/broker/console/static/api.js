// Asks the broker: JSON, and the stream that tells which groups have changed.

/** The broker's answer is not one. `text` is what it says. */
export class NoAnswer extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** The JSON at `path`. Rejects with NoAnswer. */
export async function ask(path, signal) {
  let answer;
  try {
    answer = await fetch(path, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new NoAnswer(0, "the broker does not answer");
  }
  let data = null;
  try {
    data = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (answer.ok) throw new NoAnswer(0, "the broker's response was cut off");
    // An error without JSON is reported by its status.
  }
  if (!answer.ok) throw new NoAnswer(answer.status, data?.error ?? `the broker answers ${answer.status}`);
  return data;
}

/** A path below /api, each part encoded. */
export function path(...parts) {
  return ["/api", ...parts.map((part) => encodeURIComponent(part))].join("/");
}

/** `values` as a query, without those that are empty. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/**
 * Listens while the page can be seen. `onChange` gets the ids of groups that have changed, null for any;
 * `onState` whether the stream is open. Where there is no stream, pages ask now and then.
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
      const told = JSON.parse(event.data);
      this.onChange(told.any ? null : new Set(told.changed));
    });
    source.onerror = () => {
      this.onState(false);
      // Refused for good, as too many listen; otherwise the browser tries again by itself.
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
