"""What a flow run's page shows of its steps: Prefect artifacts, made from the published snapshot.

Only where a worker runs a deployment: nobody looks at the pages of a server that ends with `rlsift run`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tasks.artifacts.live import PageReporter
from tasks.artifacts.pages import PAGES
from tasks.artifacts.sender import Sender
from tasks.progress import get_reporter, use_reporter
from tasks.step import Step
from warehouse import Warehouse

STARTED_BY_A_WORKER = "PREFECT__FLOW_RUN_ID"


@contextmanager
def on_the_page(step: Step) -> Iterator[None]:
    """Show how far the step is and, after its end, what it brought; also where it was found complete.

    No page is worth a step: what goes wrong here is said once in the log.
    """
    if STARTED_BY_A_WORKER not in os.environ:
        yield
        return
    warehouse = Warehouse(step.root)
    with Sender(step.run.name, step.stage) as sender:
        with use_reporter(PageReporter(get_reporter(), step, warehouse, sender)):
            yield
        for name, page in PAGES.get(step.name, {}).items():
            sender.put(name, partial(page, warehouse, step.run.name, step.stage))
