"""A step of Keras.

Keras takes a batch from its iterator within the function of the step, by which the server would have to fetch it from
here, a tensor at a time. So that is taken before, as Keras does of what is no iterator of TensorFlow's.
"""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

#: Keras's function of one step, which its function of a step with an iterator calls (keras/src/backend/tensorflow).
_STEP = "one_step_on_data"


def take_batches_first(trainer: ModuleType) -> None:
    """In Keras's trainer, from now on."""
    before = trainer.TensorFlowTrainer._make_function

    def make_function(self: Any, step_function: Any) -> Any:
        function = before(self, step_function)
        traced = False

        def step(iterator: Any) -> Any:
            nonlocal traced
            if not traced:
                traced = True
                _trace(function, iterator.element_spec)
            first = next(iterator)  # its end is Keras's to hear of
            return function(itertools.chain([first], iterator))

        return step

    trainer.TensorFlowTrainer._make_function = make_function


def _trace(function: Any, spec: Any) -> None:
    """The step for batches of any size, as within an iterator's function: one that is traced for the size of the first
    batch sums in another order, and is traced again for a last batch that is smaller."""
    import tensorflow

    if all(type(one) is tensorflow.TensorSpec for one in tensorflow.nest.flatten(spec)):
        for step in _steps(function, 3):
            step.get_concrete_function(spec)


def _steps(function: Any, depth: int) -> list[Any]:
    """TensorFlow's functions of a step among those that a function calls; none where it runs eagerly."""
    if hasattr(function, "get_concrete_function"):
        return [function] if function.python_function.__name__ == _STEP else []
    inner = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()] if depth else []
    found = [step for one in inner if callable(one) for step in _steps(one, depth - 1)]
    return list({id(one): one for one in found}.values())
