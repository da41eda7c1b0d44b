// Wishes of the user, said to service berth as the user: with the log-in cookie and XSRF token of its pages, never with
// the server's own token. The token is in a cookie of the service's own path; only a page of the service is told it (the
// Hub sets it for what a person navigates to, by Sec-Fetch-Mode). So a small window of the service is opened once; the
// Hub's log-in goes by itself there, and where it does not, the person sees why.
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { Say } from './language';

const SIGN_IN_SECONDS = 120;
const LOOK_MS = 100;

export class Refused extends Error {}

export class Service {
  constructor(private _say: Say) {
    const hub = PageConfig.getOption('hubPrefix') || '/hub/';
    this._path = URLExt.join(hub.replace(/hub\/?$/, ''), 'services/berth/');
    this._host = PageConfig.getOption('hubHost');
  }

  /** The address of a page of the service. */
  page(path: string): string {
    return this._host + URLExt.join(this._path, path);
  }

  keep(lease: string, hours: number): Promise<any> {
    return this._ask('PUT', lease, 'keep', { seconds: hours * 3600 });
  }

  stop(lease: string): Promise<any> {
    return this._ask('POST', lease, 'stop', {});
  }

  whenDone(lease: string, wanted: boolean): Promise<any> {
    return this._ask(wanted ? 'PUT' : 'DELETE', lease, 'when-done', {});
  }

  shutdownAt(lease: string, at: Date | null): Promise<any> {
    return at === null
      ? this._ask('DELETE', lease, 'shutdown', {})
      : this._ask('PUT', lease, 'shutdown', { at: at.toISOString() });
  }

  /** Raises `Refused` with words for the person. */
  private async _ask(method: string, lease: string, deed: string, body: object): Promise<any> {
    if (this._host && this._host !== location.origin) {
      throw new Refused(this._say('This site keeps servers apart from its pages: do this on the page of the session.'));
    }
    const path = `leases/${encodeURIComponent(lease)}/${deed}`;
    const fresh = this._token === null;
    this._token ??= await this._signIn(lease);
    let response = await this._send(method, path, body);
    if ((response.status === 401 || response.status === 403) && !fresh) {
      this._token = await this._signIn(lease);
      response = await this._send(method, path, body);
    }
    const answer = await response.json().catch(() => ({}));
    if (response.ok) {
      return answer;
    }
    if (response.status === 401 || answer.reason === 'xsrf') {
      this._token = null;
    }
    throw new Refused(answer.detail || this._say('The service did not answer. Nothing was changed; try again.'));
  }

  private async _send(method: string, path: string, body: object): Promise<Response> {
    try {
      return await fetch(URLExt.join(this._path, 'api/v1', path), {
        method,
        credentials: 'same-origin',
        headers: { 'Content-Type': 'application/json', 'X-XSRFToken': this._token ?? '' },
        body: JSON.stringify(body)
      });
    } catch {
      throw new Refused(this._say('The service did not answer. Nothing was changed; try again.'));
    }
  }

  /** The XSRF token of the service's pages, out of a small window with the session's page: its forms have one. */
  private async _signIn(lease: string): Promise<string> {
    const opened = window.open(this.page(`lease/${encodeURIComponent(lease)}`), 'berth-sign-in', 'popup,width=520,height=600');
    if (opened === null) {
      throw new Refused(this._say('The browser blocked the small window for the log-in. Allow it, or use the page.'));
    }
    const until = performance.now() + SIGN_IN_SECONDS * 1000;
    while (!opened.closed && performance.now() < until) {
      const token = this._tokenIn(opened);
      if (token !== null) {
        opened.close();
        window.focus();
        return token;
      }
      await new Promise(resolve => setTimeout(resolve, LOOK_MS));
    }
    opened.close();
    throw new Refused(this._say('You are not logged in to the service. Nothing was changed.'));
  }

  private _tokenIn(opened: Window): string | null {
    try {
      const there = opened.location.pathname.startsWith(this._path) && !opened.location.pathname.includes('oauth');
      if (!there || opened.document.readyState === 'loading') {
        return null;
      }
      const found = /(?:^|;\s*)_xsrf=([^;]+)/.exec(opened.document.cookie);
      return found ? found[1] : null;
    } catch {
      return null; // it is at another site's log-in for now
    }
  }

  private _path: string;
  private _host: string;
  private _token: string | null = null;
}
