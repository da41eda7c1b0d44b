// Deeds of the kit inside this server: to save, and to bring back what was saved.
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { IReport, IRow } from './model';

export interface IRestored {
  restored?: IRow[];
  lost?: IRow[];
  tabs?: string[];
}

export class Kit {
  constructor(private _settings: ServerConnection.ISettings) {}

  docsSaved(): Promise<unknown> {
    return this._post('saved-docs', {});
  }

  saveNow(): Promise<IReport> {
    return this._post('save-now', {});
  }

  restore(token: string): Promise<IRestored> {
    return this._post('resume', { token, action: 'restore' });
  }

  dismiss(token: string): Promise<unknown> {
    return this._post('resume', { token, action: 'dismiss' });
  }

  private async _post(name: string, body: object): Promise<any> {
    const url = URLExt.join(this._settings.baseUrl, 'berth', name);
    const init = { method: 'POST', body: JSON.stringify(body) };
    const response = await ServerConnection.makeRequest(url, init, this._settings);
    if (!response.ok) {
      throw await ServerConnection.ResponseError.create(response);
    }
    return response.json();
  }
}
