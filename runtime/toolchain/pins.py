"""The compiler that libraries are built with: CUDA 13.4.3 as seven wheels, each pinned exactly.

Pinning one wheel is not enough: the requirements of nvidia-cuda-nvcc are open, so pip alone would take a newer cicc or
newer headers, which make different machine code.
"""

from __future__ import annotations

CUDA = "13.4.3"
NVCC = "13.4.92"
REQUIREMENTS = (
    f"nvidia-cuda-nvcc=={NVCC}",  # nvcc, ptxas, cudafe++, fatbinary
    f"nvidia-nvvm=={NVCC}",  # cicc, libdevice
    f"nvidia-cuda-crt=={NVCC}",  # crt headers
    f"nvidia-cuda-runtime=={NVCC}",  # cuda.h and the type headers
    "nvidia-cuda-cccl==13.3.4.3.1",  # nv/target, which cuda_bf16.h includes
    f"nvidia-cuda-cuobjdump=={NVCC}",  # resources and SASS
    f"nvidia-cuda-nvdisasm=={NVCC}",  # called by cuobjdump
)
HOME_IN_WHEELS = "nvidia/cu13"  # where the wheels put bin/, include/ and nvvm/
