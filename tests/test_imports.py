"""The import rule of the house: flows -> tasks -> {pipeline_lib, warehouse}."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from warehouse_rows import run, table

from warehouse import Warehouse

ROOT = Path(__file__).parent.parent


def test_the_import_rule_holds() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_status_and_sql_need_neither_prefect_nor_torch() -> None:
    code = (
        "import sys, flows.cli, flows.commands.status, flows.commands.tables; "
        "heavy = {'prefect', 'torch', 'transformers'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=os.environ)


def test_status_answers_without_pandas_which_takes_longer_to_import_than_all_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    warehouse = Warehouse(tmp_path)
    warehouse.write({"runs": table(run("demo"))})
    warehouse.publish()
    code = (
        "import sys; from pathlib import Path; from rich.console import Console; from warehouse import Warehouse; "
        "from flows.commands.status import print_status; warehouse = Warehouse(Path(sys.argv[1])); "
        "print_status(Console(), warehouse, None); print_status(Console(), warehouse, 'demo'); "
        "assert 'pandas' not in sys.modules"
    )
    told = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "Run demo" in told.stdout


def test_what_is_recorded_is_asked_without_prefect_and_torch() -> None:
    code = (
        "import sys, flows.commands.plan, flows.runs; "
        "heavy = {'prefect', 'torch', 'transformers'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, env=os.environ)
