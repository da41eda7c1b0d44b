"""Kinds of things that people have in notebooks: a cell that makes one, and what must be true of it in the next kernel,
or why it is not there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """`cell` makes the variable `name`. In the next kernel `holds` is true, or the report has it lost by `code`."""

    name: str
    cell: str
    holds: str = ""
    code: str = ""
    needs: str = ""  # a module without which the case is skipped


def kept(name: str, cell: str, holds: str, needs: str = "") -> Case:
    return Case(name, cell, holds=holds, needs=needs)


def refused(name: str, code: str, cell: str, needs: str = "") -> Case:
    return Case(name, cell, code=code, needs=needs)


PLAIN = [
    kept("whole", "whole = 42", "whole == 42 and type(whole) is int"),
    kept("big", "big = -7 ** 400", "big == -7 ** 400"),
    kept("truth", "truth = (True, None, ..., NotImplemented)", "truth == (True, None, ..., NotImplemented)"),
    kept("nan", "nan = float('nan')", "nan != nan"),
    kept("zero", "zero = (-0.0, float('inf'), 1e-320)", "str(zero) == '(-0.0, inf, 1e-320)'"),
    kept("imaginary", "imaginary = 1 - 2j", "imaginary == 1 - 2j"),
    kept("text", "text = 'é 你好 \\ud800 \\0'", "text == 'é 你好 \\ud800 \\0'"),
    kept("raw", "raw = (bytes(range(256)), bytearray(b'ab'))", "raw == (bytes(range(256)), bytearray(b'ab'))"),
    kept("long_raw", "long_raw = bytes(range(256)) * 4000", "long_raw == bytes(range(256)) * 4000"),
    kept("nested", "nested = [(1, {'a': {2, 3}}), frozenset('xy')]", "nested == [(1, {'a': {2, 3}}), frozenset('xy')]"),
    kept("ordered", "ordered = {n: str(n) for n in range(9, 0, -1)}", "list(ordered) == list(range(9, 0, -1))"),
    kept("stretch", "stretch = (range(3, 9, 2), slice(1, None))", "stretch == (range(3, 9, 2), slice(1, None))"),
    kept(
        "recursive", "recursive = [1]; recursive.append(recursive)", "recursive[1] is recursive and recursive[0] == 1"
    ),
    kept("loop", "loop = {}; loop['me'] = (loop, [loop])", "loop['me'][0] is loop and loop['me'][1][0] is loop"),
    kept("share_a", "share_a = [1, 2]", "share_a == [1, 2]"),
    kept("share_b", "share_b = {'same': share_a}", "share_b['same'] is share_a"),
    kept(
        "collected",
        "import collections\ncollected = [collections.deque([1, 2], 5), collections.Counter('aab'),\n"
        "collections.defaultdict(list, a=[1])]",
        "collected[0].maxlen == 5 and collected[1]['a'] == 2 and collected[2]['new'] == []",
    ),
    kept(
        "counted",
        "import array, decimal, fractions\n"
        "counted = [array.array('d', [1.5]), decimal.Decimal('0.10'), fractions.Fraction(1, 3)]",
        "str(counted) == \"[array('d', [1.5]), Decimal('0.10'), Fraction(1, 3)]\"",
    ),
    kept(
        "when",
        "import datetime, zoneinfo as z\nwhen = datetime.datetime(2026, 3, 29, 1, tzinfo=z.ZoneInfo('Europe/Vienna'))",
        "when.isoformat() == '2026-03-29T01:00:00+01:00'",
    ),
    kept(
        "named",
        "import pathlib, uuid, re\nnamed = [pathlib.Path('a/b'), uuid.UUID(int=5), re.compile('a+', re.I)]",
        "named[0].parent.name == 'a' and named[1].int == 5 and named[2].match('AA').group() == 'AA'",
    ),
    kept(
        "memory_files",
        "import io\nmemory_files = (io.StringIO('abc'), io.BytesIO(b'xyz')); memory_files[0].read(1)",
        "memory_files[0].read() == 'bc' and memory_files[1].getvalue() == b'xyz'",
    ),
    kept("seen", "seen = memoryview(bytearray(b'abc'))", "seen.tobytes() == b'abc' and not seen.readonly"),
    kept("maths", "import math as maths", "maths.pi == __import__('math').pi and maths.__name__ == 'math'"),
    kept("dotted", "import xml.dom.minidom\ndotted = xml", "dotted.dom.minidom.Document is not None"),
    kept("sine", "import math\nsine = math.sin", "sine is __import__('math').sin"),
    kept("raised", "raised = ValueError('no', 3)", "raised.args == ('no', 3) and type(raised) is ValueError"),
    kept("logger", "import logging\nlogger = logging.getLogger('mine')", "logger is logging.getLogger('mine')"),
]

CODE = [
    kept("scale", "scale = 3", "scale == 3"),
    kept(
        "multiply",
        "def multiply(x, by=2, *, plus=1):\n    'Doc.'\n    return x * by * scale + plus",
        "multiply(2) == 13 and multiply.__doc__ == 'Doc.' and multiply.__globals__ is globals()",
    ),
    kept("later", "def later(): return made_later", "later() == 'made later'"),
    kept("made_later", "made_later = 'made later'", "made_later == 'made later'"),
    kept("fib", "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)", "fib(10) == 55"),
    kept("square", "square = lambda x: x * x", "square(7) == 49"),
    kept(
        "up",
        "def counter():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n    return up, lambda: n\n"
        "up, shown = counter(); up(); up()",
        "up() is None and shown() == 3",
    ),
    kept("shown", "shown", "shown() >= 2"),
    kept(
        "inner",
        "def outer():\n    def inner(n): return 1 if n == 0 else n * inner(n - 1)\n    return inner\ninner = outer()",
        "inner(5) == 120",
    ),
    kept(
        "decorated",
        "import functools\ndef loud(f):\n    @functools.wraps(f)\n    def call(*a): return f(*a) + '!'\n"
        "    return call\n"
        "@loud\ndef decorated(x): return x",
        "decorated('a') == 'a!' and decorated.__name__ == 'decorated' and decorated.__wrapped__('b') == 'b'",
    ),
    kept(
        "remembered",
        "import functools\n@functools.lru_cache(maxsize=7)\ndef remembered(n):\n"
        "    return 1 if n < 2 else n * remembered(n - 1)",
        "remembered(6) == 720 and remembered.cache_parameters()['maxsize'] == 7 and remembered.__wrapped__",
    ),
    kept("partly", "import functools\npartly = functools.partial(multiply, 2, plus=0)", "partly() == 12"),
    kept("makes", "def makes():\n    yield from (1, 2)", "list(makes()) == [1, 2]"),
    kept("waits", "async def waits(): return 5", "__import__('asyncio').iscoroutinefunction(waits)"),
    kept(
        "Base",
        "import abc\nclass Base(abc.ABC):\n    made = 0\n    def __init__(self): self.x = 1\n"
        "    @abc.abstractmethod\n    def area(self): ...\n    @property\n    def twice(self): return 2 * self.area()\n"
        "    @classmethod\n    def of(cls): return cls()\n    @staticmethod\n    def one(): return 1",
        "Base.one() == 1 and Base.__abstractmethods__ == {'area'}",
    ),
    kept(
        "Child",
        "class Child(Base):\n    def __init__(self): super().__init__(); self.y = 2\n    def area(self): return 21",
        "issubclass(Child, Base) and Child.of().twice == 42 and Child.__mro__[1] is Base",
    ),
    kept("child", "child = Child()", "type(child) is Child and (child.x, child.y, child.twice) == (1, 2, 42)"),
    kept("bound", "bound = child.area", "bound() == 21 and bound.__self__ is child"),
    kept("Child_made", "Child.made = 8; Child_made = [Child]", "Child.made == 8 and Child_made[0] is Child"),
    kept(
        "Meta",
        "class Meta(type):\n    def __len__(cls): return 3\nclass Made(metaclass=Meta): pass",
        "len(Made) == 3 and type(Made) is Meta",
    ),
    kept(
        "slotted",
        "class Slotted:\n    __slots__ = ('a', 'b')\nslotted = Slotted(); slotted.a = 5",
        "slotted.a == 5 and not hasattr(slotted, 'b')",
    ),
    kept(
        "point",
        "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True, order=True)\nclass Point:\n    x: int\n"
        "    tags: list = dataclasses.field(default_factory=list)\npoint = Point(3, ['a'])",
        "point == Point(3, ['a']) and point < Point(4) and dataclasses.asdict(point) == {'x': 3, 'tags': ['a']}",
    ),
    kept(
        "shade",
        "import enum\nclass Colour(enum.Enum):\n    RED = 1\n    BLUE = 2\nclass Flags(enum.Flag):\n"
        "    A = enum.auto()\n    B = enum.auto()\nshade = (Colour.BLUE, Flags.A | Flags.B)",
        "shade[0] is Colour.BLUE and Colour(2) is shade[0] and shade[1] == Flags.A | Flags.B",
    ),
    kept(
        "pair",
        "import collections, typing\nPair = collections.namedtuple('Pair', 'a b')\nclass Typed(typing.NamedTuple):\n"
        "    n: int = 4\npair = (Pair(1, 2), Typed())",
        "pair[0].b == 2 and isinstance(pair[0], Pair) and pair[1].n == 4",
    ),
    kept(
        "Trouble",
        "class Trouble(Exception):\n    pass\ntrouble = Trouble('x')",
        "isinstance(trouble, Trouble) and trouble.args == ('x',)",
    ),
    kept(
        "tree",
        "class Node:\n    def __init__(self, up): self.up, self.down = up, []\n"
        "tree = Node(None); tree.down.append(Node(tree))",
        "tree.down[0].up is tree and type(tree) is Node",
    ),
    kept("generic", "import typing\ngeneric = (typing.Optional[int], list[str])", "generic[1] == list[str]"),
    kept(
        "own_pickle",
        "import threading\nclass Own:\n    def __init__(self): self.lock, self.n = threading.Lock(), 5\n"
        "    def __getstate__(self): return {'n': self.n}\n"
        "    def __setstate__(self, s): self.__init__(); self.n = s['n']\nown_pickle = Own()",
        "own_pickle.n == 5 and not own_pickle.lock.locked()",
    ),
]

LIBRARIES = [
    kept("vector", "import numpy as np\nvector = np.arange(5) / 3", "(vector == np.arange(5) / 3).all()", "numpy"),
    kept(
        "large",
        "large = np.arange(300_000, dtype='f4').reshape(3, -1)",
        "(large == np.arange(300_000, dtype='f4').reshape(3, -1)).all() and large.flags.writeable",
        "numpy",
    ),
    kept(
        "window",
        "window = large[1:, ::2]",
        "(large.__setitem__((1, 0), -5), window[0, 0])[1] == -5 and window.shape == (2, 50_000)",
        "numpy",
    ),
    kept(
        "odd_arrays",
        "odd_arrays = [np.array([(1, 'ab')], dtype=[('n', 'i2'), ('t', 'U3')]), np.array(['2026-01-01'], 'M8[D]'),\n"
        "np.array([{}, None]), np.array(3.5), np.asfortranarray(np.eye(3)), np.ma.masked_less([1, 5], 3), np.bool_(1)]",
        "odd_arrays[0]['t'][0] == 'ab' and str(odd_arrays[1][0]) == '2026-01-01' and odd_arrays[2][1] is None"
        " and odd_arrays[3] == 3.5 and odd_arrays[4].flags.f_contiguous and odd_arrays[5].mask[0]"
        " and odd_arrays[6] is np.True_",
        "numpy",
    ),
    kept("locked", "locked = np.zeros(20_000); locked.flags.writeable = False", "not locked.flags.writeable", "numpy"),
    kept(
        "dice",
        "dice = np.random.default_rng(3); thrown = (dice.random(2), np.random.default_rng(3).random(5))",
        "(dice.random(3) == thrown[1][2:]).all()",
        "numpy",
    ),
    kept(
        "frame",
        "import pandas as pd\nframe = pd.DataFrame({'a': np.arange(20_000) * 1.5, 'b': ['x', None] * 10_000,\n"
        "'c': pd.Categorical(['u', 'v'] * 10_000, ordered=True)}, index=pd.RangeIndex(20_000, name='i'))",
        "frame.a.sum() == 299985000.0 and frame.b.isna().sum() == 10_000 and frame.c.cat.ordered"
        " and frame.index.name == 'i' and frame.shape == (20_000, 3)",
        "pandas",
    ),
    kept(
        "series",
        "series = pd.Series([1, None], index=pd.to_datetime(['2026-01-01', '2026-02-01'], utc=True), dtype='Int64')",
        "series.iloc[1] is pd.NA and str(series.index.tz) == 'UTC' and series.iloc[0] == 1",
        "pandas",
    ),
    kept(
        "kinds", "kinds = pd.Categorical(['b', 'a'])", "list(kinds) == ['b', 'a'] and len(kinds.codes) == 2", "pandas"
    ),
    kept(
        "model",
        "import sklearn.linear_model\nmodel = sklearn.linear_model.Ridge().fit(np.eye(3), [1., 2., 3.])\n"
        "guessed = model.predict(np.eye(3))",
        "(model.predict(np.eye(3)) == guessed).all() and model.n_features_in_ == 3",
        "sklearn",
    ),
]

REFUSED = [
    refused("generator", "generator", "generator = (n for n in range(9)); next(generator)"),
    refused("holds_one", "generator", "holds_one = {'deep': [makes()]}"),
    refused("async_generator", "generator", "async def steps():\n    yield 1\nasync_generator = steps()"),
    refused("coroutine", "coroutine", "coroutine = waits()"),
    refused("task", "coroutine", "import asyncio\ntask = asyncio.get_running_loop().create_task(asyncio.sleep(900))"),
    refused("event_loop", "coroutine", "event_loop = asyncio.new_event_loop()"),
    refused("opened", "file", "opened = open('data.txt', 'w+')"),
    refused("temporary", "file", "import tempfile\ntemporary = tempfile.NamedTemporaryFile()"),
    refused("thread", "thread", "import threading\nthread = threading.Thread(target=print)"),
    refused("lock", "lock", "lock = threading.Lock()"),
    refused("rlock", "lock", "rlock = threading.RLock()"),
    refused("event", "lock", "event = threading.Event()"),
    refused(
        "with_lock", "lock", "class WithLock:\n    pass\nwith_lock = WithLock(); with_lock.guard = threading.Lock()"
    ),
    refused("line", "queue", "import queue\nline = queue.Queue()"),
    refused("network", "socket", "import socket\nnetwork = socket.socket()"),
    refused("database", "database", "import sqlite3\ndatabase = sqlite3.connect(':memory:')"),
    refused("cursor", "database", "cursor = database.cursor()"),
    refused("program", "process", "import subprocess\nprogram = subprocess.Popen(['true']); program.wait()"),
    refused("pool", "process", "import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor(1)"),
    refused("weak", "weakref", "import weakref\nweak = weakref.ref(child)"),
    refused("weak_values", "weakref", "weak_values = weakref.WeakValueDictionary()"),
    refused("mapped", "memory-map", "import mmap\nmapped = mmap.mmap(-1, 4096)"),
    refused("trace", "frame", "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    trace = e.__traceback__"),
    refused("deep", "recursion", "deep = []\nfor _ in range(100_000): deep = [deep]"),
    refused(
        "defiant",
        "unpicklable",
        "class Defiant:\n    def __reduce__(self): raise ValueError('never')\ndefiant = Defiant()",
    ),
    refused("quits", "unpicklable", "class Quits:\n    def __reduce__(self): raise SystemExit\nquits = Quits()"),
    refused(
        "odd_class",
        "unpicklable",
        "class Odd(type):\n    __hash__ = None\n    def __getattribute__(cls, name): raise RuntimeError(name)\n"
        "odd_class = type.__call__(Odd, 'O', (), {})\nodd_class = type.__call__(odd_class)",
    ),
]

CASES = PLAIN + CODE + LIBRARIES + REFUSED
