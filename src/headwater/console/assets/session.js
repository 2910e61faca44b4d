// Who asks: the token of this tab, requests that carry it, and the stream of changes.

const KEY = "headwater token";

/** Take the token out of the address, where histories and shoulders would find it. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
}

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** Ask for something below /api/ and return what the answer says. */
export async function ask(path, body) {
  const response = await request(path, body);
  return response.json();
}

async function request(path, body, signal) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  const options = { headers, signal, cache: "no-store", credentials: "omit" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  const response = await fetch(`/api/${path}`, options);
  if (!response.ok) {
    let sentence = `The console answered ${response.status}`;
    try {
      sentence = (await response.json()).error;
    } catch {
      // What is no JSON comes from somebody in between.
    }
    throw new Refused(response.status, sentence);
  }
  return response;
}

/** Give every event of a stream to `take`, until it ends. */
export async function readStream(path, take, signal) {
  const response = await request(path, undefined, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ")) take(JSON.parse(event.slice(6)));
    }
  }
}
