// Berth in JupyterLab: the meter, warnings, saving and restoring. Outside Berth the kit has no stream, and nothing shows.
import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';
import { PageConfig } from '@jupyterlab/coreutils';
import { Widget } from '@lumino/widgets';
import { Acts } from './acts';
import { Answered } from './answered';
import { Kit } from './kit';
import { chosen, speaker } from './language';
import { Meter } from './meter';
import { IEvent, News } from './model';
import { showPanel } from './panel';
import { Restore } from './restore';
import { Service } from './service';
import { Tabs } from './stream';
import { addStyle } from './style';
import { Warnings } from './warnings';
import { Words } from './words';

const OTHERS_SECONDS = 3;
const COMMAND = 'berth:panel';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'berth-lab:plugin',
  description: 'Meter, warnings and restore of a Berth server.',
  autoStart: true,
  requires: [IDocumentManager, ITranslator],
  optional: [ILabShell, IStatusBar],
  activate
};

function activate(
  app: JupyterFrontEnd,
  documents: IDocumentManager,
  translator: ITranslator,
  lab: ILabShell | null,
  bar: IStatusBar | null
): void {
  if (!PageConfig.getOption('hubPrefix')) {
    return; // not a server of a Hub
  }
  addStyle();
  const language = chosen(translator.languageCode, document.cookie, navigator.languages);
  const words = new Words(speaker(language), language);
  const settings = app.serviceManager.serverSettings;
  const news = new News();
  const acts = new Acts(news, words, new Service(words.say), new Kit(settings), documents);
  acts._widgets = () => app.shell.widgets('main');
  const restore = new Restore(acts, path => documents.openOrReveal(path));
  const tabs = new Tabs(settings, event => void hear(event));

  async function hear(event: IEvent): Promise<void> {
    if (event.event === 'save-please') {
      await savePlease(acts, tabs);
    } else if (event.event === 'resume') {
      await app.restored;
      await (tabs.leads ? restore.offer(event.data) : undefined);
    } else {
      news.hear(event);
    }
  }

  new Warnings(acts, tabs, new Answered(settings.baseUrl), banner => place(banner, lab));
  app.commands.addCommand(COMMAND, { label: words.say('Berth: this server'), execute: () => showPanel(acts) });
  const meter = new Meter(news, words, () => void app.commands.execute(COMMAND));
  bar?.registerStatusItem('berth-lab:meter', { item: meter, align: 'left', rank: 10, priority: 1 });
  tabs.start();
}

/** All tabs save; the one that leads answers once they have. */
async function savePlease(acts: Acts, tabs: Tabs): Promise<void> {
  await tabs.whileSaving(() => acts.saveDocuments());
  if (tabs.leads) {
    await tabs.othersSaved(OTHERS_SECONDS);
    await acts.kit.docsSaved().catch(() => undefined);
  }
}

function place(banner: Widget, lab: ILabShell | null): void {
  if (lab) {
    lab.add(banner, 'header');
  } else {
    Widget.attach(banner, document.body, document.body.firstElementChild as HTMLElement);
  }
}

export default plugin;
