"""Controllers of what a sampler keeps: a knob within bounds is moved until a measured share is the wanted one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pipeline_lib.config import Controller as ControllerConfig
from pipeline_lib.config import FixedStep, Pid


class Controller(ABC):
    """Moves `value` within [low, high], at most once a training step, so that a share approaches `target`.

    The share must rise with the value. It is measured on the prompts that were rolled out, which is what keep
    probabilities change; the size of the batch does not change it, so no controller touches that.
    """

    def __init__(self, *, start: float, low: float, high: float, target: float) -> None:
        self._start, self._low, self._high, self._target = start, low, high, target
        self.value = self._clamp(start)

    @abstractmethod
    def update(self, measured: float) -> None:
        """Take in the share that was measured in a step."""

    def _clamp(self, value: float) -> float:
        return min(max(value, self._low), self._high)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class FixedStepController(Controller):
    """GRESO's (arXiv 2506.02177): Δ up where the share is below its target, Δ down where it is not."""

    def __init__(self, config: FixedStep, **knob: float) -> None:
        super().__init__(**knob)
        self._step = config.step

    def update(self, measured: float) -> None:
        self.value = self._clamp(self.value + (self._step if measured < self._target else -self._step))


class PidController(Controller):
    """start + (high - low) · (kp·e + ki·Σe + kd·Δe), clamped, with e = target - moving average of the share.

    Against windup the sum stands still while the value is at a bound and the error would push it further out.
    """

    def __init__(self, config: Pid, **knob: float) -> None:
        super().__init__(**knob)
        self._config = config
        self._sum = 0.0
        self._average: float | None = None

    def update(self, measured: float) -> None:
        before = measured if self._average is None else self._average
        self._average = before + self._config.smoothing * (measured - before)
        error, change = self._target - self._average, before - self._average
        value = self._output(error, self._sum + error, change)
        if not (value > self._high and error > 0) and not (value < self._low and error < 0):
            self._sum += error
        self.value = self._clamp(self._output(error, self._sum, change))

    def _output(self, error: float, errors: float, change: float) -> float:
        gains = self._config
        return self._start + (self._high - self._low) * (gains.kp * error + gains.ki * errors + gains.kd * change)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"sum": self._sum, "average": self._average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._sum, self._average = state["sum"], state["average"]


def make_controller(config: ControllerConfig, *, start: float, low: float, high: float, target: float) -> Controller:
    """The controller that `config` names, of a knob that begins at `start`."""
    kind = PidController if isinstance(config, Pid) else FixedStepController
    return kind(config, start=start, low=low, high=high, target=target)  # type: ignore[arg-type]
