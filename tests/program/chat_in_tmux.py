#!/usr/bin/env python3
"""Talks with `lora chat` as a person does, in terminals of tmux, and looks at what stands there.

    tests/program/chat_in_tmux.py build/quick/bin/lora

Without tmux it says so and exits 77, which ctest calls skipped. The server that it starts is its own and ends with it.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MODEL = pathlib.Path(__file__).resolve().parents[1] / "fixtures/chat"


class Terminal:
    """A terminal in which a command runs, `columns` wide."""

    def __init__(self, folder, command, columns=60, locale="C.UTF-8"):
        socket = tempfile.mktemp(prefix="tmux", dir=folder)  # each has a server of its own
        self.tmux = ["tmux", "-S", socket, "-f", "/dev/null"]
        script = f"trap : INT; cd {shlex.quote(str(folder))}; {shlex.join(map(str, command))} 2>messages; "
        script += "status=$?; stty > modes; echo; echo rc=$status; sleep 600"
        environment = {**os.environ, "LC_ALL": locale}
        self.run("new-session", "-d", "-x", str(columns), "-y", "30", "sh", "-c", script, env=environment)

    def run(self, *words, env=None):
        return subprocess.run(self.tmux + list(words), check=True, stdout=subprocess.PIPE, text=True, env=env).stdout

    def keys(self, *keys):
        self.run("send-keys", *keys)

    def type(self, text):
        self.run("send-keys", "-l", text)

    def screen(self):
        return self.run("capture-pane", "-p").rstrip()

    def wait(self, pattern):
        for _ in range(600):
            if re.search(pattern, self.screen(), re.MULTILINE):
                return self.screen()
            time.sleep(0.1)
        raise SystemExit(f"no {pattern!r} came; the screen:\n{self.screen()}")

    def close(self):
        self.run("kill-server")


def expect(holds, what, terminal):
    if not holds:
        raise SystemExit(f"{what}; the screen:\n{terminal.screen()}")


def talk(folder, program):
    """A conversation with editing, completion, history, commands and wide characters."""
    terminal = Terminal(folder, [program, "chat", "--model_name_or_path", MODEL, "--system", "Be kind.",
                                 "--dtype", "float32", "--threads", "1"])  # fmt: skip
    terminal.wait(r"^> *$")
    terminal.type("Ho")
    terminal.keys("BSpace")
    terminal.type("i")
    terminal.keys("Enter")
    screen = terminal.wait(r"Hello! \u4f60\u597d\n+> *$")
    expect("A greeting.\n\nHello" in screen, "no reasoning apart from the answer", terminal)
    expect("<think>" not in screen, "marks are shown", terminal)
    terminal.type("/sy")
    terminal.keys("Tab")
    terminal.wait("> /system *$")
    terminal.type("x")
    terminal.keys("C-u")
    terminal.type("/s")
    terminal.keys("Tab")
    terminal.wait("^/save /system")
    terminal.keys("C-u")
    terminal.type("/save talk.jsonl")
    terminal.keys("Enter")
    for _ in range(100):
        if (folder / "talk.jsonl").exists():
            break
        time.sleep(0.1)
    line = '{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"},' \
           '{"role":"assistant","content":"Hello! \u4f60\u597d","reasoning_content":"A greeting."}]}\n'  # fmt: skip
    expect((folder / "talk.jsonl").read_text() == line, "another conversation is saved", terminal)
    terminal.type("\u4f60\u597da")
    terminal.keys("BSpace", "BSpace")
    terminal.wait("> \u4f60$")
    terminal.keys("C-u", "Up", "Up")
    terminal.wait("> Hi$")
    terminal.keys("C-c")
    terminal.wait("> Hi\n> *$")
    terminal.keys("C-c")
    terminal.wait("^rc=130")
    said = (folder / "messages").read_text()
    expect("Ctrl-C again ends the program" in said and "saved as talk.jsonl: 3 messages" in said, said, terminal)
    terminal.close()


def stop(folder, program):
    """Ctrl-C ends an answer that has no end, and the conversation goes on."""
    model = folder / "endless"
    shutil.copytree(MODEL, model)
    weights = bytearray((model / "model.safetensors").read_bytes())
    size = int.from_bytes(weights[:8], "little")
    begin = 8 + size + json.loads(weights[8 : 8 + size])["model.embed_tokens.weight"]["data_offsets"][0]
    row = slice(begin + 257 * 64, begin + 258 * 64)
    weights[row] = bytes(64)  # of <|im_end|>, which is never the likeliest any more
    (model / "model.safetensors").write_bytes(weights)
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(config.replace('"max_position_embeddings": 512', '"max_position_embeddings": 1000000'))
    command = [program, "chat", "--model_name_or_path", model, "--dtype", "float32", "--threads", "1"]

    def stopped():
        terminal = Terminal(folder, command)
        terminal.wait(r"^> *$")
        terminal.type("Hi")
        terminal.keys("Enter")
        terminal.wait("!!!!")  # what it answers without end
        terminal.keys("C-c")
        terminal.wait(r"^> *$")
        return terminal

    terminal = stopped()
    expect("\nstopped\n" in (folder / "messages").read_text(), "the answer was not stopped", terminal)
    terminal.type("/exit")
    terminal.keys("Enter")
    terminal.wait("^rc=0")
    terminal.close()
    terminal = stopped()
    terminal.keys("C-c")  # the second one, with no line between
    terminal.wait("^rc=130")
    terminal.close()
    terminal = Terminal(folder, command)
    terminal.wait(r"^> *$")
    shell, terminal_path = terminal.run("display-message", "-p", "#{pane_pid} #{pane_tty}").split()
    process = int(pathlib.Path(f"/proc/{shell}/task/{shell}/children").read_text())
    os.kill(process, signal.SIGSTOP)  # as Ctrl-Z and fg, between which a shell has the terminal
    subprocess.run(["stty", "-F", terminal_path, "sane"], check=True)
    os.kill(process, signal.SIGCONT)
    for _ in range(100):
        modes = subprocess.run(["stty", "-a", "-F", terminal_path], check=True, stdout=subprocess.PIPE, text=True).stdout
        if "-icanon" in modes:
            break
        time.sleep(0.1)
    expect("-icanon" in modes, f"lines are no longer edited once it goes on: {modes}", terminal)
    os.kill(process, signal.SIGTERM)
    terminal.wait("^rc=143")
    modes = (folder / "modes").read_text()
    expect(modes and not re.search("-echo|-icanon", modes), f"the terminal is left as it was edited: {modes}", terminal)
    terminal.close()


def narrow(folder, program):
    """Ten columns, and a locale without UTF-8."""
    terminal = Terminal(folder, [program, "chat", "--model_name_or_path", MODEL, "--system", "Be kind.",
                                 "--dtype", "float32", "--threads", "1"], 10, "C")  # fmt: skip
    terminal.wait(r"^> *$")
    terminal.type("a long line that wraps \u4f60\u597d")
    terminal.keys("C-u")
    terminal.type("Hi")
    terminal.keys("Enter")
    terminal.wait("^A greeting")
    terminal.wait("^Hello! ")
    terminal.keys("C-d")
    terminal.wait("^rc=0")
    terminal.close()


def wrong(folder, program):
    """Lines that are no messages are told and forgotten, and those of several lines and of wide characters are whole."""
    terminal = Terminal(folder, [program, "chat", "--model_name_or_path", MODEL, "--system", "Be kind.",
                                 "--dtype", "float32", "--threads", "1", "--max_new_tokens", "2"])  # fmt: skip

    def said():
        return (folder / "messages").read_text()

    def enter(line, expected, times=1):
        """Types a line and waits until that stands in the messages, so often in all."""
        terminal.type(line)
        terminal.keys("Enter")
        for _ in range(600):
            if said().count(expected) >= times:
                break
            time.sleep(0.1)
        expect(said().count(expected) == times, f"{expected!r} is not told {times} times: {said()}", terminal)

    def saved(name):
        enter(f"/save {name}", f"saved as {name}: ")
        return [turn["content"] for turn in json.loads((folder / name).read_text())["messages"] if turn["role"] == "user"]

    terminal.wait(r"^> *$")
    begin = "/help lists commands; Ctrl-C stops an answer; a line that ends with \\ goes on\n"
    expect(said().endswith(begin), f"{said()!r} does not end with {begin!r}", terminal)
    enter("/sve", "Warning: unknown command /sve; /help lists them; a message that begins with / has a space before it\n")
    enter("/retry", "Warning: there is no answer to try again\n")
    cut = "the answer was cut: max_new_tokens is 2\n"
    # Of two, three and four bytes.
    enter("\u00e9\u4f60\U0001f600 a", cut)
    terminal.type("one \\")
    terminal.keys("Enter")
    terminal.wait(r"^\. *$")
    enter("two\\n", cut, 2)
    before = ["\u00e9\u4f60\U0001f600 a", "one \ntwo\\n"]
    expect(saved("one.jsonl") == before, (folder / "one.jsonl").read_text(), terminal)
    # What can't be answered is taken back.
    enter("x" * 600, "Warning: the message is too long: ")
    expect(saved("two.jsonl") == before, (folder / "two.jsonl").read_text(), terminal)
    # The longest line, and one of a character more, of which nothing is kept.
    for count, expected, times in ((65536, "Warning: the message is too long: ", 2),
                                   (65537, "Warning: the line has more than 65536 bytes; a message may have so many\n", 1)):
        (folder / "paste").write_text(count * "x")
        terminal.run("load-buffer", str(folder / "paste"))
        terminal.run("paste-buffer")
        enter("", expected, times)
    # A byte that begins no character, and one whose character does not go on.
    for times, byte in enumerate(("ff", "c3"), 1):
        terminal.type("a")
        terminal.keys("-H", byte)
        terminal.type("b")
        terminal.wait("^> a\ufffdb$")
        enter("", "Warning: the line has a byte that is no valid UTF-8\n", times)
    expect(saved("three.jsonl") == before, (folder / "three.jsonl").read_text(), terminal)
    # A line that came twice in a row is recalled once.
    terminal.keys("Up")
    terminal.wait(r"^> /save three.jsonl$")
    terminal.keys("C-u")
    enter("/nothing", "Warning: unknown command /nothing; ")
    enter("/nothing", "Warning: unknown command /nothing; ", 2)
    terminal.keys("Up", "Up")
    terminal.wait(r"^> /save three.jsonl$")
    terminal.keys("C-u")
    terminal.type("/nob")
    terminal.keys("Tab")  # completes nothing
    terminal.keys("C-u")
    # One Ctrl-C is forgotten once another line came.
    terminal.keys("C-c")
    for _ in range(100):
        if "Ctrl-C again ends the program, as /exit does\n" in said():
            break
        time.sleep(0.1)
    enter("/retry", cut, 3)
    terminal.keys("C-c")
    for _ in range(100):
        if said().count("Ctrl-C again ends the program, as /exit does\n") == 2:
            break
        time.sleep(0.1)
    expect(said().count("Ctrl-C again ends the program, as /exit does\n") == 2, said(), terminal)
    terminal.type("/exit")
    terminal.keys("Enter")
    terminal.wait("^rc=0")
    terminal.close()


def dumb(folder, program):
    """A terminal that can't dim gets marks around what was thought."""
    terminal = Terminal(folder, ["env", "TERM=dumb", program, "chat", "--model_name_or_path", MODEL,
                                 "--system", "Be kind.", "--dtype", "float32", "--threads", "1"])  # fmt: skip
    terminal.wait(r"^> *$")
    terminal.type("Hi")
    terminal.keys("Enter")
    terminal.wait("<think>\nA greeting.\n</think>\n\nHello! \u4f60\u597d")
    terminal.type("/exit")
    terminal.keys("Enter")
    terminal.wait("^rc=0")
    terminal.close()


def main():
    if shutil.which("tmux") is None:
        print("tmux is not there: install it (Debian: tmux) to have this checked")
        return 77
    program = pathlib.Path(sys.argv[1]).resolve()
    for part in (talk, stop, narrow, wrong, dumb):
        with tempfile.TemporaryDirectory() as folder:
            part(pathlib.Path(folder), program)
        print(part.__name__, "is as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
