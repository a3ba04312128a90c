// Server-sent events by fetch(): what EventSource cannot is to show a token.
// The one rule: whoever made this page shows the token in a header. There is no cookie that another page could use.

const KEY = "futebus-token";
const SILENCE = 40_000; // milliseconds: the server says something every 15 seconds
const LONGEST = 32 << 20; // characters of one event
const LOST = "the server was gone, and another one may be in its place: show the token again, if you trust it";

export class Token {
  static isForgotten = false;
  static isLost = false; // whether it is forgotten before anything more is asked for
  static doubted = null; // the token, while it is not known whether the server is still the same
  static pledge = null; // a question that only the server which was shown the token can answer, and its answer

  // It comes behind the # of the address, which no server and no log sees, and does not stay there.
  static takeFromAddress() {
    const words = new URLSearchParams(location.hash.slice(1));
    const token = words.get("token");
    if (token !== null) {
      Token.set(token);
      words.delete("token");
      const rest = words.toString();
      history.replaceState(null, "", location.pathname + (rest ? "#" + rest : ""));
    }
  }

  static set(token) {
    sessionStorage.setItem(KEY, token.trim());
    Token.isForgotten = Token.isLost = false;
    Token.doubted = Token.pledge = null;
  }

  // The server has gone, or this page is just loaded again, which looks the same: whoever goes on forgets it.
  static lose() {
    Token.isLost = true;
  }

  // Whoever listens on the port of a server that has gone is not shown it, nor does a page that he makes find it.
  static forget() {
    sessionStorage.removeItem(KEY);
    Token.isForgotten = true;
    Token.isLost = false;
    Token.doubted = Token.pledge = null;
  }

  // From now on nobody notices if the server goes. The token is kept where no page that is loaded meanwhile finds it.
  static doubt() {
    if (Token.isLost) return Token.forget();
    const token = sessionStorage.getItem(KEY);
    if (token === null || !Token.pledge) return;
    sessionStorage.removeItem(KEY);
    Token.doubted = token;
  }

  // Before the token is shown again: whether the server is still the one that was shown it.
  static async settle(signal) {
    if (Token.isLost) Token.forget();
    const { doubted, pledge } = Token;
    if (doubted === null) return;
    const told = await fetch("same?" + new URLSearchParams({ ask: pledge.ask }), { signal, cache: "no-store" });
    const isSame = told.ok && (await told.text()) === pledge.answer;
    if (Token.doubted !== doubted) return; // somebody else has found out, or has given another one
    if (!isSame) return Token.forget();
    sessionStorage.setItem(KEY, doubted);
    Token.doubted = null;
  }

  static get headers() {
    const token = Token.isLost ? null : sessionStorage.getItem(KEY);
    return token ? { Authorization: "Bearer " + token } : {};
  }
}

export class Stream {
  // handlers: by the names of events; and opened(), broken(words), refused(status, words).
  constructor(path, query, handlers) {
    this.url = path + "?" + new URLSearchParams(query);
    this.handlers = handlers;
    this.isClosed = false;
    this.abort = new AbortController();
    this.run();
  }

  close() {
    this.isClosed = true;
    this.abort.abort();
  }

  async run() {
    for (let wait = 500; !this.isClosed; wait = Math.min(wait * 2, 8000)) {
      try {
        await Token.settle(this.abort.signal);
        const answer = await fetch(this.url, { headers: Token.headers, signal: this.abort.signal, cache: "no-store" });
        if (!answer.ok) {
          const words = (await answer.text()).trim();
          if (this.isClosed) return;
          this.handlers.refused(answer.status, answer.status === 401 && Token.isForgotten ? LOST : words);
          if (answer.status !== 503) return;
        } else {
          this.handlers.opened();
          wait = 500;
          await this.read(answer.body);
          if (!this.isClosed) this.lose("the server has gone");
        }
      } catch (error) {
        if (!this.isClosed) this.lose("the server cannot be reached");
      }
      if (!this.isClosed) await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  lose(words) {
    Token.lose();
    this.handlers.broken(words);
  }

  async read(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    // Pieces of an event whose end has not come: looked through once, however many they are.
    let pieces = [];
    let length = 0;
    while (true) {
      const timer = setTimeout(() => reader.cancel(), SILENCE);
      const { done, value } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      const piece = decoder.decode(value, { stream: true });
      pieces.push(piece);
      length += piece.length;
      if (length > LONGEST) throw new Error("too long");
      const before = pieces.length > 1 ? pieces[pieces.length - 2] : "";
      if (!piece.includes("\n\n") && !(before.endsWith("\n") && piece.startsWith("\n"))) continue;
      const blocks = pieces.join("").split("\n\n");
      pieces = [blocks.pop()];
      length = pieces[0].length;
      for (const block of blocks) this.take(block);
      if (this.isClosed) return;
    }
  }

  take(block) {
    const words = { event: "", data: "" };
    for (const line of block.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) words[line.slice(0, at)] = line.slice(at + 2);
    }
    const handler = this.handlers[words.event];
    if (words.event && handler && !this.isClosed) handler(JSON.parse(words.data));
  }
}
