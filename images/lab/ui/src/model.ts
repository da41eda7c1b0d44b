// What the kit says, and what is known of it here. Times are ISO 8601, money is in millionths of a credit.
import { Signal } from '@lumino/signaling';

/** The same words in other languages, by tag; what is not there is said in English. */
export type InOther = Record<string, string>;

export interface IVerdict {
  kind: string;
  rule: string;
  words: string;
  words_in?: InOther;
  deadline: string | null;
}

export interface IState {
  lease_id: string;
  profile: string;
  share_milli: number;
  count: number;
  simulated: boolean;
  gpu_util: number | null;
  gpu_memory_mib: number | null;
  gpu_memory_total_mib: number | null;
  rate_micro_per_hour: number | null;
  balance_micro: number | null;
  payer: string;
  credit_ends_at: string | null;
  charged_micro: number | null;
  started_at: string | null;
  max_age_ends_at: string | null;
  verdict: IVerdict | null;
  wish: { keep_until: string | null; shutdown_at: string | null; when_done: boolean };
  target: string;
  now: string;
  age: number | null;
}

export interface INotice {
  id: string | number;
  kind: string;
  words: string;
  words_in?: InOther;
  when: string;
  expires_at: string | null;
  link: string | null;
  actions: string[];
}

export interface IStopping {
  reason: string | null;
  detail: string | null;
  detail_in?: InOther;
  stop_after: string | null;
  save_until: string | null;
}

export interface IRow {
  kind: string;
  what?: string;
  path?: string;
  where?: string;
  why?: string;
  count?: number | null;
}

export interface IReport {
  state: string;
  reason: string;
  saved: IRow[];
  lost: IRow[];
  resume: string | null;
}

export interface IOffer {
  token: string;
  at: string | null;
  reason: string | null;
  kernels: number;
  variables: number;
  lost: IRow[];
  tabs: string[];
}

export interface IEvent {
  event: string;
  data: any;
}

/** A state comes every ten seconds at least; beyond this something between here and the service is broken. */
export const STALE_SECONDS = 40;

/** What is the case, as far as it was heard. */
export class News {
  state: IState | null = null;
  stopping: IStopping | null = null;
  report: IReport | null = null;
  readonly changed = new Signal<this, IEvent>(this);

  hear(event: IEvent): void {
    const data = event.data;
    if (event.event === 'state') {
      this.state = data;
      this._saidAt = performance.now() - (data.age ?? 0) * 1000;
      if (data.target === 'RUN') {
        this.stopping = null;
        this.report = null;
      }
    } else if (event.event === 'stopping') {
      this.stopping = data;
    } else if (event.event === 'saving' || event.event === 'saved') {
      this.report = data;
    }
    this.changed.emit(event);
  }

  /** The service's time now, for a browser's clock may be wrong. */
  now(): Date {
    if (this.state === null) {
      return new Date();
    }
    return new Date(Date.parse(this.state.now) + performance.now() - this._saidAt);
  }

  /** When it was last heard, where that is too long ago; null while news come. */
  staleSince(): Date | null {
    const silent = this.state !== null && performance.now() - this._saidAt > STALE_SECONDS * 1000;
    return silent ? new Date(Date.now() - (performance.now() - this._saidAt)) : null;
  }

  private _saidAt = 0;
}

/** Whether what a warning told of does not come any more: the server was used, or kept, or its end was set anew. A warning
 * of the idle rules has the deadline of their verdict, which is written first. */
export function withdrawn(notice: INotice, verdict: IVerdict | null | undefined): boolean {
  if (!verdict || !notice.kind.endsWith('-warning') || notice.expires_at === null) {
    return false;
  }
  const still = verdict.deadline !== null && Math.abs(Date.parse(verdict.deadline) - Date.parse(notice.expires_at)) < 1000;
  return verdict.kind === 'keep' || !still;
}

/** The end that comes first of all that are known, and which it is. */
export function firstEnd(state: IState): { at: string; why: 'credit' | 'age' | 'shutdown' } | null {
  const ends = [
    { at: state.credit_ends_at, why: 'credit' as const },
    { at: state.max_age_ends_at, why: 'age' as const },
    { at: state.wish.shutdown_at, why: 'shutdown' as const }
  ].filter((end): end is { at: string; why: 'credit' | 'age' | 'shutdown' } => end.at !== null);
  ends.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  return ends[0] ?? null;
}
