"""`robustdeq explore`: a page on which an image is attacked and the dynamics are watched."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from robustdeq.cli.arguments.defence_flags import DefenceFlags

if TYPE_CHECKING:
    import robustdeq.app.catalogue

FIRST = ("cifar10-tiny-trades-random", "digits-nano-trades-random")
"""Shipped models to begin with; the images of the last one are embedded."""

LAST_PORT = 65535


def run(
    ckpt: str | None = None,
    *,
    export: Path | None = None,
    data_root: Path | None = None,
    image: str | None = None,
    label: int | None = None,
    attack: str | None = None,
    attack_own: dict[str, str] | None = None,
    oracle: Literal["ready", "unrolled", "carried", "exact", "watched", "direct"] | None = None,
    oracle_state: int | None = None,
    oracle_steps: int | None = None,
    oracle_damping: float | None = None,
    oracle_view: Literal["oblivious", "aware", "bpda"] | None = None,
    eps: str | None = None,
    steps: int | None = None,
    seed: int | None = None,
    state: str | None = None,
    kept: Path = Path("runs/kept"),
    host: str = "127.0.0.1",
    port: int = 7860,
    no_browser: bool = False,
    trust: bool = False,
    imports: str | None = None,
    **flags: Unpack[DefenceFlags],
) -> None:
    """Attack an image on a web page and watch the dynamics, state by state; or write one case as a page.

    The page shows every state of the clean, the attacked and the defended pass. It is served to this machine only,
    unless --host says otherwise, and asks nothing of any network. Without CKPT it offers the models below runs/ and the
    shipped ones. The other flags choose what is shown first; every view names the command that shows it again.

    Args:
        ckpt: A checkpoint folder, a shipped checkpoint's name, hf:user/name, or package.module:function that returns a
            predictor.
        export: Write the case into this folder, as a page that needs no server and as SVG, and do not serve.
        data_root: Folder of the data; without it, models of CIFAR-10 are shown photographs and what you upload.
        image: test:K (the K-th test image, from 0), photo:flower, photo:temple, or an image file.
        label: Number of the true class; by default the test set's, or else the prediction on the clean image.
        attack: Attack of the first view: none, pgd (default), apgd, or package.module:Class of your own, whose options
            are --attack.NAME VALUE. What is named here can be chosen on the page.
        attack_own: Options of an attack of your own.
        oracle: Whose gradient it follows; the ready-made one by default.
        oracle_state: State i of the unrolled oracle; 3 by default.
        oracle_steps: Steps K_a of the unrolled oracle; 5 by default.
        oracle_damping: Damping lambda of the unrolled oracle; 0.5 by default.
        oracle_view: Whether the attacker knows of the defence; oblivious by default.
        eps: Radius of the attack, such as 8/255; by default what the checkpoint was trained for.
        steps: Steps of the attack; 10 by default.
        seed: Seed of the attack; 0 by default.
        state: State that predicts, 1..N or final; by default 8, or the solver's last if it has fewer.
        kept: Folder of the cases that are kept; `robustdeq report` shows them.
        host: Address to serve at; 0.0.0.0 serves everybody who can reach this machine.
        port: Port to serve at, or the next free one.
        no_browser: Print the page's address and open no browser.
        trust: Run code outside robustdeq that CKPT names, or without CKPT any model below runs/; not needed in the
            folder that it was trained in.
        imports: Module of your own to import first, such as one that registers models (several: separated by commas); a
            checkpoint may name it.
        **flags: Of the defence. One of your own that is named here can be chosen on the page.
    """
    given = {name: value for name, value in {**locals(), **flags}.items() if value is not None}
    from rich.console import Console

    from robustdeq.app.calls import options_of
    from robustdeq.app.case import Case
    from robustdeq.app.catalogue import Catalogue, is_file
    from robustdeq.app.look import look
    from robustdeq.app.page import export as write
    from robustdeq.app.pictures import png
    from robustdeq.app.server import Explorer
    from robustdeq.cli.arguments.checkpoint import resolve
    from robustdeq.cli.arguments.deploy import deployed
    from robustdeq.cli.arguments.folders import check_folder
    from robustdeq.cli.progress import saying
    from robustdeq.host.references import import_modules
    from robustdeq.models.pretrained import shipped

    console = Console()
    own = _trained() if ckpt is None else [ckpt]
    models = list(dict.fromkeys((*own, *_trained(), *shipped())))
    words = [] if data_root is None else ["--data-root", str(data_root)]
    words += ["--trust"] * trust + (["--import", imports] if imports else [])
    trusted = dict.fromkeys(own, trust or import_modules(imports))
    catalogue = Catalogue(models, lambda name: resolve(name, trusted.get(name, ())), data_root, words, files=True)
    chosen = {name: given[name] for name in Case.__dataclass_fields__ if name in given}
    check_folder(kept if export is None else export, "--kept" if export is None else "--export")
    with saying(console) as say:
        say("opening the model and its images")
        case = Case.of({"model": ckpt or _first(catalogue), **chosen})
        catalogue.code = {name: getattr(case, name) for name in case.own}
        for kind, reference in catalogue.code.items():
            options_of(kind, reference)  # a wrong name ends here and not on the page
        catalogue.test_images(catalogue.open(case.model))
        if export is not None:
            looked = look(case, catalogue, deployed, lambda words, done, total: say(f"{words}: {done:,} of {total:,}"))
    if export is not None:
        index = write(looked, export)
        console.print(f"{index} (and beside it case.svg, case.py, case.json)", soft_wrap=True, markup=False)
        return
    if is_file(case.image):  # a page may not name files: the image itself goes into its links
        pixels, _, _ = catalogue.image(catalogue.open(case.model), case.image)
        case = replace(case, image=png(pixels[0]))
    catalogue.files = False
    _serve(Explorer(catalogue, deployed, kept), case, host, port, not no_browser, console)


def _serve(explorer: Any, case: Any, host: str, port: int, browser: bool, console: Any) -> None:
    import webbrowser

    from robustdeq.app.server import serve

    if not 0 <= port <= LAST_PORT:
        raise ValueError(f"--port must be 0 (any free one) to {LAST_PORT}, got {port}")
    for candidate in (*range(port, min(port + 20, LAST_PORT + 1)), 0) if port else (0,):
        try:
            server = serve(explorer, case, host, candidate)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE or candidate == 0:
                raise OSError(f"cannot serve at {host}:{candidate}: {error.strerror or error}") from None
    address = f"http://{host if host != '0.0.0.0' else 'localhost'}:{server.server_address[1]}/"
    if host not in ("127.0.0.1", "localhost"):
        console.print(f"everybody who can reach this machine at {host} can use it: there is no password", markup=False)
    console.print(f"{address} (Ctrl-C ends it; kept cases go to {explorer.kept})", soft_wrap=True, markup=False)
    if browser:
        webbrowser.open(address)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


def _trained() -> list[str]:
    """Trained models below runs/, the newest first."""
    found = Path("runs").glob("**/best/config.json")
    return [str(path.parent) for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def _first(catalogue: robustdeq.app.catalogue.Catalogue) -> str:
    """The newest model trained here, else the first of the shipped ones whose images are at hand."""
    *some, last = [*_trained()[:1], *FIRST]
    for name in some:
        with suppress(RuntimeError, ValueError, OSError):  # a checkpoint that cannot be opened is no place to begin
            if not isinstance(catalogue.test_images(catalogue.open(name)), str):
                return name
    return last
