// Which warnings were answered, for all tabs of a person on one server and for as long as the browser keeps it: a page that
// is loaded anew does not warn again of what was read.
const MOST = 50;

export class Answered {
  constructor(baseUrl: string) {
    this._key = `berth:answered:${baseUrl}`;
  }

  has(id: string): boolean {
    return this._read().includes(id);
  }

  add(id: string): void {
    try {
      const all = [...this._read().filter(each => each !== id), id];
      localStorage.setItem(this._key, JSON.stringify(all.slice(-MOST)));
    } catch {
      // a browser that keeps nothing warns again
    }
  }

  private _read(): string[] {
    try {
      const found = JSON.parse(localStorage.getItem(this._key) ?? '[]');
      return Array.isArray(found) ? found : [];
    } catch {
      return [];
    }
  }

  private _key: string;
}
