// Warnings that can be acted upon: a toast in the tab that leads, and a banner in each that stays until it is answered.
import { Notification } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import { Acts, ACTIONS } from './acts';
import { Answered } from './answered';
import { button, element, setText } from './dom';
import { Key } from './language';
import { INotice, IReport, IState, IStopping, withdrawn } from './model';
import { Tabs } from './stream';

const STOPPING = 'stopping';
/** These are said by the banner of the stop itself. */
const SAID_ELSEWHERE = ['idle-stop', 'stopped'];
/** What happens at the end of a warning's time, by its kind. */
const HEADS: Record<string, Key> = {
  'idle-warning': 'This server is stopped at {time} unless it is used or kept.',
  'shutdown-warning': 'This server is stopped at {time}, as it was set.',
  'max-age-warning': 'This server is stopped at {time}: it may run no longer.',
  'credit-stop': 'This server is stopped at {time}: there is no credit left for it.'
};
/** A stop for these reasons is taken back by keeping the server. */
const TAKEN_BACK = ['idle', 'shutdown'];
/** JupyterLab cuts a toast's words here. */
const LONGEST_TOAST = 140;

/** What is warned of, what can be done, and what came of that. */
class Banner extends Widget {
  constructor(
    private _acts: Acts,
    kind: string,
    said: ISaid,
    actions: string[],
    close: HTMLButtonElement | null
  ) {
    super({ node: element('section', { 'aria-label': _acts.words.say('Warning about this server') }) });
    const known = actions.filter(name => name in ACTIONS);
    this._buttons = known.map(name => button(_acts.words.say(ACTIONS[name]), () => void this._run(name)));
    this._close = close;
    this._head = element('p', { role: 'alert' }, said.head);
    this._why = element('p', {}, said.why);
    this._said = element('div', { class: 'berth-said' }, this._head, this._why);
    this._answer = element('p', { class: 'berth-answer', role: 'status', 'aria-live': 'polite' });
    this._inside = element('div', { class: 'berth-banner', 'data-kind': kind });
    this._inside.append(this._said, ...this._buttons, ...(close ? [close] : []), this._answer);
    this.node.append(this._inside);
    this._sizes = new ResizeObserver(() => this._fit());
    this._sizes.observe(this._inside);
  }

  dispose(): void {
    this._sizes.disconnect();
    super.dispose();
  }

  answer(words: string): void {
    setText(this._answer, words);
    this._fit();
  }

  /** What happens, as it is now; read out anew where it is something else. The reason changes in silence. */
  say(said: ISaid): void {
    setText(this._head, said.head);
    setText(this._why, said.why);
    [this._said, ...this._buttons].forEach(each => (each.hidden = false));
    this._inside.classList.remove('berth-settled');
  }

  /** What it warned of does not come: what was answered is left to be read. Whether anything is. */
  settle(): boolean {
    if (this._kept) {
      const focused = this._buttons.some(each => each === document.activeElement);
      [this._said, ...this._buttons].forEach(each => (each.hidden = true));
      this._inside.classList.add('berth-settled');
      if (focused) {
        this._close?.focus();
      }
    }
    return this._kept || this._running;
  }

  private async _run(action: string): Promise<void> {
    const asked = document.activeElement;
    this._running = true;
    this._buttons.forEach(each => (each.disabled = true));
    this.answer(this._acts.words.say('One moment …'));
    const outcome = await this._acts.run(action);
    this._running = false;
    this._kept ||= outcome.done && action !== 'save';
    this.answer(outcome.words);
    this._buttons.forEach(each => (each.disabled = false));
    if (asked instanceof HTMLElement && document.activeElement === document.body) {
      (outcome.done ? (this._close ?? asked) : asked).focus(); // a button that is disabled loses it
    }
  }

  /** JupyterLab's layout gives a widget the height that it says it needs, and no more. */
  private _fit(): void {
    const needed = `${Math.ceil(this._inside.offsetHeight)}px`;
    if (this.node.style.minHeight !== needed) {
      this.node.style.minHeight = needed;
      this.parent?.fit();
    }
  }

  private _buttons: HTMLButtonElement[];
  private _close: HTMLButtonElement | null;
  private _said: HTMLElement;
  private _head: HTMLElement;
  private _why: HTMLElement;
  private _inside: HTMLElement;
  private _sizes: ResizeObserver;
  private _answer: HTMLElement;
  private _running = false;
  private _kept = false;
}

/** What happens, and why. */
interface ISaid {
  head: string;
  why: string;
}

interface IShown {
  banner: Banner;
  kind: string;
  notice: INotice | null;
}

export class Warnings {
  /** `place` puts a banner on top of the page. */
  constructor(
    private _acts: Acts,
    private _tabs: Tabs,
    private _before: Answered,
    private _place: (banner: Widget) => void
  ) {
    _tabs.answered = id => this._drop(id);
    _acts.news.changed.connect((_, event) => {
      if (event.event === 'notice') {
        this._notice(event.data);
      } else if (event.event === 'stopping') {
        this._stopping(event.data);
      } else if (event.event === 'saving' || event.event === 'saved') {
        this._saving(event.data, event.event === 'saved');
      } else if (event.event === 'state') {
        this._tidy(event.data);
      }
    });
  }

  private _notice(notice: INotice): void {
    const id = `notice-${notice.id}`;
    if (this._seen.has(id) || this._before.has(id) || SAID_ELSEWHERE.includes(notice.kind) || this._gone(notice)) {
      return;
    }
    this._seen.add(id);
    const words = this._acts.words.told(notice.words, notice.words_in);
    const urgent = notice.kind.endsWith('-warning') || notice.kind.startsWith('credit-');
    this._toast(id, words, urgent);
    if (!urgent) {
      return;
    }
    const said = this._warning(notice);
    const older = [...this._banners].find(([, shown]) => shown.kind === notice.kind);
    if (older) {
      this._renew(older, id, notice, said);
      return;
    }
    const close = button(this._say('Dismiss'), () => this._dismissed(notice.kind));
    this._show(id, notice.kind, said, notice.actions, close, notice);
  }

  /** The last call takes the place of the first warning: what somebody does there goes on. */
  private _renew([other, shown]: [string, IShown], id: string, notice: INotice, said: ISaid): void {
    this._banners.delete(other);
    this._drop(other);
    this._banners.set(id, { ...shown, notice });
    shown.banner.id = `berth-banner-${id}`;
    shown.banner.say(said);
  }

  /** What happens, in the reader's own time, and why. */
  private _warning(notice: INotice): ISaid {
    const head = HEADS[notice.kind];
    if (head === undefined || notice.expires_at === null) {
      return { head: this._acts.words.told(notice.words, notice.words_in), why: '' };
    }
    const time = this._acts.words.time(notice.expires_at, this._acts.news.now());
    return { head: this._say(head, { time }), why: this._why(notice) };
  }

  /** The verdict that a warning came from, as it is now; the notice's own words where that is not known. */
  private _why(notice: INotice): string {
    const { news, words } = this._acts;
    const verdict = news.state?.verdict;
    const known = verdict && verdict.kind !== 'keep' && notice.kind.endsWith('-warning');
    return known ? words.told(verdict.words, verdict.words_in) : words.told(notice.words, notice.words_in);
  }

  /** In JupyterLab's list of notifications; what has a banner does not pop up beside it. */
  private _toast(id: string, words: string, urgent: boolean): void {
    if (this._tabs.leads) {
      const toast = Notification.emit(cut(words), urgent ? 'warning' : 'info', { autoClose: urgent ? 0 : 10000 });
      this._toasts.set(id, toast);
    }
  }

  private _stopping(stopping: IStopping): void {
    if (this._banners.has(STOPPING)) {
      return;
    }
    const words = this._say('This server is being stopped. What can be saved is being saved now.');
    const detail = this._acts.words.told(stopping.detail, stopping.detail_in);
    const actions = TAKEN_BACK.includes(stopping.reason ?? '') ? ['keep-1h'] : [];
    for (const id of this._banners.keys()) {
      this._drop(id); // it is about to happen
    }
    this._show(STOPPING, STOPPING, { head: words, why: detail }, actions, null, null);
  }

  private _saving(report: IReport, over: boolean): void {
    if (!this._banners.has(STOPPING)) {
      return;
    }
    const banner = this._banners.get(STOPPING)!.banner;
    const counts = { saved: report.saved.length, lost: report.lost.length };
    banner.answer(
      over
        ? this._say('Saved: {saved}. Not saved: {lost}. The next start offers to bring it back.', counts)
        : this._say('Saving … so far saved: {saved}, not saved: {lost}.', counts)
    );
  }

  /** Banners whose time is over, or whose cause is gone. */
  private _tidy(state: IState): void {
    for (const [id, { banner, notice }] of this._banners) {
      const gone = notice === null ? state.target === 'RUN' : this._gone(notice);
      if (gone && !banner.settle()) {
        this._drop(id);
      } else if (!gone && notice !== null) {
        banner.say(this._warning(notice));
      }
    }
  }

  private _gone(notice: INotice): boolean {
    const { news } = this._acts;
    const over = notice.expires_at !== null && Date.parse(notice.expires_at) <= news.now().getTime();
    return over || withdrawn(notice, news.state?.verdict);
  }

  private _show(
    id: string,
    kind: string,
    said: ISaid,
    actions: string[],
    close: HTMLButtonElement | null,
    notice: INotice | null
  ): void {
    const banner = new Banner(this._acts, kind, said, actions, close);
    banner.id = `berth-banner-${id}`;
    this._banners.set(id, { banner, kind, notice });
    this._place(banner);
  }

  private _dismissed(kind: string): void {
    for (const [id, shown] of this._banners) {
      if (shown.kind === kind) {
        this._before.add(id);
        this._tabs.answer(id);
        this._drop(id);
      }
    }
  }

  private _drop(id: string): void {
    this._seen.add(id);
    this._banners.get(id)?.banner.dispose();
    this._banners.delete(id);
    const toast = this._toasts.get(id);
    if (toast) {
      Notification.dismiss(toast);
      this._toasts.delete(id);
    }
  }

  private get _say() {
    return this._acts.words.say;
  }

  private _seen = new Set<string>();
  private _banners = new Map<string, IShown>();
  private _toasts = new Map<string, string>();
}

function cut(words: string): string {
  return words.length <= LONGEST_TOAST ? words : words.slice(0, LONGEST_TOAST - 1) + '…';
}
