"""Lowering of programs with roles: a function a role, the block's shared memory, and the kernel that brings them together."""

from kernwright.generator.passes.roles.program import RoleProgram, lower_roles

__all__ = ["RoleProgram", "lower_roles"]
