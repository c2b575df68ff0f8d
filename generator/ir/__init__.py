"""What a program is: types, expressions, layouts, memory, barriers, roles and statements, all frozen dataclasses."""
