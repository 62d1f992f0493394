"""The engine's own tests once more, with verbs under every connection: what holds by TCP holds by a queue pair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.test_engine_api import (
    test_asynchronous_data_come_while_the_program_does_something_else,
    test_copies_in_both_directions_at_once_do_not_wait_for_each_other,
    test_errors_of_asynchronous_calls_come_once_with_the_next_wait,
    test_forked_child_has_no_devices_and_keeps_no_connection,
    test_only_device_memory_is_reached,
    test_streams_events_and_contexts,
    test_threads_share_a_connection,
)
from tests.engine.test_engine_batch import test_order_holds_between_requests_with_and_without_reply
from tests.engine.test_engine_launches import (
    test_a_kernel_that_never_ends_goes_with_its_client_and_with_its_lease,
    test_copies_in_two_dimensions,
    test_servers_that_give_the_same_addresses,
    test_training_by_the_engine_has_the_losses_of_the_devices_themselves,
    test_what_the_drivers_compiler_says_is_said_where_no_one_asked,
)
from tests.engine.test_engine_reference import (
    test_a_dead_clients_child_is_gone_within_a_second,
    test_children_die_with_a_killed_server,
    test_clients_and_children_killed_in_the_middle_of_copies_leave_nothing,
    test_copies_between_all_endpoints_of_two_servers,
    test_idle_server_ends_itself_and_a_busy_one_does_not,
    test_lost_connection_fails_every_later_call_at_once,
    test_memory_limit_holds_over_all_clients_and_is_exact_after_kills,
    test_sigterm_ends_everything,
)
from tests.support.engine_verbs import LACKS, over_verbs
from toolkit.engine import host_modules

__all__ = [
    "test_a_dead_clients_child_is_gone_within_a_second",
    "test_a_kernel_that_never_ends_goes_with_its_client_and_with_its_lease",
    "test_asynchronous_data_come_while_the_program_does_something_else",
    "test_children_die_with_a_killed_server",
    "test_clients_and_children_killed_in_the_middle_of_copies_leave_nothing",
    "test_copies_between_all_endpoints_of_two_servers",
    "test_copies_in_both_directions_at_once_do_not_wait_for_each_other",
    "test_copies_in_two_dimensions",
    "test_errors_of_asynchronous_calls_come_once_with_the_next_wait",
    "test_forked_child_has_no_devices_and_keeps_no_connection",
    "test_idle_server_ends_itself_and_a_busy_one_does_not",
    "test_lost_connection_fails_every_later_call_at_once",
    "test_memory_limit_holds_over_all_clients_and_is_exact_after_kills",
    "test_only_device_memory_is_reached",
    "test_order_holds_between_requests_with_and_without_reply",
    "test_servers_that_give_the_same_addresses",
    "test_sigterm_ends_everything",
    "test_streams_events_and_contexts",
    "test_threads_share_a_connection",
    "test_training_by_the_engine_has_the_losses_of_the_devices_themselves",
    "test_what_the_drivers_compiler_says_is_said_where_no_one_asked",
]
LACKING = LACKS or host_modules.lacks_compiler()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"no compiler here: {LACKING}")


@pytest.fixture(autouse=True)
def every_byte_by_verbs() -> Iterator[None]:
    """Servers offer verbs alone, so that a client by TCP would get nothing; and the device has sent."""
    with over_verbs("verbs") as wire:
        yield
        assert wire.bytes
