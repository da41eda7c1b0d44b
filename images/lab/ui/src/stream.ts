// The one stream of events of a person's tabs. Where the browser can lock, one tab listens and tells the others: a stream
// in each would use up the few connections that a browser opens to a site. Where it cannot, a tab listens while it is seen.
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { IEvent } from './model';

const SILENCE_SECONDS = 45;
const LONGEST_WAIT_SECONDS = 30;
const KEPT = ['state', 'stopping', 'saving', 'saved', 'resume'];

/** Events out of pieces of text. */
export class Parser {
  feed(piece: string): IEvent[] {
    const blocks = (this._rest + piece).replace(/\r\n/g, '\n').split('\n\n');
    this._rest = blocks.pop() ?? '';
    return blocks.map(parsed).filter((event): event is IEvent => event !== null);
  }
  private _rest = '';
}

function parsed(block: string): IEvent | null {
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) {
      event = line.slice(6).trim();
    } else if (line.startsWith('data:')) {
      data.push(line.slice(5).trimStart());
    }
  }
  try {
    const value = JSON.parse(data.join('\n'));
    return value !== null && typeof value === 'object' ? { event, data: value } : null;
  } catch {
    return null; // a comment, or nothing that we know
  }
}

/** One connection, to its end. Resolves with whether anything came, and whether the kit wants no more of it. */
async function listen(
  settings: ServerConnection.ISettings,
  hear: (event: IEvent) => void,
  ending: AbortSignal
): Promise<'nothing' | 'something' | 'gone'> {
  const stop = new AbortController();
  const end = () => stop.abort();
  ending.addEventListener('abort', end);
  let silence = setTimeout(end, SILENCE_SECONDS * 1000);
  let found: 'nothing' | 'something' | 'gone' = 'nothing';
  try {
    const url = URLExt.join(settings.baseUrl, 'berth/stream');
    const init = { signal: stop.signal, headers: { Accept: 'text/event-stream' } };
    const response = await ServerConnection.makeRequest(url, init, settings);
    if (!response.ok || response.body === null) {
      return 'nothing';
    }
    const parser = new Parser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return found;
      }
      clearTimeout(silence);
      silence = setTimeout(end, SILENCE_SECONDS * 1000);
      for (const event of parser.feed(value)) {
        if (event.event === 'gone') {
          found = 'gone';
        } else {
          found = found === 'gone' ? found : 'something';
          hear(event);
        }
      }
    }
  } catch {
    return found;
  } finally {
    clearTimeout(silence);
    ending.removeEventListener('abort', end);
    stop.abort();
  }
}

async function follow(
  settings: ServerConnection.ISettings,
  hear: (event: IEvent) => void,
  ending: AbortSignal
): Promise<void> {
  let failures = 0;
  while (!ending.aborted) {
    const found = await listen(settings, hear, ending);
    failures = found === 'something' ? 0 : failures + 1;
    const most = found === 'gone' ? LONGEST_WAIT_SECONDS : Math.min(LONGEST_WAIT_SECONDS, 2 ** failures);
    await wait(most * (0.5 + Math.random() / 2), ending);
  }
}

function wait(seconds: number, ending: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(resolve, seconds * 1000);
    ending.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** What tabs say to each other. */
interface ISaid {
  kind: 'event' | 'hello' | 'answered' | 'saving' | 'saved';
  event?: IEvent;
  id?: string;
  tab?: string;
}

/** All tabs of one person on one server. `leads` is the one that listens, shows toasts, and answers for all. */
export class Tabs {
  leads = false;
  answered: (id: string) => void = () => undefined;

  constructor(
    private _settings: ServerConnection.ISettings,
    private _hear: (event: IEvent) => void
  ) {
    this._name = 'berth:' + _settings.baseUrl;
    this._channel = new BroadcastChannel(this._name);
    this._channel.onmessage = message => this._said(message.data);
  }

  start(): void {
    if (navigator.locks) {
      void navigator.locks.request(this._name, () => this._lead(new AbortController().signal));
      this._tell({ kind: 'hello' });
      return;
    }
    let ending = new AbortController();
    const look = () => {
      ending.abort();
      ending = new AbortController();
      if (!document.hidden) {
        void this._lead(ending.signal);
      }
    };
    document.addEventListener('visibilitychange', look);
    look();
  }

  /** A warning was answered here: nobody need see it any more. */
  answer(id: string): void {
    this._tell({ kind: 'answered', id });
  }

  /** Say that this tab saves, and that it has. The one that leads waits for the others with `othersSaved`. */
  async whileSaving(save: () => Promise<void>): Promise<void> {
    this._tell({ kind: 'saving', tab: this._tab });
    await save();
    this._tell({ kind: 'saved', tab: this._tab });
  }

  async othersSaved(seconds: number): Promise<void> {
    const until = performance.now() + seconds * 1000;
    while (this._saving.size > 0 && performance.now() < until) {
      await new Promise(resolve => setTimeout(resolve, 50));
    }
  }

  private async _lead(ending: AbortSignal): Promise<void> {
    this.leads = true;
    const hear = (event: IEvent) => {
      if (KEPT.includes(event.event)) {
        this._kept.set(event.event, event);
      } else if (event.event === 'notice') {
        this._kept.set(`notice ${event.data.kind}`, event); // of each kind the newest
      }
      if (event.event === 'state' && event.data.target === 'RUN') {
        ['stopping', 'saving', 'saved'].forEach(gone => this._kept.delete(gone));
      }
      this._tell({ kind: 'event', event });
      this._hear(event);
    };
    await follow(this._settings, hear, ending);
    this.leads = false;
  }

  private _said(said: ISaid): void {
    if (said.kind === 'event' && said.event && !this.leads) {
      this._hear(said.event);
    } else if (said.kind === 'hello' && this.leads) {
      this._kept.forEach(event => event.event !== 'resume' && this._tell({ kind: 'event', event }));
    } else if (said.kind === 'answered' && said.id) {
      this.answered(said.id);
    } else if (said.kind === 'saving' && said.tab) {
      this._saving.add(said.tab);
    } else if (said.kind === 'saved' && said.tab) {
      this._saving.delete(said.tab);
    }
  }

  private _tell(said: ISaid): void {
    this._channel.postMessage(said);
  }

  private _tab = Math.random().toString(36).slice(2);
  private _name: string;
  private _channel: BroadcastChannel;
  private _kept = new Map<string, IEvent>();
  private _saving = new Set<string>();
}
