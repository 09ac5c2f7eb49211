"""What a flow run's page shows of its steps: Prefect artifacts, made from the published snapshot.

Only where a worker runs a deployment: nobody looks at the pages of a server that ends with `rlsift run`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tasks.artifacts.live import PageReporter
from tasks.artifacts.pages import PAGES, Page
from tasks.artifacts.sender import Sender, Shown
from tasks.progress import get_reporter, use_reporter
from tasks.step import Step
from warehouse import Warehouse

STARTED_BY_A_WORKER = "PREFECT__FLOW_RUN_ID"
TAKEN = "SELECT 1 FROM run_steps WHERE run_id = $1 AND stage = $2 AND name = $3 AND fingerprint = $4"


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
            sender.put(name, partial(page_of, page, warehouse, step))


def page_of(page: Page, warehouse: Warehouse, step: Step) -> Shown:
    taken = [step.run.name, step.stage, step.name, step.fingerprint]
    if warehouse.snapshot_query(TAKEN, taken).num_rows == 0:
        warehouse.publish()  # found complete by a run that is new: perform records that, and leaves it at that
    return page(warehouse, step.run.name, step.stage)
