// Words in the reader's language: English is in the code, Chinese in zh.ts. A sentence that zh.ts lacks does not compile.
import { ZH } from './zh';

export type Key = keyof typeof ZH;
export type Values = Record<string, string | number>;
export type Language = 'en' | 'zh-CN';
export type Say = (key: Key, values?: Values) => string;

/** The site's own choice, as its pages keep it. */
const COOKIE = 'berth-language';

/** JupyterLab's language where it was changed from English; else what the site's pages have: what was chosen there, or
 * the first language of the browser that Berth has; else English. */
export function chosen(jupyterLab: string, cookies: string, browser: readonly string[]): Language {
  const lab = known(jupyterLab);
  if (lab !== 'en') {
    return lab ?? 'en';
  }
  const found = cookies.split(';').map(each => each.trim().split('='));
  const site = known(found.find(each => each[0] === COOKIE)?.[1] ?? '');
  return site ?? browser.map(known).find(each => each !== null) ?? 'en';
}

function known(tag: string): Language | null {
  const language = tag.toLowerCase().split(/[-_]/)[0];
  return language === 'zh' ? 'zh-CN' : language === 'en' ? 'en' : null;
}

export function speaker(language: Language): Say {
  return (key, values = {}) => {
    const words: string = language === 'zh-CN' ? ZH[key] : key;
    return words.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  };
}
