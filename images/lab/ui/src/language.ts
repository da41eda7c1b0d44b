// Words in the reader's language: English is in the code, Chinese in zh.ts. A sentence that zh.ts lacks does not compile.
import { ZH } from './zh';

export type Key = keyof typeof ZH;
export type Values = Record<string, string | number>;
export type Language = 'en' | 'zh-CN';
export type Say = (key: Key, values?: Values) => string;

/** The site's own choice, as its pages keep it. */
const COOKIE = 'berth-language';

/** JupyterLab's language where it was changed from English; else the site's; else English. */
export function chosen(jupyterLab: string, cookies: string): Language {
  if (jupyterLab.toLowerCase().startsWith('zh')) {
    return 'zh-CN';
  }
  const found = cookies.split(';').map(each => each.trim().split('='));
  const site = found.find(each => each[0] === COOKIE)?.[1];
  return site === 'zh-CN' && jupyterLab.toLowerCase().startsWith('en') ? 'zh-CN' : 'en';
}

export function speaker(language: Language): Say {
  return (key, values = {}) => {
    const words: string = language === 'zh-CN' ? ZH[key] : key;
    return words.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  };
}
