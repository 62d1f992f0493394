"""What stays on the client: files, datasets and what Python does for them. Everything else is the server's.

A dataset reads the client's files and calls the program's Python functions, so all of its operators are placed here;
what it gives is sent when an operator there wants it. A `tf.function` that has a dataset's iterator, or a Python
function in it, is started from here, and TensorFlow sends the server its part: the server never has to call back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from elastic_ai_tensorflow.lease import Lease

CLIENT = "/job:localhost/replica:0/task:0/device:CPU:0"
WORKER = "/job:worker/replica:0/task:0"
#: What marks a function that has operators of the client in it.
_MARKS = (b"/job:localhost", b"PyFunc")


def default_device(lease: Lease) -> str:
    """Where an operator goes of which the program says nothing."""
    return f"{WORKER}/device:{'CPU' if lease.emulated else 'GPU'}:0"


def on_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with its operators here."""
    from tensorflow.python.framework import ops

    @functools.wraps(function)
    def here(*words: Any, **named: Any) -> Any:
        with ops.colocate_with(None, ignore_existing=True), ops.device(CLIENT):
            return function(*words, **named)

    return here


def keep_here(tensorflow: ModuleType) -> None:
    """From now on."""
    from tensorflow.python.ops import (
        gen_dataset_ops,
        gen_experimental_dataset_ops,
        gen_io_ops,
        gen_optional_ops,
        gen_summary_ops,
    )  # fmt: skip

    for module in (gen_dataset_ops, gen_experimental_dataset_ops, gen_io_ops, gen_optional_ops, gen_summary_ops):
        for name, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__module__", "") == module.__name__ and name[0].islower():
                setattr(module, name, on_client(value))
    # What is exported under other names was taken before.
    tensorflow.io.read_file = on_client(tensorflow.io.read_file)
    tensorflow.io.write_file = on_client(tensorflow.io.write_file)
    tensorflow.io.matching_files = on_client(tensorflow.io.matching_files)
    _keep_datasets()
    _keep_checkpoints()
    _place_functions()
    _start_functions_here()


def _subclasses(kind: Any) -> Iterable[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def _keep_datasets() -> None:
    """What a dataset is made of, and its functions, whose operators are traced while it is made."""
    from tensorflow.python.data.ops import dataset_ops, iterator_ops

    def keep(kind: Any) -> None:
        if "__init__" in vars(kind):
            kind.__init__ = on_client(kind.__init__)

    for kind in set(_subclasses(dataset_ops.DatasetV2)):
        keep(kind)
    before = dataset_ops.DatasetV2.__init_subclass__

    def of_later_ones(kind: Any, /, **named: Any) -> None:
        before(**named)
        keep(kind)

    dataset_ops.DatasetV2.__init_subclass__ = classmethod(of_later_ones)
    keep(iterator_ops.OwnedIterator)


def _keep_checkpoints() -> None:
    """Checkpoints and saved models are the client's files."""
    from tensorflow.python.checkpoint import checkpoint_options
    from tensorflow.python.saved_model import load_options, save_options

    for kind in (checkpoint_options.CheckpointOptions, save_options.SaveOptions, load_options.LoadOptions):
        before = kind.__init__

        def start(self: Any, *words: Any, _before: Callable[..., None] = before, **named: Any) -> None:
            _before(self, *words, **named)
            if self.experimental_io_device is None:
                self.experimental_io_device = CLIENT

        kind.__init__ = start


def _place_functions() -> None:
    """A function's operators are the server's, whoever starts it: without a device they would be where its call is."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import func_graph

    before = func_graph.FuncGraph.__init__

    def start(self: Any, *words: Any, **named: Any) -> None:
        before(self, *words, **named)
        if (context.context().device_name or "").startswith(WORKER):
            self._add_device_to_stack(WORKER)

    func_graph.FuncGraph.__init__ = start


def _start_functions_here() -> None:
    """Functions that have operators of the client in them."""
    from tensorflow.python.eager import def_function
    from tensorflow.python.eager.polymorphic_function import atomic_function
    from tensorflow.python.framework import ops

    before = atomic_function.AtomicFunction.call_flat

    def marked(function: Any) -> bool:
        known = getattr(function, "_elastic_ai_marked", None)
        if known is None:
            text = function.cached_definition.SerializeToString()
            known = any(mark in text for mark in _MARKS) or any(marked(one) for one in function.children)
            function._elastic_ai_marked = known
        return bool(known)

    def compiled(function: Any) -> Any:
        """What calls a function that XLA compiles from within another one: by itself a server takes none."""
        outer = getattr(function, "_elastic_ai_outer", None)
        if outer is None:
            if function.cached_definition.attr["_XlaMustCompile"].b:
                outer = def_function.function(lambda *words: before(function, *words), autograph=False)
            function._elastic_ai_outer = outer = outer or before.__get__(function)
        return outer

    def call_flat(self: Any, *words: Any) -> Any:
        if not self._bound_context.executing_eagerly():
            return before(self, *words)
        if marked(self):
            with ops.device(CLIENT):
                return before(self, *words)
        return compiled(self)(*words)

    atomic_function.AtomicFunction.call_flat = call_flat
