"""sm_103a: Blackwell Ultra (B300), as sm_100a in everything that programs here use."""

from dataclasses import replace

from kernwright.generator.arch.sm_100a import SM_100A

SM_103A = replace(SM_100A, name="sm_103a", capability=(10, 3), minimum_cuda="12.9")
