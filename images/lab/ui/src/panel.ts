// The panel behind the meter: every value, and what can be done.
import { Dialog, Notification } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import { Acts, ACTIONS, IOutcome } from './acts';
import { button, element, facts, setText } from './dom';
import { IState } from './model';

/** What asks the person once more. */
const ASKS = ['stop'];

class Body extends Widget {
  /** `ask` closes the panel and then does what asks once more: JupyterLab shows one dialog at a time. */
  constructor(
    private _acts: Acts,
    ask: (action: string) => void
  ) {
    super({ node: element('div') });
    this.addClass('berth-panel');
    this._facts = element('div');
    this._answer = element('p', { class: 'berth-answer', role: 'status', 'aria-live': 'polite' });
    this._done = button('', () => void this._run(() => _acts.whenDone(!_acts.news.state?.wish.when_done)));
    this._at = element('input', { type: 'datetime-local', id: 'berth-shutdown-at' });
    this._noTime = button(this._say('Set no time'), () => void this._run(() => _acts.shutdownAt(null)));
    this._link = element('a', { target: '_blank', rel: 'noopener' }, this._say('Receipt of this session'));
    const act = Object.entries(ACTIONS).map(([name, key]) =>
      button(this._say(key), () => (ASKS.includes(name) ? ask(name) : void this._run(() => _acts.run(name))))
    );
    this._buttons = [...act, this._done];
    const label = element('label', { for: 'berth-shutdown-at' }, this._say('Stop it at'));
    const set = button(this._say('Set'), () => void this._set());
    this.node.append(
      this._facts,
      element('div', { class: 'berth-row' }, ...act),
      element('div', { class: 'berth-row' }, label, this._at, set, this._noTime, this._done),
      element('div', { class: 'berth-row' }, this._link),
      this._answer
    );
    _acts.news.changed.connect(this._refresh, this);
    this._timer = window.setInterval(() => this._refresh(), 1000);
    this._refresh();
  }

  dispose(): void {
    window.clearInterval(this._timer);
    this._acts.news.changed.disconnect(this._refresh, this);
    super.dispose();
  }

  private _refresh(): void {
    const state = this._acts.news.state;
    if (state === null) {
      setText(this._facts, this._say('Nothing was heard from the service yet.'));
      return;
    }
    const rows = this._rows(state);
    const text = JSON.stringify(rows);
    if (text !== this._shown) {
      this._shown = text;
      this._facts.replaceChildren(facts(rows));
    }
    const done = state.wish.when_done ? 'Do not stop when done' : 'Stop when what runs now is done';
    setText(this._done, this._say(done));
    this._noTime.hidden = state.wish.shutdown_at === null;
    this._link.href = this._acts.service.page(`lease/${encodeURIComponent(state.lease_id)}`);
  }

  private _rows(state: IState): [string, string][] {
    const { words, news } = this._acts;
    const now = news.now();
    const rows: [string, string][] = [];
    const stale = news.staleSince();
    if (stale !== null) {
      const since = words.time(stale, new Date());
      rows.push([this._say('News'), this._say('none since {time}; what follows is as of then', { time: since })]);
    }
    rows.push([this._say('Profile'), state.profile], [this._say('Share'), words.share(state)]);
    if (state.share_milli > 0 && state.count > 0) {
      rows.push([this._say('GPU memory'), words.memory(state)], [this._say('GPU use'), words.use(state)]);
    }
    const rate = words.credits(state.rate_micro_per_hour);
    rows.push([this._say('Price'), this._say('{rate} credits per hour', { rate })]);
    rows.push([this._say('Charged so far'), this._say('{count} credits', { count: words.credits(state.charged_micro, 6) })]);
    const balance = words.credits(state.balance_micro);
    rows.push([this._say('Balance'), this._say('{count} credits of {payer}', { count: balance, payer: state.payer })]);
    const moments: [string, string | null][] = [
      [this._say('Credits last until'), state.credit_ends_at],
      [this._say('May run until'), state.max_age_ends_at],
      [this._say('Set to stop at'), state.wish.shutdown_at],
      [this._say('Kept until'), state.wish.keep_until]
    ];
    for (const [name, at] of moments) {
      if (at !== null) {
        const values = { time: words.time(at, now), left: words.left(at, now) };
        rows.push([name, this._say('{time} ({left} left)', values)]);
      }
    }
    rows.push([this._say('Idle rules'), this._verdict(state)]);
    return rows;
  }

  private _verdict(state: IState): string {
    const { verdict } = state;
    return verdict === null ? this._say('nothing said yet') : this._acts.words.told(verdict.words, verdict.words_in);
  }

  private _set(): Promise<void> {
    const at = new Date(this._at.value);
    if (isNaN(at.getTime())) {
      setText(this._answer, this._say('Choose a day and a time first.'));
      this._at.focus();
      return Promise.resolve();
    }
    return this._run(() => this._acts.shutdownAt(at));
  }

  private async _run(act: () => Promise<IOutcome>): Promise<void> {
    const asked = document.activeElement;
    this._buttons.forEach(each => (each.disabled = true));
    setText(this._answer, this._say('One moment …'));
    const outcome = await act();
    this._buttons.forEach(each => (each.disabled = false));
    setText(this._answer, outcome.words);
    if (asked instanceof HTMLElement && document.activeElement === document.body) {
      asked.focus(); // a button that is disabled loses it
    }
  }

  private get _say() {
    return this._acts.words.say;
  }

  private _facts: HTMLElement;
  private _answer: HTMLElement;
  private _done: HTMLButtonElement;
  private _noTime: HTMLButtonElement;
  private _buttons: HTMLButtonElement[];
  private _at: HTMLInputElement;
  private _link: HTMLAnchorElement;
  private _timer: number;
  private _shown = '';
}

let open = false;

/** Show it until it is closed; once. */
export async function showPanel(acts: Acts): Promise<void> {
  if (open) {
    return;
  }
  open = true;
  const { say } = acts.words;
  let asks: string | null = null;
  const ask = (action: string) => {
    asks = action;
    dialog.reject();
  };
  const dialog = new Dialog({
    title: say('This server'),
    body: new Body(acts, ask),
    buttons: [Dialog.okButton({ label: say('Close') })],
    hasClose: true
  });
  dialog.addClass('berth-dialog');
  try {
    await dialog.launch();
  } finally {
    open = false;
  }
  if (asks !== null) {
    const outcome = await acts.run(asks);
    Notification.emit(outcome.words, outcome.done ? 'info' : 'warning', { autoClose: 8000 });
  }
}
