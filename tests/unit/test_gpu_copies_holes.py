"""What the matrix of a node's GPUs lacks is known by the cell."""

from __future__ import annotations

from validation.measures.gpu.copies_facts import CopyGpu, GpuCopy, GpuCopyFacts, GpuWait


def test_a_fault_of_one_gpu_is_not_taken_for_that_of_another_whose_number_begins_alike() -> None:
    """`H to GPU 1` begins the words of `H to GPU 10`."""
    gpus = tuple(
        CopyGpu(name="A", uuid=f"u{number}", address=f"a{number}", memory_bytes=1, near=True) for number in range(11)
    )

    def copy(target: int, size: int, error: str = "") -> GpuCopy:
        return GpuCopy(
            what="h2d", source=None, target=target, memory="pinned", bytes=size, gb_s=(1.0,), verified=True, error=error
        )

    facts = GpuCopyFacts(
        emulated=False, driver="1", cuda=12000, declared=11, largest_bytes=2, gpus=gpus, peers=(), waits=(),
        copies=(copy(10, 2, "lost"), copy(1, 1, "slow"), copy(1, 2)),
    )  # fmt: skip
    facts = facts.model_copy(
        update={"waits": (GpuWait(what="h2d", source=None, target=1), GpuWait(what="h2d", source=None, target=10))}
    )
    assert "H to GPU 10: lost" in facts.holes
    assert "H to GPU 1, 1 byte: slow" in facts.holes
