"""`ddh serve`: the HTTP service and its page."""

from typing import Any

import click

from ddh._core.errors import InputError
from ddh.cli.options import FOLDER, NEW_FOLDER, device_option, or_default
from ddh.serve.settings import LOOPBACK, Settings

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
CACHE_MB, UPLOAD_MB = Settings.cache_bytes >> 20, Settings.body_bytes >> 20


@click.command()
@click.argument("location", metavar="[INDEX]", required=False, callback=or_default)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=8080, help="0 takes a free one.")
@click.option(
    "--token", envvar="DDH_TOKEN", show_envvar=True,
    help="Secret that every request must carry; required unless --host is this machine.",
)  # fmt: skip
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME",
    help="Further name allowed in the Host header, as behind a proxy; repeatable.",
)  # fmt: skip
@click.option(
    "-m", "--model", type=FOLDER, help="Model folder; by default the one recorded in the index."
)
@click.option(
    "--root", type=FOLDER, help="Folder of the pictures; by default the one recorded in the index."
)
@click.option(
    "--text-model", type=FOLDER, metavar="FOLDER",
    help="CLIP-style pair of ONNX networks: pictures are then found by what a text says, too.",
)  # fmt: skip
@click.option("--writable", is_flag=True, help="Allow rows to be added and removed.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@device_option
@click.option(
    "--cache", type=NEW_FOLDER,
    help="Folder for thumbnails and maps; DDH_CACHE or the user's cache otherwise.",
)  # fmt: skip
@click.option("--cache-mb", default=CACHE_MB, help="Disk space for thumbnails.")
@click.option("--max-upload-mb", default=UPLOAD_MB, help="Largest body of a request.")
@click.option(
    "--max-megapixels", "megapixels", default=Settings.megapixels, help="Largest uploaded picture."
)
@click.option(
    "--body-seconds", default=Settings.body_seconds,
    help="Longest time for the head of a request, and for its body, to arrive.",
)  # fmt: skip
@click.option(
    "--answer-seconds", default=Settings.answer_seconds, help="Longest time until a response."
)
@click.option(
    "--log", type=click.Choice(["requests", "errors"]), default="requests",
    help="What is logged, as lines of JSON on standard error.",
)  # fmt: skip
def serve(
    location: str, host: str, port: int, hosts: tuple[str, ...], show: bool, log: str,
    **options: Any,
) -> None:  # fmt: skip
    """Serve INDEX over HTTP: a page to search, look through and compare, and its JSON.

    Without INDEX it is the one of `ddh add`.
    Only this machine can reach it, and nothing can be changed, unless you say so.

    \b
    ddh serve --open
    ddh serve photos.index --open
    ddh serve photos.index --writable --port 9000
    DDH_TOKEN=... ddh serve photos.index --host 0.0.0.0
    """
    from ddh.serve import run

    token = options["token"]
    local = host in LOCAL_HOSTS
    if not local and token is None:
        raise InputError(
            f"on {host} others can reach this service: give --token (or DDH_TOKEN), for instance "
            'of `python -c "import secrets; print(secrets.token_urlsafe())"`'
        )
    if not local:
        click.echo(
            f"warning: {host} can be reached from other machines; the token travels in the clear "
            "unless a proxy in front speaks https",
            err=True,
        )
    settings = Settings(
        hosts=(*LOOPBACK, *hosts) if local or hosts else (),
        cache_bytes=options.pop("cache_mb") << 20,
        body_bytes=options.pop("max_upload_mb") << 20,
        **options,
    )
    run(location, settings, host=host, port=port, open_browser=show, log_requests=log == "requests")
