"""``vtkit serve``: a model's vectors and the searches of runs, over HTTP."""

import sys
from typing import Annotated, Literal

from vtkit.commands.options import argument, option, options_of
from vtkit.deploy.limits import Limits
from vtkit.system import console
from vtkit.system.errors import MissingExtra
from vtkit.system.runtime import kept_for_good

CALLED = {
    "truncate": "--truncate/--no-truncate",
    "texts": "--batch-size",
    "body_bytes": "--body-size",
    "seconds": "--timeout",
}


@options_of(Limits, called=CALLED)
def serve(
    served: Annotated[
        list[str],
        argument(
            "Folder or hub id of a sparse encoder, or folders of runs or of indexes by `vtkit build` or `vtkit index`.",
            "MODEL_OR_RUN",
        ),
    ],
    settings: Limits,
    model: Annotated[
        list[str] | None,
        option(
            "Serve another stage's model of each run: source, transfer, adapt, calibrate or finetune. May be "
            "repeated. Default: the final one.",
            "STAGE",
        ),
    ] = None,
    collection: Annotated[str | None, option("Evaluation set of each run. Default: the first.", "NAME")] = None,
    max_length: Annotated[
        int | None, option("Tokens read of each text. Default: the run's, or the model's limit.", "TOKENS", min=3)
    ] = None,
    precision: Annotated[Literal["float32", "bf16"], option("Precision of the encoder's matrix products.")] = "float32",
) -> None:
    """Serve a model, or runs with their models, over HTTP.

    /embed_sparse and /info as in text-embeddings-inference; /search and a search page at / for runs, two of them side
    by side; /health, and /metrics for Prometheus. Waiting requests are encoded together. Nothing can be written.
    After Ctrl-C or SIGTERM, the server answers open requests and ends.
    """
    try:
        from vtkit.deploy import server
    except ImportError as error:
        raise MissingExtra("vtkit serve", str(error.name), "serve") from error
    from vtkit.data.hub import located
    from vtkit.pipeline.search import open_served

    bound = server.bind(settings.host, settings.port)
    names = [located(name) for name in served]
    console.say(f"loading {', '.join(served)}, which takes some seconds")
    with kept_for_good():
        loaded = open_served(names, model or (), collection, max_length)
    from vtkit.deploy.served import Served  # imports torch, which a model that is not there does not need

    opened = Served(*loaded, precision)

    def ready(address: str) -> None:
        console.write(f"serving {', '.join(served)} on {address}")
        sys.stdout.flush()

    server.serve(opened, settings, bound, ready)
