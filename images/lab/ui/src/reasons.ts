// Why something was not saved or does not come back: the kit says it in English, and this is the same in Chinese. What a
// program itself said, such as an error of its own, stays as it is.
import { Language } from './language';

const REASONS: Record<string, string> = {
  'A module that it needs is not installed here, or cannot be imported.':
    '它所需的模块在这里没有安装，或无法导入。',
  "It failed; the server's log says how.": '操作失败；详情见服务器的日志。',
  'It is larger than what may be saved.': '它超过了可保存的大小。',
  'It is nested too deeply.': '它的嵌套层次过深。',
  'It is or holds a connection to a database; connect again.': '它是或包含数据库连接；请重新连接。',
  'It is or holds a generator, whose place in its code cannot be kept.': '它是或包含生成器，其在代码中的执行位置无法保存。',
  'It is or holds a lock or another means of threads to wait for each other.': '它是或包含锁或其他线程同步对象。',
  'It is or holds a network connection; connect again.': '它是或包含网络连接；请重新连接。',
  'It is or holds a queue between threads or processes.': '它是或包含线程或进程之间的队列。',
  'It is or holds a running coroutine, task or event loop.': '它是或包含正在运行的协程、任务或事件循环。',
  'It is or holds a running process or a pool of workers.': '它是或包含正在运行的进程或工作进程池。',
  'It is or holds a running thread, which ends with the kernel.': '它是或包含一个正在运行的线程，线程会随内核结束。',
  'It is or holds a traceback or a frame of running code.': '它是或包含回溯信息或正在运行的代码的栈帧。',
  'It is or holds a weak reference.': '它是或包含弱引用。',
  'It is or holds a widget, which is bound to the page that shows it.': '它是或包含控件，控件与显示它的页面绑定。',
  'It is or holds an open file; open it again.': '它是或包含打开的文件；请重新打开。',
  'It is or holds memory that is mapped from a file or shared with other processes.': '它是或包含映射自文件或与其他进程共享的内存。',
  'It is or holds something of a GPU other than data, such as a stream.': '它是或包含 GPU 上数据以外的对象，例如流。',
  'It shares objects with a variable that could not be restored.': '它与一个无法恢复的变量共享对象。',
  'It was saved by another version of Python.': '它是由另一个版本的 Python 保存的。',
  'Its class does not allow it to be restored.': '它的类不允许恢复。',
  'Its class does not allow it to be saved.': '它的类不允许保存。',
  "Its kernel could not be started; the server's log says why.": '其内核无法启动；原因见服务器的日志。',
  'Its program could not write the checkpoint.': '程序未能写入检查点。',
  'Its program did not write a checkpoint in time; what it had written before is still there.':
    '程序没有及时写入检查点；它之前写入的内容仍然保留。',
  'Its program ended without saying that it had written a checkpoint.': '程序结束时没有说明已写入检查点。',
  'No variables were saved there, or the saving was cut off before its end.':
    '没有保存变量，或保存在完成之前中断了。',
  'Restoring was interrupted.': '恢复被中断。',
  'The kernel is busy; save again when it is idle.': '内核正在运行代码；请在其空闲时再次保存。',
  'The kernel was still busy when the time to save was over.': '保存时间结束时，内核仍在运行代码。',
  'The notebook file could not be written.': '无法写入笔记本文件。',
  'The notebook file is no longer there.': '笔记本文件已不存在。',
  'The notebook file is of a format that Berth does not write.': '笔记本文件的格式不是 Berth 能写入的格式。',
  'The notebook file was being written by something else.': '笔记本文件正在被其他程序写入。',
  'There is a variable of this name already, which was kept.':
    '已有同名变量，保留了现有的变量。',
  'There was no room left on the disk.': '磁盘空间不足。',
  'There was no time left to save it.': '已没有时间保存它。',
  'There was not enough memory to save it.': '内存不足，无法保存它。',
  "This kernel's environment does not have Berth's kit, so its variables could not be saved.":
    '此内核的环境中没有 Berth 的组件，因此无法保存其变量。',
  'Variables are saved of Python kernels alone.': '只有 Python 内核的变量会被保存。',
  'What runs in a terminal ends with the server.': '终端中运行的程序会随服务器一同结束。',
  'What was saved could have been written by somebody else, so it is not read.':
    '保存的内容可能由他人写入，因此不予读取。',
  'What was saved of it could have been written by somebody else, so it is not read.': '所保存的内容可能由他人写入，因此不予读取。',
  'What was saved of it is damaged.': '为它保存的内容已损坏。'
};
const MORE = /^And (\d+) more that are not listed\.$/;

export function reason(words: string, language: Language): string {
  return language === 'zh-CN' ? (REASONS[words] ?? words.replace(MORE, '另有 $1 项未列出。')) : words;
}
