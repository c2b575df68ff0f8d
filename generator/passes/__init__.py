"""From a description to a lowered program: placement and derived facts, lowering, ranges, simplification, checks."""
