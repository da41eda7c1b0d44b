"""What cells print and show while nobody looks is in the notebook when somebody opens it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.notebook import NotebookServer, Service, Tab, listening, serving, text_of
from tests.harness.waiting import until, while_true


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with listening() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, service: Service) -> Iterator[NotebookServer]:
    with serving(tmp_path_factory.mktemp("kit") / "home", service) as made:
        yield made


#: Waits for a file, then prints: the test decides when.
WAITS = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.02)\n"


def test_i23_a_hundred_prints_without_a_browser_are_there_on_reopening(server: NotebookServer) -> None:
    go = server.home / "go23"
    code = WAITS.format(str(go)) + "for i in range(100): print('line', i)\nprint('end')\n6 * 7"
    server.save("i23.ipynb", code, "print('untouched')")
    kernel = server.session("i23.ipynb")
    with Tab(server, kernel) as tab:
        tab.until_seen(tab.run("c0", code), "status", '"busy"')
    go.touch()
    until(lambda: server.kernel_state(kernel) == "idle", 30)
    notebook = server.opened("i23.ipynb")
    assert text_of(notebook, "c0").splitlines() == [*(f"line {i}" for i in range(100)), "end"]
    cell, other = notebook["cells"]
    assert cell["execution_count"] == 1 and cell["outputs"][-1]["data"] == {"text/plain": "42"}
    assert other["outputs"] == [] and other["execution_count"] is None
    assert server.on_disk("i23.ipynb")["cells"][0]["execution_count"] == 1


def test_i23_the_file_has_them_soon_even_if_nobody_opens_it(server: NotebookServer) -> None:
    go = server.home / "go-soon"
    code = WAITS.format(str(go)) + "print('written')\n1 / 0"
    server.save("soon.ipynb", code)
    kernel = server.session("soon.ipynb")
    with Tab(server, kernel) as tab:
        tab.until_seen(tab.run("c0", code), "status", '"busy"')
    go.touch()
    until(lambda: text_of(server.on_disk("soon.ipynb"), "c0") == "written\n", 30)
    # The text may be in the file a round before the error is.
    until(lambda: server.on_disk("soon.ipynb")["cells"][0]["outputs"][-1].get("ename") == "ZeroDivisionError", 30)


def test_a_browser_that_is_there_saves_its_own(server: NotebookServer) -> None:
    server.save("open.ipynb", "print('mine')")
    kernel = server.session("open.ipynb")
    with Tab(server, kernel) as tab:
        tab.finish(tab.run("c0", "print('mine')"))
    while_true(lambda: text_of(server.on_disk("open.ipynb"), "c0") == "", 3, "the browser saw it, and saves or not")


def test_a_lid_that_is_closed_finds_its_file_as_it_was(server: NotebookServer) -> None:
    go = server.home / "go-lid"
    code = WAITS.format(str(go)) + "print('later')"
    server.save("lid.ipynb", code)
    kernel = server.session("lid.ipynb")
    tab = Tab(server, kernel)
    tab.until_seen(tab.run("c0", code), "status", '"busy"')
    tab.break_off()
    until(lambda: server.ask("GET", f"api/kernels/{kernel}").json()["connections"] == 0, 60, "the server notices")
    go.touch()
    until(lambda: server.kernel_state(kernel) == "idle", 30)
    while_true(lambda: text_of(server.on_disk("lid.ipynb"), "c0") == "", 3, "nothing changes behind a sleeping page")
    assert text_of(server.opened("lid.ipynb"), "c0") == "later\n", "who opens it anew has them"


def test_a_cell_that_was_rewritten_meanwhile_is_left_alone(server: NotebookServer) -> None:
    go = server.home / "go-edit"
    code = WAITS.format(str(go)) + "print('old')"
    server.save("edit.ipynb", code)
    kernel = server.session("edit.ipynb")
    with Tab(server, kernel) as tab:
        tab.until_seen(tab.run("c0", code), "status", '"busy"')
        server.save("edit.ipynb", "print('new source')")
    go.touch()
    until(lambda: server.kernel_state(kernel) == "idle", 30)
    assert server.opened("edit.ipynb")["cells"][0]["outputs"] == []


def test_display_ids_clear_output_and_a_progress_bar(server: NotebookServer) -> None:
    go = server.home / "go-rich"
    code = WAITS.format(str(go)) + (
        "from IPython.display import display, clear_output\n"
        "print('gone'); clear_output(wait=True)\n"
        "handle = display('first', display_id=True)\n"
        "for i in range(5): print(f'\\r{i * 25} %', end='')\n"
        "print()\nhandle.update('second')"
    )
    server.save("rich.ipynb", code)
    kernel = server.session("rich.ipynb")
    with Tab(server, kernel) as tab:
        tab.until_seen(tab.run("c0", code), "status", '"busy"')
    go.touch()
    until(lambda: server.kernel_state(kernel) == "idle", 30)
    shown, printed = server.opened("rich.ipynb")["cells"][0]["outputs"]
    assert shown["data"] == {"text/plain": "'second'"}
    assert printed["text"] in ("100 %\n", ["100 %\n"])
