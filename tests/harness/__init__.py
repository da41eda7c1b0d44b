"""What integration and browser tests share: a real deployment, people who talk to it, and patient waiting."""

from tests.harness.kernel import Kernel
from tests.harness.person import Person, Refusal, lasted
from tests.harness.stack import Stack, free_port
from tests.harness.terminal import type_in_terminal
from tests.harness.waiting import until, while_true

__all__ = ["Kernel", "Person", "Refusal", "Stack", "free_port", "lasted", "type_in_terminal", "until", "while_true"]
