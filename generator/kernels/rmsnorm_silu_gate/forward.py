"""Forward pass of the SiLU-gated RMSNorm: one description for all architectures, one program a weight type."""

from kernwright.generator.dsl import ALL, MAXIMUM_GRID, DType, Kernel, bf16, f32, i64, program

ROWS_PER_BLOCK = 8


@program(
    family="rmsnorm_silu_gate",
    archs=ALL,
    variants={"forward_w_bf16": {"weight": bf16}, "forward_w_f32": {"weight": f32}},
)
def forward(k: Kernel, weight: DType) -> None:
    """y = x * rsqrt(mean(x^2) + eps) * w * silu(z), row by row, with silu(z) = z / (1 + exp(-z)).

    x, z and y are BF16 [rows, 128], w is [128] in the type of the program's name. Everything between the loads and the store is
    FP32; y is rounded once.
    """
    rows = k.scalar("rows", i64, high=MAXIMUM_GRID * ROWS_PER_BLOCK)
    columns = k.constant("columns", 128, "one head")
    x = k.tensor("x", bf16, (rows, columns), folded=True)
    z = k.tensor("z", bf16, (rows, columns), folded=True)
    w = k.tensor("w", weight, (columns,))
    y = k.tensor("y", bf16, (rows, columns), access="write", folded=True)
    eps = k.scalar("eps", f32, minimum=0.0)

    layout = k.vector_rows(columns, threads=128, vector=8)
    block = k.blocks(rows, step=layout)

    x_row = k.load(x[block], layout)
    z_row = k.load(z[block], layout)
    w_row = k.load(w, layout)

    mean_square = k.row_mean(x_row * x_row)
    scale = k.rsqrt(mean_square + eps)
    gate = k.silu(z_row)
    k.store(y[block], x_row * scale * w_row * gate)
