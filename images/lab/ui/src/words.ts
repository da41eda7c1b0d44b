// Numbers and times as a person reads them. Unknown is a word, never 0.
import { Language, Say } from './language';
import { firstEnd, InOther, IState } from './model';

export class Words {
  constructor(
    readonly say: Say,
    readonly language: Language
  ) {}

  /** Words of the service, in the reader's language where it said them in that. */
  told(words: string | null, others?: InOther): string {
    return others?.[this.language] || words || '';
  }

  share(state: IState): string {
    if (state.share_milli <= 0 || state.count <= 0) {
      return this.say('no GPU');
    }
    const parts = 1000 / state.share_milli;
    const one = Number.isInteger(parts) ? (parts === 1 ? '1' : `1/${parts}`) : `${state.share_milli / 10} %`;
    const share = state.share_milli === 1000 ? String(state.count) : state.count === 1 ? one : `${state.count} × ${one}`;
    return state.simulated ? this.say('{share} GPU (simulated)', { share }) : this.say('{share} GPU', { share });
  }

  memory(state: IState): string {
    const total = state.gpu_memory_total_mib;
    if (state.gpu_memory_mib === null && state.simulated && total !== null) {
      return this.say('{total} GiB, simulated', { total: this.gib(total) });
    }
    if (state.gpu_memory_mib === null) {
      return total === null ? this.say('unknown') : this.say('unknown of {total} GiB', { total: this.gib(total) });
    }
    const used = this.gib(state.gpu_memory_mib);
    return total === null
      ? this.say('{used} GiB', { used })
      : this.say('{used} of {total} GiB', { used, total: this.gib(total) });
  }

  use(state: IState): string {
    return state.gpu_util === null ? this.say(state.simulated ? 'simulated' : 'unknown') : `${state.gpu_util} %`;
  }

  /** Millionths as credits with two decimals, or six for an exact charge. */
  credits(micro: number | null, digits = 2): string {
    if (micro === null) {
      return this.say('unknown');
    }
    const format = new Intl.NumberFormat(this.language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return format.format(micro / 1_000_000);
  }

  /** How long until then; nothing is less than nothing. */
  left(at: string, now: Date): string {
    return this.span((Date.parse(at) - now.getTime()) / 1000);
  }

  span(seconds: number): string {
    const whole = Math.max(0, Math.round(seconds));
    const minutes = Math.floor(whole / 60);
    if (minutes < 2) {
      return this.say('{count} s', { count: whole });
    }
    if (minutes < 60) {
      return this.say('{count} min', { count: minutes });
    }
    const hours = Math.floor(minutes / 60);
    if (hours < 48) {
      return this.say('{hours} h {minutes} min', { hours, minutes: minutes % 60 });
    }
    return this.say('{days} d {hours} h', { days: Math.floor(hours / 24), hours: hours % 24 });
  }

  /** A moment; with its day where that is not today. */
  time(at: string | Date, now: Date): string {
    const when = new Date(at);
    const today = when.toDateString() === now.toDateString();
    const day: Intl.DateTimeFormatOptions = today ? {} : { month: 'short', day: 'numeric' };
    return new Intl.DateTimeFormat(this.language, { ...day, hour: 'numeric', minute: '2-digit' }).format(when);
  }

  /** Why and when this ends though it is used; null where nothing ends it. */
  end(state: IState, now: Date): string | null {
    const end = firstEnd(state);
    if (end === null) {
      return null;
    }
    const left = this.left(end.at, now);
    if (end.why === 'credit') {
      return this.say('credits last {left}', { left });
    }
    return end.why === 'age' ? this.say('may run {left} more', { left }) : this.say('stops in {left}', { left });
  }

  private gib(mib: number): string {
    return new Intl.NumberFormat(this.language, { maximumFractionDigits: 1 }).format(mib / 1024);
  }
}
