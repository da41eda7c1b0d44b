// The meter in the status bar: what this server has, uses and costs, and when it ends.
import { Widget } from '@lumino/widgets';
import { element, setText } from './dom';
import { IState, News } from './model';
import { Words } from './words';

const PARTS = ['share', 'use', 'rate', 'charged', 'balance', 'end', 'idle', 'stale'] as const;
type Part = (typeof PARTS)[number];

export class Meter extends Widget {
  constructor(
    private _news: News,
    private _words: Words,
    open: () => void
  ) {
    super({ node: element('div') });
    this.addClass('berth-meter');
    this.id = 'berth-meter';
    this._button = element('button', { type: 'button', 'aria-haspopup': 'dialog' });
    this._parts = new Map(PARTS.map(name => [name, element('span', { 'data-berth': name })]));
    this._button.append(...this._parts.values());
    this._button.addEventListener('click', open);
    this.node.append(this._button);
    _news.changed.connect(this.refresh, this);
    this._timer = window.setInterval(() => this.refresh(), 1000);
    this.refresh();
  }

  dispose(): void {
    window.clearInterval(this._timer);
    super.dispose();
  }

  refresh(): void {
    const { say } = this._words;
    const state = this._news.state;
    const texts: Partial<Record<Part, string>> = state === null ? { stale: say('Berth: no news yet') } : this._texts(state);
    for (const [name, node] of this._parts) {
      const words = texts[name] ?? '';
      setText(node, words);
      node.hidden = words === '';
      node.classList.toggle('berth-urgent', name === 'idle' || (name === 'stale' && state !== null));
    }
    const title = say('Berth: what this server has, uses and costs');
    this._button.title = title;
  }

  private _texts(state: IState): Partial<Record<Part, string>> {
    const { say } = this._words;
    const now = this._news.now();
    const words = this._words;
    const gpu = state.share_milli > 0 && state.count > 0;
    const stale = this._news.staleSince();
    return {
      share: words.share(state),
      use: gpu ? say('memory {memory} · in use {use}', { memory: words.memory(state), use: words.use(state) }) : '',
      rate: say('{rate} credits/h', { rate: words.credits(state.rate_micro_per_hour) }),
      charged: say('{charged} charged', { charged: words.credits(state.charged_micro) }),
      balance: say('{balance} left', { balance: words.credits(state.balance_micro) }),
      end: words.end(state, now) ?? '',
      idle: this._idle(state, now),
      stale: stale === null ? '' : say('no news since {time}', { time: words.time(stale, new Date()) })
    };
  }

  private _idle(state: IState, now: Date): string {
    const { say } = this._words;
    if (this._news.stopping !== null) {
      return say('stopping');
    }
    const verdict = state.verdict;
    if (verdict === null || verdict.kind !== 'warn' || verdict.deadline === null) {
      return '';
    }
    const left = this._words.left(verdict.deadline, now);
    return ['shutdown', 'max-age'].includes(verdict.rule) ? say('stop in {left}', { left }) : say('idle stop in {left}', { left });
  }

  private _button: HTMLButtonElement;
  private _parts: Map<Part, HTMLElement>;
  private _timer: number;
}
