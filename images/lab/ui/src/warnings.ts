// Warnings that can be acted upon: a toast in the tab that leads, and a banner in each that stays until it is answered.
import { Notification } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import { Acts, ACTIONS } from './acts';
import { button, element, setText } from './dom';
import { INotice, IReport, IStopping } from './model';
import { Tabs } from './stream';

const STOPPING = 'stopping';
/** JupyterLab cuts a toast's words here. */
const LONGEST_TOAST = 140;

class Banner extends Widget {
  constructor(kind: string, words: string, buttons: HTMLElement[], label: string) {
    super({ node: element('section', { 'aria-label': label }) });
    this._inside = element('div', { class: 'berth-banner', 'data-kind': kind });
    const said = element('p', { role: 'alert' }, words);
    this._answer = element('p', { class: 'berth-answer', role: 'status', 'aria-live': 'polite' });
    this._answer.hidden = true;
    this._inside.append(said, ...buttons, this._answer);
    this.node.append(this._inside);
    this._sizes = new ResizeObserver(() => this._fit());
    this._sizes.observe(this._inside);
  }

  dispose(): void {
    this._sizes.disconnect();
    super.dispose();
  }

  answer(words: string): void {
    this._answer.hidden = false;
    setText(this._answer, words);
  }

  /** JupyterLab's layout gives a widget the height that it says it needs, and no more. */
  private _fit(): void {
    const needed = `${Math.ceil(this._inside.offsetHeight)}px`;
    if (this.node.style.minHeight !== needed) {
      this.node.style.minHeight = needed;
      this.parent?.fit();
    }
  }

  private _inside: HTMLElement;
  private _sizes: ResizeObserver;
  private _answer: HTMLElement;
}

export class Warnings {
  /** `place` puts a banner on top of the page. */
  constructor(
    private _acts: Acts,
    private _tabs: Tabs,
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
        this._tidy(event.data.target);
      }
    });
  }

  private _notice(notice: INotice): void {
    const id = `notice-${notice.id}`;
    if (this._seen.has(id) || this._over(notice.expires_at)) {
      return;
    }
    this._seen.add(id);
    const urgent = notice.kind.endsWith('-warning') || notice.kind.startsWith('credit-');
    this._toast(id, notice, urgent);
    if (!urgent) {
      return;
    }
    for (const [other, shown] of this._banners) {
      if (shown.kind === notice.kind) {
        this._drop(other); // T-2 takes the place of T-10
      }
    }
    const made = notice.actions.filter(name => name in ACTIONS).map(name => button(this._say(ACTIONS[name]), () => void run(name)));
    const close = button(this._say('Dismiss'), () => this._answered(id));
    const banner = this._show(id, notice.kind, notice.words, [...made, close], notice.expires_at);
    const run = async (name: string) => {
      made.forEach(each => (each.disabled = true));
      banner.answer(this._say('One moment …'));
      banner.answer(await this._acts.run(name));
      made.forEach(each => (each.disabled = false));
      close.focus();
    };
  }

  private _toast(id: string, notice: INotice, urgent: boolean): void {
    if (!this._tabs.leads) {
      return;
    }
    const actions = notice.actions
      .filter(name => name in ACTIONS)
      .slice(0, 2)
      .map(name => ({
        label: this._say(ACTIONS[name]),
        callback: () => {
          void this._acts.run(name).then(words => {
            Notification.info(cut(words), { autoClose: 8000 });
            this._banners.get(id)?.banner.answer(words);
          });
        }
      }));
    const toast = Notification.emit(cut(notice.words), urgent ? 'warning' : 'info', { actions, autoClose: urgent ? false : 10000 });
    this._toasts.set(id, toast);
  }

  private _stopping(stopping: IStopping): void {
    const words = this._say('This server is being stopped. What can be saved is being saved now.');
    const shown = this._banners.get(STOPPING);
    if (shown) {
      return;
    }
    const detail = stopping.detail ? ` ${stopping.detail}` : '';
    this._show(STOPPING, STOPPING, words + detail, [], null);
    if (this._tabs.leads) {
      Notification.warning(cut(words), { autoClose: false });
    }
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
  private _tidy(target: string): void {
    for (const [id, shown] of this._banners) {
      const gone = id === STOPPING ? target === 'RUN' : this._over(shown.until);
      if (gone) {
        this._drop(id);
      }
    }
  }

  private _over(until: string | null): boolean {
    return until !== null && Date.parse(until) <= this._acts.news.now().getTime();
  }

  private _show(id: string, kind: string, words: string, buttons: HTMLElement[], until: string | null): Banner {
    const banner = new Banner(kind, words, buttons, this._say('Warning about this server'));
    banner.id = `berth-banner-${id}`;
    this._banners.set(id, { banner, kind, until });
    this._place(banner);
    return banner;
  }

  private _answered(id: string): void {
    this._tabs.answer(id);
    this._drop(id);
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
  private _banners = new Map<string, { banner: Banner; kind: string; until: string | null }>();
  private _toasts = new Map<string, string>();
}

function cut(words: string): string {
  return words.length <= LONGEST_TOAST ? words : words.slice(0, LONGEST_TOAST - 1) + '…';
}
