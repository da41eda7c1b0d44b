"use strict";(self.rspackChunkberth_lab=self.rspackChunkberth_lab||[]).push([["lib_index_js"],{"./lib/index.js"(t,e,s){s.r(e),s.d(e,{default:()=>F});var i=s("webpack/sharing/consume/default/@jupyterlab/application"),a=s("webpack/sharing/consume/default/@jupyterlab/docmanager"),n=s("webpack/sharing/consume/default/@jupyterlab/statusbar"),r=s("webpack/sharing/consume/default/@jupyterlab/translation"),o=s("webpack/sharing/consume/default/@jupyterlab/coreutils"),h=s("webpack/sharing/consume/default/@lumino/widgets"),l=s("webpack/sharing/consume/default/@jupyterlab/apputils");class d extends Error{}class u{_say;constructor(t){this._say=t;let e=o.PageConfig.getOption("hubPrefix")||"/hub/";this._path=o.URLExt.join(e.replace(/hub\/?$/,""),"services/berth/"),this._host=o.PageConfig.getOption("hubHost")}page(t){return this._host+o.URLExt.join(this._path,t)}keep(t,e){return this._ask("PUT",t,"keep",{seconds:3600*e})}stop(t){return this._ask("POST",t,"stop",{})}whenDone(t,e){return this._ask(e?"PUT":"DELETE",t,"when-done",{})}shutdownAt(t,e){return null===e?this._ask("DELETE",t,"shutdown",{}):this._ask("PUT",t,"shutdown",{at:e.toISOString()})}async _ask(t,e,s,i){if(this._host&&this._host!==location.origin)throw new d(this._say("This site keeps servers apart from its pages: do this on the page of the session."));let a=`leases/${encodeURIComponent(e)}/${s}`,n=null===this._token;this._token??=await this._signIn(e);let r=await this._send(t,a,i);401!==r.status&&403!==r.status||n||(this._token=await this._signIn(e),r=await this._send(t,a,i));let o=await r.json().catch(()=>({}));if(r.ok)return o;throw(401===r.status||"xsrf"===o.reason)&&(this._token=null),new d(o.detail||this._say("The service did not answer. Nothing was changed; try again."))}async _send(t,e,s){try{return await fetch(o.URLExt.join(this._path,"api/v1",e),{method:t,credentials:"same-origin",headers:{"Content-Type":"application/json","X-XSRFToken":this._token??""},body:JSON.stringify(s)})}catch{throw new d(this._say("The service did not answer. Nothing was changed; try again."))}}async _signIn(t){let e=window.open(this.page(`lease/${encodeURIComponent(t)}`),"berth-sign-in","popup,width=520,height=600");if(null===e)throw new d(this._say("The browser blocked the small window for the log-in. Allow it, or use the page."));let s=performance.now()+12e4;for(;!e.closed&&performance.now()<s;){let t=this._tokenIn(e);if(null!==t)return e.close(),window.focus(),t;await new Promise(t=>setTimeout(t,100))}throw e.close(),new d(this._say("You are not logged in to the service. Nothing was changed."))}_tokenIn(t){try{if(!(t.location.pathname.startsWith(this._path)&&!t.location.pathname.includes("oauth"))||"loading"===t.document.readyState)return null;let e=/(?:^|;\s*)_xsrf=([^;]+)/.exec(t.document.cookie);return e?e[1]:null}catch{return null}}_path;_host;_token=null}let c={"keep-1h":"Keep for 1 hour","keep-3h":"Keep for 3 hours",save:"Save now",stop:"Stop now"};class _{news;words;service;kit;_documents;constructor(t,e,s,i,a){this.news=t,this.words=e,this.service=s,this.kit=i,this._documents=a}async run(t){let e=this.news.state?.lease_id??"";return this._told(async()=>"keep-1h"===t||"keep-3h"===t?this._kept(await this.service.keep(e,"keep-1h"===t?1:3)):"stop"===t?this._stopNow(e):this._saveNow())}whenDone(t){let e=this.news.state?.lease_id??"";return this._told(async()=>(await this.service.whenDone(e,t),t?this._say("The server stops once no cell, terminal or program runs in it."):this._say("The server no longer stops when its work is done.")))}shutdownAt(t){let e=this.news.state?.lease_id??"";return this._told(async()=>(await this.service.shutdownAt(e,t),null===t?this._say("No time is set any more."):this._say("The server stops at {time}.",{time:this.words.time(t,this.news.now())})))}async saveDocuments(){let t=new Set,e=[];for(let s of this._widgets()){let i=this._documents.contextForWidget(s);i&&!t.has(i)&&i.model.dirty&&!i.model.readOnly&&(t.add(i),e.push(i.save().catch(()=>void 0)))}await Promise.all(e)}_widgets=()=>[];async _stopNow(t){if(!(await (0,l.showDialog)({title:this._say("Stop this server now?"),body:this._say("What can be saved is saved first. What runs is ended, and the charge ends with it."),buttons:[l.Dialog.cancelButton({label:this._say("Go on working")}),l.Dialog.warnButton({label:this._say("Stop now")})],defaultButton:0})).button.accept)throw new d(this._say("Nothing was changed."));return await this.service.stop(t),this._say("This server is being stopped. What can be saved is being saved now.")}async _saveNow(){let t=await this.kit.saveNow();return 0===t.lost.length?this._say("Saved."):this._say("Saved, but not all: {names}.",{names:t.lost.map(t=>t.what??t.kind).join(", ")})}_kept(t){let e=this.words.credits(t.held_micro_credits??null);return`${this._until(t)} ${this._say("Held for this server: {held} credits.",{held:e})}`}_until(t){let e=this.words.time(t.keep_until,this.news.now());return"max-age"===t.bounded_by?this._say("Kept until {time}; it may run no longer than that.",{time:e}):"shutdown"===t.bounded_by?this._say("Kept until {time}, when it is set to stop.",{time:e}):this._say("Kept until {time}, used or not.",{time:e})}async _told(t){try{return{done:!0,words:await t()}}catch(t){return{done:!1,words:t instanceof Error?t.message:String(t)}}}get _say(){return this.words.say}}class p{constructor(t){this._key=`berth:answered:${t}`}has(t){return this._read().includes(t)}add(t){try{let e=[...this._read().filter(e=>e!==t),t];localStorage.setItem(this._key,JSON.stringify(e.slice(-50)))}catch{}}_read(){try{let t=JSON.parse(localStorage.getItem(this._key)??"[]");return Array.isArray(t)?t:[]}catch{return[]}}_key}var w=s("webpack/sharing/consume/default/@jupyterlab/services");class m{_settings;constructor(t){this._settings=t}docsSaved(){return this._post("saved-docs",{})}saveNow(){return this._post("save-now",{})}restore(t){return this._post("resume",{token:t,action:"restore"})}dismiss(t){return this._post("resume",{token:t,action:"dismiss"})}async _post(t,e){let s=o.URLExt.join(this._settings.baseUrl,"berth",t),i={method:"POST",body:JSON.stringify(e)},a=await w.ServerConnection.makeRequest(s,i,this._settings);if(!a.ok)throw await w.ServerConnection.ResponseError.create(a);return a.json()}}let b={"All that was saved is back.":"保存的内容已全部恢复。",Balance:"余额","Berth: no news yet":"Berth：暂无消息","Berth: this server":"Berth：此服务器","Berth: what this server has, uses and costs":"Berth：此服务器的配额、用量和费用","Bring back where you were?":"恢复到上次的状态？","Bringing back what was saved …":"正在恢复保存的内容……","Charged so far":"目前已扣费","Choose a day and a time first.":"请先选择日期和时间。",Close:"关闭","Credits last until":"积分可用至",Dismiss:"知道了","Do not stop when done":"取消“完成后停止”","GPU memory":"GPU 显存","GPU use":"GPU 利用率","Go on working":"继续工作","Held for this server: {held} credits.":"为此服务器预留 {held} 积分。","Idle rules":"闲置规则","Keep for 1 hour":"保留 1 小时","Keep for 3 hours":"保留 3 小时","Kept until":"保留至","Kept until {time}, used or not.":"无论是否使用，都保留至 {time}。","Kept until {time}, when it is set to stop.":"保留至 {time}，即设定的停止时间。","Kept until {time}; it may run no longer than that.":"保留至 {time}；最长只能运行到那时。",Kernels:"内核","May run until":"最长运行至","Never for this one":"不再询问这一次的内容",News:"消息","No time is set any more.":"已取消设定的停止时间。","Not now":"暂不恢复","Nothing was brought back: {why}":"未能恢复：{why}","Nothing was changed.":"未作任何更改。","Nothing was heard from the service yet.":"尚未收到服务的消息。","One moment …":"请稍候……","Open documents":"打开的文档",Price:"价格",Profile:"配置","Receipt of this session":"本次会话的账单",Restore:"恢复","Save now":"立即保存","Saved, but not all: {names}.":"已保存，但以下内容除外：{names}。","Saved.":"已保存。","Saved: {saved}. Not saved: {lost}. The next start offers to bring it back.":"已保存 {saved} 项，未保存 {lost} 项。下次启动时可以恢复。","Saving … so far saved: {saved}, not saved: {lost}.":"正在保存……已保存 {saved} 项，未保存 {lost} 项。",Set:"设定","Set no time":"取消时间","Set to stop at":"设定的停止时间",Share:"份额","Stop it at":"停止时间","Stop now":"立即停止","Stop this server now?":"现在停止此服务器？","Stop when what runs now is done":"当前任务完成后停止","The browser blocked the small window for the log-in. Allow it, or use the page.":"浏览器拦截了用于登录的小窗口。请允许弹出窗口，或在账单页面上操作。","The server no longer stops when its work is done.":"任务完成后，服务器不再自动停止。","The server stops at {time}.":"服务器将于 {time} 停止。","The server stops once no cell, terminal or program runs in it.":"当没有单元格、终端或程序运行时，服务器将停止。","The server was stopped at {time}. This was saved:":"服务器已于 {time} 停止。已保存以下内容：","The server was stopped. This was saved:":"服务器已停止。已保存以下内容：","The service did not answer. Nothing was changed; try again.":"服务没有应答。未作任何更改，请重试。","This server":"此服务器","This server is being stopped. What can be saved is being saved now.":"此服务器正在停止。正在保存可以保存的内容。","This server is stopped at {time} unless it is used or kept.":"此服务器将于 {time} 停止，除非继续使用或选择保留。","This server is stopped at {time}, as it was set.":"此服务器将按设定于 {time} 停止。","This server is stopped at {time}: it may run no longer.":"此服务器将于 {time} 停止：已达到最长运行时间。","This server is stopped at {time}: there is no credit left for it.":"此服务器将于 {time} 停止：积分已用完。","This site keeps servers apart from its pages: do this on the page of the session.":"本站点的服务器与页面使用不同的域名：请在会话页面上操作。",Variables:"变量","Warning about this server":"有关此服务器的提醒",What:"内容","What can be saved is saved first. What runs is ended, and the charge ends with it.":"会先保存可以保存的内容。正在运行的程序将被终止，计费也随之结束。","What does not come back, and why":"无法恢复的内容及原因","What was saved is back, but for this":"已恢复，但以下内容除外",Where:"位置",Why:"原因","You are not logged in to the service. Nothing was changed.":"您尚未登录该服务。未作任何更改。","credits last {left}":"积分还可用 {left}","idle stop in {left}":"{left}后因闲置停止","may run {left} more":"还可运行 {left}","memory {memory} \xb7 in use {use}":"显存 {memory} \xb7 利用率 {use}","no GPU":"无 GPU","no news since {time}":"自 {time} 起没有消息",none:"无","none since {time}; what follows is as of then":"自 {time} 起没有消息；以下为当时的数据","nothing said yet":"暂无结论","stop in {left}":"{left}后停止",simulated:"模拟",stopping:"正在停止","stops in {left}":"{left}后停止",unknown:"未知","unknown of {total} GiB":"未知 / {total} GiB","{balance} left":"余额 {balance}","{charged} charged":"已扣费 {charged}","{count} credits":"{count} 积分","{count} credits of {payer}":"{payer} 的 {count} 积分","{count} min":"{count} 分钟","{count} s":"{count} 秒","{days} d {hours} h":"{days} 天 {hours} 小时","{hours} h {minutes} min":"{hours} 小时 {minutes} 分钟","{rate} credits per hour":"每小时 {rate} 积分","{rate} credits/h":"{rate} 积分/小时","{share} GPU":"{share} GPU","{share} GPU (simulated)":"{share} GPU（模拟）","{time} ({left} left)":"{time}（剩余 {left}）","{total} GiB, simulated":"{total} GiB，模拟","{used} GiB":"{used} GiB","{used} of {total} GiB":"{used} / {total} GiB"};function g(t){let e=t.toLowerCase().split(/[-_]/)[0];return"zh"===e?"zh-CN":"en"===e?"en":null}function f(t,e={},...s){let i=document.createElement(t);for(let[t,s]of Object.entries(e))i.setAttribute(t,s);return i.append(...s),i}function y(t,e){let s=f("button",{type:"button",class:"berth-button"},t);return s.addEventListener("click",e),s}function v(t,e){t.textContent!==e&&(t.textContent=e)}function k(t){let e=f("tbody");for(let[s,i]of t)e.append(f("tr",{},f("th",{scope:"row"},s),f("td",{},i)));return f("table",{},e)}let x=["share","use","rate","charged","balance","end","idle","stale"];class S extends h.Widget{_news;_words;constructor(t,e,s){super({node:f("div")}),this._news=t,this._words=e,this.addClass("berth-meter"),this.id="berth-meter",this._button=f("button",{type:"button","aria-haspopup":"dialog"}),this._parts=new Map(x.map(t=>[t,f("span",{"data-berth":t})])),this._button.append(...this._parts.values()),this._button.addEventListener("click",s),this.node.append(this._button),t.changed.connect(this.refresh,this),this._timer=window.setInterval(()=>this.refresh(),1e3),this.refresh()}dispose(){window.clearInterval(this._timer),super.dispose()}refresh(){let{say:t}=this._words,e=this._news.state,s=null===e?{stale:t("Berth: no news yet")}:this._texts(e);for(let[t,i]of this._parts){let a=s[t]??"";v(i,a),i.hidden=""===a,i.classList.toggle("berth-urgent","idle"===t||"stale"===t&&null!==e)}let i=t("Berth: what this server has, uses and costs");this._button.title=i}_texts(t){let{say:e}=this._words,s=this._news.now(),i=this._words,a=t.share_milli>0&&t.count>0,n=this._news.staleSince();return{share:i.share(t),use:a?e("memory {memory} \xb7 in use {use}",{memory:i.memory(t),use:i.use(t)}):"",rate:e("{rate} credits/h",{rate:i.credits(t.rate_micro_per_hour)}),charged:e("{charged} charged",{charged:i.credits(t.charged_micro)}),balance:e("{balance} left",{balance:i.credits(t.balance_micro)}),end:i.end(t,s)??"",idle:this._idle(t,s),stale:null===n?"":e("no news since {time}",{time:i.time(n,new Date)})}}_idle(t,e){let{say:s}=this._words;if(null!==this._news.stopping)return s("stopping");let i=t.verdict;if(null===i||"warn"!==i.kind||null===i.deadline)return"";let a=this._words.left(i.deadline,e);return s(["shutdown","max-age"].includes(i.rule)?"stop in {left}":"idle stop in {left}",{left:a})}_button;_parts;_timer}var T=s("webpack/sharing/consume/default/@lumino/signaling");class N{state=null;stopping=null;report=null;changed=new T.Signal(this);hear(t){let e=t.data;"state"===t.event?(this.state=e,this._saidAt=performance.now()-(e.age??0)*1e3,"RUN"===e.target&&(this.stopping=null,this.report=null)):"stopping"===t.event?this.stopping=e:("saving"===t.event||"saved"===t.event)&&(this.report=e),this.changed.emit(t)}now(){return null===this.state?new Date:new Date(Date.parse(this.state.now)+performance.now()-this._saidAt)}staleSince(){return null!==this.state&&performance.now()-this._saidAt>4e4?new Date(Date.now()-(performance.now()-this._saidAt)):null}_saidAt=0}let D=["stop"];class C extends h.Widget{_acts;constructor(t,e){super({node:f("div")}),this._acts=t,this.addClass("berth-panel"),this._facts=f("div"),this._answer=f("p",{class:"berth-answer",role:"status","aria-live":"polite"}),this._done=y("",()=>void this._run(()=>t.whenDone(!t.news.state?.wish.when_done))),this._at=f("input",{type:"datetime-local",id:"berth-shutdown-at"}),this._noTime=y(this._say("Set no time"),()=>void this._run(()=>t.shutdownAt(null))),this._link=f("a",{target:"_blank",rel:"noopener"},this._say("Receipt of this session"));let s=Object.entries(c).map(([s,i])=>y(this._say(i),()=>D.includes(s)?e(s):void this._run(()=>t.run(s))));this._buttons=[...s,this._done];let i=f("label",{for:"berth-shutdown-at"},this._say("Stop it at")),a=y(this._say("Set"),()=>void this._set());this.node.append(this._facts,f("div",{class:"berth-row"},...s),f("div",{class:"berth-row"},i,this._at,a,this._noTime,this._done),f("div",{class:"berth-row"},this._link),this._answer),t.news.changed.connect(this._refresh,this),this._timer=window.setInterval(()=>this._refresh(),1e3),this._refresh()}dispose(){window.clearInterval(this._timer),this._acts.news.changed.disconnect(this._refresh,this),super.dispose()}_refresh(){let t=this._acts.news.state;if(null===t)return void v(this._facts,this._say("Nothing was heard from the service yet."));let e=this._rows(t),s=JSON.stringify(e);s!==this._shown&&(this._shown=s,this._facts.replaceChildren(k(e)));let i=t.wish.when_done?"Do not stop when done":"Stop when what runs now is done";v(this._done,this._say(i)),this._noTime.hidden=null===t.wish.shutdown_at,this._link.href=this._acts.service.page(`lease/${encodeURIComponent(t.lease_id)}`)}_rows(t){let{words:e,news:s}=this._acts,i=s.now(),a=[],n=s.staleSince();if(null!==n){let t=e.time(n,new Date);a.push([this._say("News"),this._say("none since {time}; what follows is as of then",{time:t})])}a.push([this._say("Profile"),t.profile],[this._say("Share"),e.share(t)]),t.share_milli>0&&t.count>0&&a.push([this._say("GPU memory"),e.memory(t)],[this._say("GPU use"),e.use(t)]);let r=e.credits(t.rate_micro_per_hour);a.push([this._say("Price"),this._say("{rate} credits per hour",{rate:r})]),a.push([this._say("Charged so far"),this._say("{count} credits",{count:e.credits(t.charged_micro,6)})]);let o=e.credits(t.balance_micro);for(let[s,n]of(a.push([this._say("Balance"),this._say("{count} credits of {payer}",{count:o,payer:t.payer})]),[[this._say("Credits last until"),t.credit_ends_at],[this._say("May run until"),t.max_age_ends_at],[this._say("Set to stop at"),t.wish.shutdown_at],[this._say("Kept until"),t.wish.keep_until]]))if(null!==n){let t={time:e.time(n,i),left:e.left(n,i)};a.push([s,this._say("{time} ({left} left)",t)])}return a.push([this._say("Idle rules"),this._verdict(t)]),a}_verdict(t){let{verdict:e}=t;return null===e?this._say("nothing said yet"):this._acts.words.told(e.words,e.words_in)}_set(){let t=new Date(this._at.value);return isNaN(t.getTime())?(v(this._answer,this._say("Choose a day and a time first.")),this._at.focus(),Promise.resolve()):this._run(()=>this._acts.shutdownAt(t))}async _run(t){let e=document.activeElement;this._buttons.forEach(t=>t.disabled=!0),v(this._answer,this._say("One moment …"));let s=await t();this._buttons.forEach(t=>t.disabled=!1),v(this._answer,s.words),e instanceof HTMLElement&&document.activeElement===document.body&&e.focus()}get _say(){return this._acts.words.say}_facts;_answer;_done;_noTime;_buttons;_at;_link;_timer;_shown=""}let j=!1;class E{_acts;_open;constructor(t,e){this._acts=t,this._open=e}async offer(t){if(this._asked.has(t.token))return;this._asked.add(t.token);let e=[l.Dialog.cancelButton({label:this._say("Never for this one"),actions:["never"]}),l.Dialog.cancelButton({label:this._say("Not now")}),l.Dialog.okButton({label:this._say("Restore"),actions:["restore"]})],s=this._say("Bring back where you were?"),i=await (0,l.showDialog)({title:s,body:this._what(t),buttons:e,hasClose:!0});i.button.actions.includes("restore")?await this._restore(t):i.button.actions.includes("never")&&await this._acts.kit.dismiss(t.token).catch(t=>l.Notification.error(String(t.message??t)))}_what(t){let e=f("div"),s=t.at,i=s?this._say("The server was stopped at {time}. This was saved:",{time:this._acts.words.time(s,new Date)}):this._say("The server was stopped. This was saved:");return e.append(f("p",{},i),k([[this._say("Kernels"),String(t.kernels)],[this._say("Variables"),String(t.variables)],[this._say("Open documents"),t.tabs.length?t.tabs.join(", "):this._say("none")]])),t.lost.length&&e.append(f("h3",{},this._say("What does not come back, and why")),this._lost(t.lost)),B(e)}async _restore(t){let e=l.Notification.emit(this._say("Bringing back what was saved …"),"in-progress",{autoClose:!1});try{let s=await this._acts.kit.restore(t.token);t.tabs.forEach(t=>this._open(t)),l.Notification.dismiss(e);let i=s.lost??[];if(0===i.length)return void l.Notification.success(this._say("All that was saved is back."),{autoClose:8e3});let a=f("div",{},this._lost(i)),n=this._say("What was saved is back, but for this");await (0,l.showDialog)({title:n,body:B(a),buttons:[l.Dialog.okButton({label:this._say("Close")})]})}catch(s){l.Notification.dismiss(e);let t=s instanceof Error?s.message:String(s);l.Notification.error(this._say("Nothing was brought back: {why}",{why:t}),{autoClose:!1})}}_lost(t){var e;let s,i,a=[this._say("What"),this._say("Where"),this._say("Why")],n=t.map(t=>[t.what??t.kind,t.where??"",t.why??this._say("unknown")]);return e=this._say("What does not come back, and why"),s=f("tr",{},...a.map(t=>f("th",{scope:"col"},t))),i=f("tbody",{},...n.map(t=>f("tr",{},...t.map(t=>f("td",{},t))))),f("table",{"aria-label":e},f("thead",{},s),i)}get _say(){return this._acts.words.say}_asked=new Set}function B(t){let e=new h.Widget({node:t});return e.addClass("berth-panel"),e}let P=["state","stopping","saving","saved","resume"];class U{feed(t){let e=(this._rest+t).replace(/\r\n/g,"\n").split("\n\n");return this._rest=e.pop()??"",e.map(W).filter(t=>null!==t)}_rest=""}function W(t){let e="message",s=[];for(let i of t.split("\n"))i.startsWith("event:")?e=i.slice(6).trim():i.startsWith("data:")&&s.push(i.slice(5).trimStart());try{let t=JSON.parse(s.join("\n"));return null!==t&&"object"==typeof t?{event:e,data:t}:null}catch{return null}}class G{_settings;_hear;leads=!1;answered=()=>void 0;constructor(t,e){this._settings=t,this._hear=e,this._name="berth:"+t.baseUrl,this._channel=new BroadcastChannel(this._name),this._channel.onmessage=t=>this._said(t.data)}start(){if(navigator.locks){navigator.locks.request(this._name,()=>this._lead(new AbortController().signal)),this._tell({kind:"hello"});return}let t=new AbortController,e=()=>{t.abort(),t=new AbortController,document.hidden||this._lead(t.signal)};document.addEventListener("visibilitychange",e),e()}answer(t){this._tell({kind:"answered",id:t})}async whileSaving(t){this._tell({kind:"saving",tab:this._tab}),await t(),this._tell({kind:"saved",tab:this._tab})}async othersSaved(t){let e=performance.now()+1e3*t;for(;this._saving.size>0&&performance.now()<e;)await new Promise(t=>setTimeout(t,50))}async _lead(t){this.leads=!0;let e=t=>{P.includes(t.event)?this._kept.set(t.event,t):"notice"===t.event&&this._kept.set(`notice ${t.data.kind}`,t),"state"===t.event&&"RUN"===t.data.target&&["stopping","saving","saved"].forEach(t=>this._kept.delete(t)),this._tell({kind:"event",event:t}),this._hear(t)};await async function(t,e,s){let i=0;for(;!s.aborted;){let a=await async function(t,e,s){let i=new AbortController,a=()=>i.abort();s.addEventListener("abort",a);let n=setTimeout(a,45e3),r="nothing";try{let s=o.URLExt.join(t.baseUrl,"berth/stream"),h={signal:i.signal,headers:{Accept:"text/event-stream"}},l=await w.ServerConnection.makeRequest(s,h,t);if(!l.ok||null===l.body)return"nothing";let d=new U,u=l.body.pipeThrough(new TextDecoderStream).getReader();for(;;){let{done:t,value:s}=await u.read();if(t)return r;for(let t of(clearTimeout(n),n=setTimeout(a,45e3),d.feed(s)))"gone"===t.event?r="gone":(r="gone"===r?r:"something",e(t))}}catch{return r}finally{clearTimeout(n),s.removeEventListener("abort",a),i.abort()}}(t,e,s);i="something"===a?0:i+1;let n="gone"===a?30:Math.min(30,2**i);await function(t,e){return new Promise(s=>{let i=setTimeout(s,1e3*t);e.addEventListener("abort",()=>{clearTimeout(i),s()})})}(n*(.5+Math.random()/2),s)}}(this._settings,e,t),this.leads=!1}_said(t){"event"===t.kind&&t.event&&!this.leads?this._hear(t.event):"hello"===t.kind&&this.leads?this._kept.forEach(t=>"resume"!==t.event&&this._tell({kind:"event",event:t})):"answered"===t.kind&&t.id?this.answered(t.id):"saving"===t.kind&&t.tab?this._saving.add(t.tab):"saved"===t.kind&&t.tab&&this._saving.delete(t.tab)}_tell(t){this._channel.postMessage(t)}_tab=Math.random().toString(36).slice(2);_name;_channel;_kept=new Map;_saving=new Set}let I=`
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
`,A="stopping",M=["idle-stop","stopped"],O={"idle-warning":"This server is stopped at {time} unless it is used or kept.","shutdown-warning":"This server is stopped at {time}, as it was set.","max-age-warning":"This server is stopped at {time}: it may run no longer.","credit-stop":"This server is stopped at {time}: there is no credit left for it."},R=["idle","shutdown"];class L extends h.Widget{_acts;constructor(t,e,s,i,a){super({node:f("section",{"aria-label":t.words.say("Warning about this server")})}),this._acts=t;let n=i.filter(t=>t in c);this._buttons=n.map(e=>y(t.words.say(c[e]),()=>void this._run(e))),this._close=a,this._head=f("p",{role:"alert"},s.head),this._why=f("p",{},s.why),this._said=f("div",{class:"berth-said"},this._head,this._why),this._answer=f("p",{class:"berth-answer",role:"status","aria-live":"polite"}),this._inside=f("div",{class:"berth-banner","data-kind":e}),this._inside.append(this._said,...this._buttons,...a?[a]:[],this._answer),this.node.append(this._inside),this._sizes=new ResizeObserver(()=>this._fit()),this._sizes.observe(this._inside)}dispose(){this._sizes.disconnect(),super.dispose()}answer(t){v(this._answer,t),this._fit()}say(t){v(this._head,t.head),v(this._why,t.why),[this._said,...this._buttons].forEach(t=>t.hidden=!1),this._inside.classList.remove("berth-settled")}settle(){if(this._kept){let t=this._buttons.some(t=>t===document.activeElement);[this._said,...this._buttons].forEach(t=>t.hidden=!0),this._inside.classList.add("berth-settled"),t&&this._close?.focus()}return this._kept||this._running}async _run(t){let e=document.activeElement;this._running=!0,this._buttons.forEach(t=>t.disabled=!0),this.answer(this._acts.words.say("One moment …"));let s=await this._acts.run(t);this._running=!1,this._kept||=s.done&&"save"!==t,this.answer(s.words),this._buttons.forEach(t=>t.disabled=!1),e instanceof HTMLElement&&document.activeElement===document.body&&(s.done?this._close??e:e).focus()}_fit(){let t=`${Math.ceil(this._inside.offsetHeight)}px`;this.node.style.minHeight!==t&&(this.node.style.minHeight=t,this.parent?.fit())}_buttons;_close;_said;_head;_why;_inside;_sizes;_answer;_running=!1;_kept=!1}class ${_acts;_tabs;_before;_place;constructor(t,e,s,i){this._acts=t,this._tabs=e,this._before=s,this._place=i,e.answered=t=>this._drop(t),t.news.changed.connect((t,e)=>{"notice"===e.event?this._notice(e.data):"stopping"===e.event?this._stopping(e.data):"saving"===e.event||"saved"===e.event?this._saving(e.data,"saved"===e.event):"state"===e.event&&this._tidy(e.data)})}_notice(t){let e=`notice-${t.id}`;if(this._seen.has(e)||this._before.has(e)||M.includes(t.kind)||this._gone(t))return;this._seen.add(e);let s=this._acts.words.told(t.words,t.words_in),i=t.kind.endsWith("-warning")||t.kind.startsWith("credit-");if(this._toast(e,s,i),!i)return;let a=this._warning(t),n=[...this._banners].find(([,e])=>e.kind===t.kind);if(n)return void this._renew(n,e,t,a);let r=y(this._say("Dismiss"),()=>this._dismissed(t.kind));this._show(e,t.kind,a,t.actions,r,t)}_renew([t,e],s,i,a){this._banners.delete(t),this._drop(t),this._banners.set(s,{...e,notice:i}),e.banner.id=`berth-banner-${s}`,e.banner.say(a)}_warning(t){let e=O[t.kind];if(void 0===e||null===t.expires_at)return{head:this._acts.words.told(t.words,t.words_in),why:""};let s=this._acts.words.time(t.expires_at,this._acts.news.now());return{head:this._say(e,{time:s}),why:this._why(t)}}_why(t){let{news:e,words:s}=this._acts,i=e.state?.verdict;return i&&"keep"!==i.kind&&t.kind.endsWith("-warning")?s.told(i.words,i.words_in):s.told(t.words,t.words_in)}_toast(t,e,s){if(this._tabs.leads){var i;let a=l.Notification.emit((i=e).length<=140?i:i.slice(0,139)+"…",s?"warning":"info",{autoClose:1e4*!s});this._toasts.set(t,a)}}_stopping(t){if(this._banners.has(A))return;let e=this._say("This server is being stopped. What can be saved is being saved now."),s=this._acts.words.told(t.detail,t.detail_in),i=R.includes(t.reason??"")?["keep-1h"]:[];for(let t of this._banners.keys())this._drop(t);this._show(A,A,{head:e,why:s},i,null,null)}_saving(t,e){if(!this._banners.has(A))return;let s=this._banners.get(A).banner,i={saved:t.saved.length,lost:t.lost.length};s.answer(e?this._say("Saved: {saved}. Not saved: {lost}. The next start offers to bring it back.",i):this._say("Saving … so far saved: {saved}, not saved: {lost}.",i))}_tidy(t){for(let[e,{banner:s,notice:i}]of this._banners){let a=null===i?"RUN"===t.target:this._gone(i);a&&!s.settle()?this._drop(e):a||null===i||s.say(this._warning(i))}}_gone(t){let{news:e}=this._acts;return null!==t.expires_at&&Date.parse(t.expires_at)<=e.now().getTime()||function(t,e){if(!e||!t.kind.endsWith("-warning")||null===t.expires_at)return!1;let s=null!==e.deadline&&1e3>Math.abs(Date.parse(e.deadline)-Date.parse(t.expires_at));return"keep"===e.kind||!s}(t,e.state?.verdict)}_show(t,e,s,i,a,n){let r=new L(this._acts,e,s,i,a);r.id=`berth-banner-${t}`,this._banners.set(t,{banner:r,kind:e,notice:n}),this._place(r)}_dismissed(t){for(let[e,s]of this._banners)s.kind===t&&(this._before.add(e),this._tabs.answer(e),this._drop(e))}_drop(t){this._seen.add(t),this._banners.get(t)?.banner.dispose(),this._banners.delete(t);let e=this._toasts.get(t);e&&(l.Notification.dismiss(e),this._toasts.delete(t))}get _say(){return this._acts.words.say}_seen=new Set;_banners=new Map;_toasts=new Map}class z{say;language;constructor(t,e){this.say=t,this.language=e}told(t,e){return e?.[this.language]||t||""}share(t){if(t.share_milli<=0||t.count<=0)return this.say("no GPU");let e=1e3/t.share_milli,s=Number.isInteger(e)?1===e?"1":`1/${e}`:`${t.share_milli/10} %`,i=1e3===t.share_milli?String(t.count):1===t.count?s:`${t.count} \xd7 ${s}`;return t.simulated?this.say("{share} GPU (simulated)",{share:i}):this.say("{share} GPU",{share:i})}memory(t){let e=t.gpu_memory_total_mib;if(null===t.gpu_memory_mib&&t.simulated&&null!==e)return this.say("{total} GiB, simulated",{total:this.gib(e)});if(null===t.gpu_memory_mib)return null===e?this.say("unknown"):this.say("unknown of {total} GiB",{total:this.gib(e)});let s=this.gib(t.gpu_memory_mib);return null===e?this.say("{used} GiB",{used:s}):this.say("{used} of {total} GiB",{used:s,total:this.gib(e)})}use(t){return null===t.gpu_util?this.say(t.simulated?"simulated":"unknown"):`${t.gpu_util} %`}credits(t,e=2){return null===t?this.say("unknown"):new Intl.NumberFormat(this.language,{minimumFractionDigits:e,maximumFractionDigits:e}).format(t/1e6)}left(t,e){return this.span((Date.parse(t)-e.getTime())/1e3)}span(t){let e=Math.max(0,Math.round(t)),s=Math.floor(e/60);if(s<2)return this.say("{count} s",{count:e});if(s<60)return this.say("{count} min",{count:s});let i=Math.floor(s/60);return i<48?this.say("{hours} h {minutes} min",{hours:i,minutes:s%60}):this.say("{days} d {hours} h",{days:Math.floor(i/24),hours:i%24})}time(t,e){let s=new Date(t),i=s.toDateString()===e.toDateString();return new Intl.DateTimeFormat(this.language,{...i?{}:{month:"short",day:"numeric"},hour:"numeric",minute:"2-digit"}).format(s)}end(t,e){let s,i=((s=[{at:t.credit_ends_at,why:"credit"},{at:t.max_age_ends_at,why:"age"},{at:t.wish.shutdown_at,why:"shutdown"}].filter(t=>null!==t.at)).sort((t,e)=>Date.parse(t.at)-Date.parse(e.at)),s[0]??null);if(null===i)return null;let a=this.left(i.at,e);return"credit"===i.why?this.say("credits last {left}",{left:a}):"age"===i.why?this.say("may run {left} more",{left:a}):this.say("stops in {left}",{left:a})}gib(t){return new Intl.NumberFormat(this.language,{maximumFractionDigits:1}).format(t/1024)}}let K="berth:panel",F={id:"berth-lab:plugin",description:"Meter, warnings and restore of a Berth server.",autoStart:!0,requires:[a.IDocumentManager,r.ITranslator],optional:[i.ILabShell,n.IStatusBar],activate:function(t,e,s,i,a){let n;if(!o.PageConfig.getOption("hubPrefix"))return;(n=document.createElement("style")).id="berth-style",n.textContent=I,document.head.append(n);let r=function(t,e,s){let i=g(t);if("en"!==i)return i??"en";let a=e.split(";").map(t=>t.trim().split("="));return g(a.find(t=>"berth-language"===t[0])?.[1]??"")??s.map(g).find(t=>null!==t)??"en"}(s.languageCode,document.cookie,navigator.languages),d=new z((t,e={})=>("zh-CN"===r?b[t]:t).replace(/\{(\w+)\}/g,(t,s)=>s in e?String(e[s]):t),r),c=t.serviceManager.serverSettings,w=new N,f=new _(w,d,new u(d.say),new m(c),e);f._widgets=()=>t.shell.widgets("main");let y=new E(f,t=>e.openOrReveal(t)),v=new G(c,e=>void async function(e){"save-please"===e.event?await async function(t,e){await e.whileSaving(()=>t.saveDocuments()),e.leads&&(await e.othersSaved(3),await t.kit.docsSaved().catch(()=>void 0))}(f,v):"resume"===e.event?(await t.restored,await (v.leads?y.offer(e.data):void 0)):w.hear(e)}(e));new $(f,v,new p(c.baseUrl),t=>{var e,s;e=t,void((s=i)?s.add(e,"header"):h.Widget.attach(e,document.body,document.body.firstElementChild))}),t.commands.addCommand(K,{label:d.say("Berth: this server"),execute:()=>(async function(t){if(j)return;j=!0;let{say:e}=t.words,s=null,i=new l.Dialog({title:e("This server"),body:new C(t,t=>{s=t,i.reject()}),buttons:[l.Dialog.okButton({label:e("Close")})],hasClose:!0});i.addClass("berth-dialog");try{await i.launch()}finally{j=!1}if(null!==s){let e=await t.run(s);l.Notification.emit(e.words,e.done?"info":"warning",{autoClose:8e3})}})(f)});let k=new S(w,d,()=>void t.commands.execute(K));a?.registerStatusItem("berth-lab:meter",{item:k,align:"left",rank:10,priority:1}),v.start()}}}}]);