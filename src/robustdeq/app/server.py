"""The explorer's server: one page, and JSON for what it asks. It serves this machine unless told otherwise."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from typing_extensions import override

from robustdeq.app.calls import options_of
from robustdeq.app.case import Case, called
from robustdeq.app.catalogue import PHOTOS, Catalogue
from robustdeq.app.look import Deploy, Looked, look
from robustdeq.app.page import explorer_html, export, export_html, view_html, written
from robustdeq.app.pictures import opened, png, png_of

LIMIT = 20_000_000
"""Bytes of an upload."""
CASE_LIMIT = 2_000_000
"""Bytes of a case, which holds a small image at most."""
REMEMBERED = 16
PAGE = 10
"""Test images that are offered at a time."""
CHOICES = {
    "attack": [("none", "none"), ("pgd", "PGD"), ("apgd", "APGD")],
    "oracle": [
        ("ready", "ready-made"), ("unrolled", "state (i, K, lambda)"), ("carried", "implicit, carried along"),
        ("exact", "exact, through the solver"),
        ("watched", "watched states"), ("direct", "the model's own"),
    ],
    "oracle_view": [("oblivious", "the undefended model"), ("aware", "the defence"), ("bpda", "the defence, BPDA")],
    "defence": [("none", "none"), ("entropy", "entropy reduction")],
    "defence_variant": [("paper", "as in the paper"), ("released", "as released")],
    "defence_resolve": [("", "as the variant"), ("true", "yes"), ("false", "no")],
    "defence_history": [("", "as the variant"), ("kept", "kept"), ("restarted", "restarted")],
    "defence_handed_on": [("", "as the variant"), ("iterate", "last iterate"), ("lowest", "lowest residual")],
    "defence_final_input": [("", "as the variant"), ("purified", "purified"), ("received", "received")],
    "defence_direction": [("sign", "the sign"), ("gradient", "the gradient")],
}  # fmt: skip


@dataclass(eq=False)
class Explorer:
    """Computes views, one at a time, and remembers the last of them."""

    catalogue: Catalogue
    deploy: Deploy
    kept: Path
    _busy: threading.Lock = field(default_factory=threading.Lock)
    _views: OrderedDict[str, Looked] = field(default_factory=OrderedDict)

    def look(self, case: Case, progress: Callable[[str, int, int], None]) -> Looked:
        """The view of a case; `progress` may raise an error to stop the work."""
        while not self._busy.acquire(timeout=0.2):
            progress("waiting for another view", 0, 1)
        try:
            if case.query not in self._views:
                looked = look(case, self.catalogue, self.deploy, progress)
                self._views[case.query] = self._views[looked.case.query] = looked
            while len(self._views) > REMEMBERED:
                self._views.popitem(last=False)
            return self._views[case.query]
        finally:
            self._busy.release()

    def answer(self, looked: Looked) -> dict[str, Any]:
        """A view as the page takes it."""
        known = self.catalogue.open(looked.case.model)
        test = self.catalogue.test_images(known)
        return {
            "html": view_html(looked), "case": looked.case.changed(), "query": looked.case.query,
            "images": 0 if isinstance(test, str) else len(test), "states": looked.view.states,
            "classes": looked.view.classes, "size": looked.clean.shape[2:], "eps": written(looked.eps),
        }  # fmt: skip

    def thumbs(self, model: str, first: int) -> dict[str, Any]:
        """Some of the images that can be chosen, and a sentence if there are no test images."""
        known = self.catalogue.open(model)
        test = self.catalogue.test_images(known)
        if isinstance(test, str):
            photos = [f"photo:{name}" for name in PHOTOS]
            return {"images": [(p, png(self.catalogue.image(known, p)[0][0]), p) for p in photos], "note": test}
        places = range(max(first, 0), min(max(first, 0) + PAGE, len(test)))
        pictures = [png_of(test.pixels[k].permute(1, 2, 0).numpy()) for k in places]
        labels = [f"test image {k}: {test.classes[int(test.labels[k])]}" for k in places]
        return {"images": [(f"test:{k}", a, b) for k, a, b in zip(places, pictures, labels, strict=True)], "note": ""}

    def keep(self, looked: Looked) -> Path:
        """Write a view where `robustdeq report` finds it, and where an equal view is written again."""
        model = looked.case.model.rstrip("/").rsplit("/", 1)[-1].replace(":", "-")
        return export(looked, self.kept / f"{model}-{looked.digest}")

    def options(self) -> dict[str, Any]:
        """What the page's controls offer."""
        defaults = {f.name: f.default for f in fields(Case) if f.default is not MISSING and not f.name.endswith("_own")}
        models = [(name, name) for name in self.catalogue.models]
        choices = {"model": models, **CHOICES}
        own = []
        for name, reference in self.catalogue.code.items():
            choices[name] = [*choices[name], (reference, called(reference))]
            own.append((name, reference, options_of(name, reference)))
        return {"choices": choices, "defaults": defaults, "limit": LIMIT, "own": own}


def serve(explorer: Explorer, start: Case, host: str, port: int) -> ThreadingHTTPServer:
    """A server that is ready to run; port 0 is any free one."""

    class Handler(_Handler):
        pass

    Handler.explorer, Handler.start = explorer, start
    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    Handler.open = host not in ("127.0.0.1", "localhost")
    Handler.own = {host, "localhost", "127.0.0.1"} | ({socket.gethostname()} if Handler.open else set())
    return server


class _Handler(BaseHTTPRequestHandler):
    explorer: Explorer
    start: Case
    own: set[str]
    """Names by which this machine may be asked."""
    open: bool
    """Whether it may be asked by any address of its own too."""

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        """Answers a request for the page."""
        if not self._welcome():
            return
        if self.path.partition("?")[0] != "/":
            return self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is one page: /")
        self._send(HTTPStatus.OK, "text/html", explorer_html(self.start, self.explorer.options()))

    def do_POST(self) -> None:
        """What the page asks."""
        actions = {"/view": self._view, "/thumbs": self._thumbs, "/keep": self._keep, "/export": self._export}
        if not self._welcome():
            return
        content, upload = self.headers.get("Content-Type", ""), self.path == "/upload"
        if content != (
            "application/octet-stream" if upload else "application/json"
        ):  # no form of another site sends these
            return self._send(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "text/plain", "send JSON")
        size = self.headers.get("Content-Length", "")
        limit = LIMIT if upload else CASE_LIMIT
        if not size.isdigit() or int(size) > limit:
            self.close_connection = True
            return self._json({"error": f"at most {limit / 1e6:.0f} MB are taken: scale the image down first"})
        body = self.rfile.read(int(size))
        try:
            if upload:
                self._upload(body)
            elif self.path in actions:
                asked = json.loads(body)
                if not isinstance(asked, dict):
                    raise ValueError("expected a case: names and values")
                actions[self.path](asked)
            else:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is no such thing")
        except (BrokenPipeError, ConnectionError):
            pass
        except Exception as error:  # whatever a model of the user's does: the page shows a sentence
            self._json({"error": _sentence(error)})

    def _welcome(self) -> bool:
        """Whether a request comes from a page of this server and not from another site."""
        asked, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        name = asked.rpartition(":")[0] if asked.rpartition(":")[2].isdigit() else asked
        known = name in self.own or (self.open and _is_address(name))
        if known and origin in (None, f"http://{asked}"):
            return True
        self.close_connection = True
        self._send(HTTPStatus.FORBIDDEN, "text/plain", "this explorer answers its own page only")
        return False

    def _view(self, asked: dict[str, Any]) -> None:
        """Lines of JSON: progress, then the view or a sentence. Who no longer listens stops the work."""
        self.send_response(HTTPStatus.OK)
        self._headers("application/x-ndjson")
        self.close_connection = True

        def say(message: dict[str, Any]) -> None:
            self.wfile.write(json.dumps(message).encode() + b"\n")
            self.wfile.flush()

        try:
            case = Case.of(asked)
            looked = self.explorer.look(case, lambda *progress: say({"progress": progress}))
            say(self.explorer.answer(looked))
        except ConnectionError:
            raise
        except Exception as error:
            say({"error": _sentence(error)})

    def _again(self, asked: dict[str, Any]) -> Looked:
        return self.explorer.look(Case.of(asked), lambda *_: None)

    def _keep(self, asked: dict[str, Any]) -> None:
        self._json({"kept": f"kept in {self.explorer.keep(self._again(asked)).parent}"})

    def _export(self, asked: dict[str, Any]) -> None:
        self._send(HTTPStatus.OK, "text/html", export_html(self._again(asked)))

    def _thumbs(self, asked: dict[str, Any]) -> None:
        self._json(self.explorer.thumbs(str(asked.get("model")), int(asked.get("first", 0))))

    def _upload(self, body: bytes) -> None:
        known = self.explorer.catalogue.open(unquote(self.headers.get("X-Model", "")))
        name = unquote(self.headers.get("X-Name", "")) or "the file"
        photo = opened(body, known.required("image_shape"), name)
        self._json({"image": png_of(photo.pixels.permute(1, 2, 0).numpy())})

    def _json(self, content: dict[str, Any]) -> None:
        self._send(HTTPStatus.OK, "application/json", json.dumps(content))

    def _send(self, status: HTTPStatus, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self._headers(f"{kind}; charset=utf-8")
        self.wfile.write(body)

    def _headers(self, kind: str) -> None:
        for name, value in (
            ("Content-Type", kind), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
