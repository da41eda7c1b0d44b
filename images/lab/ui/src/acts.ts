// What a person can do about the end of the server, wherever it is offered: panel, banner and toast.
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { Kit } from './kit';
import { Key, Say } from './language';
import { News } from './model';
import { Refused, Service } from './service';
import { Words } from './words';

export const ACTIONS: Record<string, Key> = {
  'keep-1h': 'Keep for 1 hour',
  'keep-3h': 'Keep for 3 hours',
  save: 'Save now',
  stop: 'Stop now'
};

/** What came of it, in words, and whether it was done. */
export interface IOutcome {
  done: boolean;
  words: string;
}

export class Acts {
  constructor(
    readonly news: News,
    readonly words: Words,
    readonly service: Service,
    readonly kit: Kit,
    private _documents: IDocumentManager
  ) {}

  /** Do it. Never raises. */
  async run(action: string): Promise<IOutcome> {
    const lease = this.news.state?.lease_id ?? '';
    return this._told(async () => {
      if (action === 'keep-1h' || action === 'keep-3h') {
        return this._kept(await this.service.keep(lease, action === 'keep-1h' ? 1 : 3));
      }
      return action === 'stop' ? this._stopNow(lease) : this._saveNow();
    });
  }

  whenDone(wanted: boolean): Promise<IOutcome> {
    const lease = this.news.state?.lease_id ?? '';
    return this._told(async () => {
      await this.service.whenDone(lease, wanted);
      return wanted
        ? this._say('The server stops once no cell, terminal or program runs in it.')
        : this._say('The server no longer stops when its work is done.');
    });
  }

  shutdownAt(at: Date | null): Promise<IOutcome> {
    const lease = this.news.state?.lease_id ?? '';
    return this._told(async () => {
      await this.service.shutdownAt(lease, at);
      return at === null
        ? this._say('No time is set any more.')
        : this._say('The server stops at {time}.', { time: this.words.time(at, this.news.now()) });
    });
  }

  /** Save each open document that has changes. Documents that cannot be saved are left as they are. */
  async saveDocuments(): Promise<void> {
    const seen = new Set<unknown>();
    const saves: Promise<unknown>[] = [];
    for (const widget of this._widgets()) {
      const context = this._documents.contextForWidget(widget);
      if (context && !seen.has(context) && context.model.dirty && !context.model.readOnly) {
        seen.add(context);
        saves.push(context.save().catch(() => undefined));
      }
    }
    await Promise.all(saves);
  }

  /** Set by the extension: the widgets of the main area. */
  _widgets: () => Iterable<any> = () => [];

  private async _stopNow(lease: string): Promise<string> {
    const sure = await showDialog({
      title: this._say('Stop this server now?'),
      body: this._say('What can be saved is saved first. What runs is ended, and the charge ends with it.'),
      buttons: [
        Dialog.cancelButton({ label: this._say('Go on working') }),
        Dialog.warnButton({ label: this._say('Stop now') })
      ],
      defaultButton: 0
    });
    if (!sure.button.accept) {
      throw new Refused(this._say('Nothing was changed.'));
    }
    await this.service.stop(lease);
    return this._say('This server is being stopped. What can be saved is being saved now.');
  }

  private async _saveNow(): Promise<string> {
    const report = await this.kit.saveNow();
    return report.lost.length === 0
      ? this._say('Saved.')
      : this._say('Saved, but not all: {names}.', { names: report.lost.map(row => row.what ?? row.kind).join(', ') });
  }

  private _kept(answer: any): string {
    const held = this.words.credits(answer.held_micro_credits ?? null);
    return `${this._until(answer)} ${this._say('Held for this server: {held} credits.', { held })}`;
  }

  private _until(answer: any): string {
    const time = this.words.time(answer.keep_until, this.news.now());
    if (answer.bounded_by === 'max-age') {
      return this._say('Kept until {time}; it may run no longer than that.', { time });
    }
    if (answer.bounded_by === 'shutdown') {
      return this._say('Kept until {time}, when it is set to stop.', { time });
    }
    return this._say('Kept until {time}, used or not.', { time });
  }

  private async _told(act: () => Promise<string>): Promise<IOutcome> {
    try {
      return { done: true, words: await act() };
    } catch (error) {
      return { done: false, words: error instanceof Error ? error.message : String(error) };
    }
  }

  private get _say(): Say {
    return this.words.say;
  }
}
