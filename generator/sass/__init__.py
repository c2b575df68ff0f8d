"""The machine code against the lowered program: what ptxas made of the order of synchronising instructions and accesses.

`listing` reads a disassembly, `flow` its branches and predicates, `expected` turns a lowered program into the automaton of its
event orders, `order` walks every path of the machine code through it, `check` puts a verdict together.
"""

from kernwright.generator.sass.check import Verdict, check_program
from kernwright.generator.sass.listing import Listing, SassError, disassemble, parse
from kernwright.generator.sass.order import Finding

__all__ = ["Finding", "Listing", "SassError", "Verdict", "check_program", "disassemble", "parse"]
