"""A small MCP server over standard streams, for tests: JSON-RPC, one message a line, nothing but the standard library.

usage: stdio_server.py FOLDER [MODE]

FOLDER/tools.json holds its tools; when the file changes, the server says so. It writes its process id to FOLDER/pid and
its variables to FOLDER/env. Modes: plain; silent (never answers); garbage (answers with text, then nothing); latin (bytes
that are no UTF-8); loud (writes a lot to its error stream); short (ends right after its first listing); endless (a line
that never ends).
"""

import json
import os
import sys
import threading
import time

folder = sys.argv[1]
mode = sys.argv[2] if len(sys.argv) > 2 else "plain"
tools = os.path.join(folder, "tools.json")
lock = threading.Lock()


def write(data):
    with lock:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.buffer.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode("utf-8"))


def watch():
    seen = os.stat(tools).st_mtime_ns
    while True:
        time.sleep(0.02)
        try:
            now = os.stat(tools).st_mtime_ns
        except OSError:
            continue
        if now != seen:
            seen = now
            send({"method": "notifications/tools/list_changed"})


def answer(request):
    method = request.get("method")
    if "id" not in request:
        return
    if mode == "silent":
        return
    if mode == "garbage":
        write(b"Listening on port 8080 ...")
        return
    if mode == "latin":
        write(b'{"jsonrpc":"2.0","id":0,"result":{"x":"caf\xe9"}}')
        return
    if mode == "endless":
        while True:
            sys.stdout.buffer.write(b"0" * 65536)
            sys.stdout.buffer.flush()
    if method == "initialize":
        result = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "stdio", "version": "1"},
        }
    elif method == "tools/list":
        with open(tools, encoding="utf-8") as file:
            result = {"tools": json.load(file)}
    elif method == "ping":
        result = {}
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})
        return
    send({"id": request["id"], "result": result})
    if method == "tools/list" and mode == "short":
        os._exit(3)


for name, value in (("pid", str(os.getpid())), ("env", json.dumps(dict(os.environ)))):
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(value)
    os.replace(path + ".new", path)
if mode == "loud":
    for number in range(20000):
        sys.stderr.write("line %d of a long complaint\n" % number)
    sys.stderr.flush()
if mode == "plain":
    threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin.buffer:
    if line.strip():
        answer(json.loads(line))
