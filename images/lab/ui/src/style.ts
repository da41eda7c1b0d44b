// How it looks, in JupyterLab's own colours so that every theme fits. Put into the page from here: a loader for style sheets
// would bring somebody else's code into the bundle.
const CSS = `
.berth-meter {
  display: flex;
  align-items: center;
}
.berth-meter button {
  display: flex;
  align-items: center;
  gap: 10px;
  height: 100%;
  padding: 0 6px;
  border: 0;
  background: transparent;
  color: inherit;
  font: inherit;
  white-space: nowrap;
  cursor: pointer;
}
.berth-meter button:hover {
  background: var(--jp-layout-color2);
}
.berth-meter button:focus-visible,
.berth-banner :focus-visible,
.berth-panel :focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}
.berth-meter .berth-urgent {
  padding: 1px 6px;
  border-radius: 2px;
  line-height: 1.2;
  background: #8a5a00;
  color: #fff;
  font-weight: 600;
}
@media (max-width: 1150px) {
  .berth-meter [data-berth='charged'],
  .berth-meter [data-berth='rate'] {
    display: none;
  }
}
@media (max-width: 600px) {
  .berth-meter:has([data-berth='idle']:not([hidden])) [data-berth='end'] {
    display: none;
  }
}
@media (max-width: 900px) {
  .berth-meter [data-berth='use'],
  .berth-meter [data-berth='balance'] {
    display: none;
  }
}

.berth-banner {
  box-sizing: border-box;
  max-width: 100vw; /* JupyterLab is wider than a phone */
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 6px 10px;
  padding: 6px 12px;
  border-bottom: 1px solid var(--jp-border-color1);
  border-left: 4px solid #b26a00;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color0);
  font-size: var(--jp-ui-font-size1);
}
.berth-banner[data-kind='stopping'] {
  border-left-color: #c62828;
}
.berth-banner .berth-said {
  flex: 1 1 24em;
}
.berth-banner p {
  margin: 0;
  line-height: 1.35;
}
.berth-banner [role='alert'] {
  font-weight: 600;
}
.berth-banner [hidden] {
  display: none;
}
.berth-answer:empty {
  position: absolute; /* it takes no room, and a screen reader knows it before it speaks */
}
.berth-banner .berth-answer,
.berth-panel .berth-answer {
  flex: 1 0 100%;
  min-height: 0;
  margin: 0;
  color: var(--jp-ui-font-color0);
}
.berth-banner.berth-settled .berth-answer {
  flex: 1 1 24em;
  order: -1;
}
.berth-panel button.berth-button,
.berth-banner button.berth-button {
  width: auto;
  min-height: 28px;
  margin: 0;
  letter-spacing: normal;
  padding: 4px 10px;
  border: 1px solid var(--jp-ui-font-color2) !important; /* dialogs take it away from their buttons */
  border-radius: 3px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color0);
  font: inherit;
  cursor: pointer;
}
.berth-panel button.berth-button:hover,
.berth-banner button.berth-button:hover {
  background: var(--jp-layout-color2);
}
.berth-panel button.berth-button[disabled],
.berth-banner button.berth-button[disabled] {
  opacity: 0.6;
  cursor: default;
}

.berth-dialog .jp-Dialog-content {
  max-height: 92vh;
}
.berth-panel {
  max-width: 640px;
  color: var(--jp-ui-font-color0);
  font-size: var(--jp-ui-font-size1);
}
.berth-panel table {
  width: 100%;
  border-collapse: collapse;
}
.berth-panel th,
.berth-panel td {
  padding: 3px 12px 3px 0;
  border-bottom: 1px solid var(--jp-border-color2);
  text-align: left;
  vertical-align: top;
  overflow-wrap: anywhere;
}
.berth-panel tbody th {
  font-weight: 500;
  white-space: nowrap;
}
.berth-panel .berth-row {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 8px;
  margin: 10px 0 0;
}
.berth-panel h3 {
  margin: 14px 0 4px;
  font-size: var(--jp-ui-font-size1);
}
.berth-panel input[type='datetime-local'] {
  padding: 3px 6px;
  border: 1px solid var(--jp-ui-font-color2);
  border-radius: 3px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color0);
  color-scheme: light dark;
  font: inherit;
}
[data-jp-theme-light='true'] .berth-panel input {
  color-scheme: light;
}
[data-jp-theme-light='false'] .berth-panel input {
  color-scheme: dark;
}
.berth-panel a {
  color: var(--jp-content-link-color);
  text-decoration: underline;
}
.berth-hidden {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}
`;

export function addStyle(): void {
  const style = document.createElement('style');
  style.id = 'berth-style';
  style.textContent = CSS;
  document.head.append(style);
}
