// What was saved when the server stopped, offered once it runs again.
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import { Acts } from './acts';
import { element, facts, table } from './dom';
import { IOffer, IRow } from './model';
import { reason } from './reasons';

/** The kit's reason of what was saved by "Save now", when nothing was stopped. */
const ASKED = 'asked';

export class Restore {
  /** `open` opens a document by its path. */
  constructor(
    private _acts: Acts,
    private _open: (path: string) => void
  ) {}

  /** Ask once for each offer; "not now" is for as long as this page is open. */
  async offer(offer: IOffer): Promise<void> {
    if (this._asked.has(offer.token)) {
      return;
    }
    this._asked.add(offer.token);
    const buttons = [
      Dialog.cancelButton({ label: this._say('Never for this one'), actions: ['never'] }),
      Dialog.cancelButton({ label: this._say('Not now') }),
      Dialog.okButton({ label: this._say('Restore'), actions: ['restore'] })
    ];
    const title = this._say('Bring back where you were?');
    const answer = await showDialog({ title, body: this._what(offer), buttons, hasClose: true });
    if (answer.button.actions.includes('restore')) {
      await this._restore(offer);
    } else if (answer.button.actions.includes('never')) {
      await this._acts.kit.dismiss(offer.token).catch(error => Notification.error(String(error.message ?? error)));
    }
  }

  private _what(offer: IOffer): Widget {
    const body = element('div');
    const at = offer.at;
    const time = at ? this._acts.words.time(at, new Date()) : '';
    const said =
      offer.reason === ASKED && at
        ? this._say('You had this saved at {time}, before the server ended:', { time })
        : at
          ? this._say('The server was stopped at {time}. This was saved:', { time })
          : this._say('The server was stopped. This was saved:');
    body.append(
      element('p', {}, said),
      facts([
        [this._say('Kernels'), String(offer.kernels)],
        [this._say('Variables'), String(offer.variables)],
        [this._say('Open documents'), offer.tabs.length ? offer.tabs.join(', ') : this._say('none')]
      ])
    );
    if (offer.lost.length) {
      body.append(element('h3', {}, this._say('What does not come back, and why')), this._lost(offer.lost));
    }
    return panel(body);
  }

  private async _restore(offer: IOffer): Promise<void> {
    const working = Notification.emit(this._say('Bringing back what was saved …'), 'in-progress', { autoClose: false });
    try {
      const found = await this._acts.kit.restore(offer.token);
      offer.tabs.forEach(path => this._open(path));
      Notification.dismiss(working);
      const lost = found.lost ?? [];
      if (lost.length === 0) {
        Notification.success(this._say('All that was saved is back.'), { autoClose: 8000 });
        return;
      }
      const body = element('div', {}, this._lost(lost));
      const title = this._say('What was saved is back, but for this');
      await showDialog({ title, body: panel(body), buttons: [Dialog.okButton({ label: this._say('Close') })] });
    } catch (error) {
      Notification.dismiss(working);
      const why = error instanceof Error ? error.message : String(error);
      Notification.error(this._say('Nothing was brought back: {why}', { why }), { autoClose: false });
    }
  }

  private _lost(rows: IRow[]): HTMLElement {
    const columns = [this._say('What'), this._say('Where'), this._say('Why')];
    const why = (row: IRow) => (row.why ? reason(row.why, this._acts.words.language) : this._say('unknown'));
    const cells = rows.map(row => [row.what ?? row.kind, row.where ?? '', why(row)]);
    return table(this._say('What does not come back, and why'), columns, cells);
  }

  private get _say() {
    return this._acts.words.say;
  }

  private _asked = new Set<string>();
}

function panel(node: HTMLElement): Widget {
  const made = new Widget({ node });
  made.addClass('berth-panel');
  return made;
}
