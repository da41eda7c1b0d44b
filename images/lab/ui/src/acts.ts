// What a person can do about the end of the server, wherever it is offered: panel, banner and toast.
import { IDocumentManager } from '@jupyterlab/docmanager';
import { Kit } from './kit';
import { Key, Say } from './language';
import { News } from './model';
import { Service } from './service';
import { Words } from './words';

export const ACTIONS: Record<string, Key> = {
  'keep-1h': 'Keep for 1 hour',
  'keep-3h': 'Keep for 3 hours',
  save: 'Save now'
};

export class Acts {
  constructor(
    readonly news: News,
    readonly words: Words,
    readonly service: Service,
    readonly kit: Kit,
    private _documents: IDocumentManager
  ) {}

  /** Do it; what came of it, in words. Never raises. */
  async run(action: string): Promise<string> {
    const lease = this.news.state?.lease_id ?? '';
    return this._told(async () => {
      if (action === 'keep-1h' || action === 'keep-3h') {
        return this._kept(await this.service.keep(lease, action === 'keep-1h' ? 1 : 3));
      }
      return this._saveNow();
    });
  }

  whenDone(wanted: boolean): Promise<string> {
    const lease = this.news.state?.lease_id ?? '';
    return this._told(async () => {
      await this.service.whenDone(lease, wanted);
      return wanted
        ? this._say('The server stops once no cell, terminal or program runs in it.')
        : this._say('The server no longer stops when its work is done.');
    });
  }

  shutdownAt(at: Date | null): Promise<string> {
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

  private async _saveNow(): Promise<string> {
    const report = await this.kit.saveNow();
    return report.lost.length === 0
      ? this._say('Saved.')
      : this._say('Saved, but not all: {names}.', { names: report.lost.map(row => row.what ?? row.kind).join(', ') });
  }

  private _kept(answer: any): string {
    const time = this.words.time(answer.keep_until, this.news.now());
    if (answer.bounded_by === 'max-age') {
      return this._say('Kept until {time}; it may run no longer than that.', { time });
    }
    if (answer.bounded_by === 'shutdown') {
      return this._say('Kept until {time}, when it is set to stop.', { time });
    }
    return this._say('Kept until {time}, used or not.', { time });
  }

  private async _told(act: () => Promise<string>): Promise<string> {
    try {
      return await act();
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  private get _say(): Say {
    return this.words.say;
  }
}
