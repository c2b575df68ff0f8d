/* rmsnorm_silu_gate_forward_w_bf16: the host side of its kernel.
 *
 * run(x, z, w, y, eps) checks its arguments and launches the kernel on the current stream of the tensors' device.
 *   x: bf16 [rows, kColumns], leading dimensions fold, 16-byte aligned, read
 *   z: bf16 [rows, kColumns], leading dimensions fold, 16-byte aligned, read
 *   w: bf16 [kColumns], 16-byte aligned, read
 *   y: bf16 [rows, kColumns], leading dimensions fold, 16-byte aligned, written
 *   eps: f32, finite, >= 0
 * prepare(device) loads the kernel for a device beforehand.
 */
#define KW_PROGRAM "rmsnorm_silu_gate_forward_w_bf16"
#define KW_THREADS 128
#define KW_CLUSTER {1, 1, 1}
#define KW_SHARED_BYTES 0
#include "../include/binding.h"

TVM_FFI_DLL_EXPORT int __tvm_ffi_run(void* ffi_self, const TVMFFIAny* ffi_args, int32_t ffi_count,
                                     TVMFFIAny* ffi_result) {
  const int kColumns = 128;
  const int kRowsPerBlock = 8;
  KwCall kw_call = {.args = ffi_args};
  KwTensor x, z, w, y;
  (void)ffi_self;

  if (kw_count(ffi_count, 5, "x, z, w, y, eps")) return -1;
  if (kw_tensor(&kw_call, 0, "x", KW_BF16, 2, KW_FOLDED, &x)) return -1;
  if (kw_tensor(&kw_call, 1, "z", KW_BF16, 2, KW_FOLDED, &z)) return -1;
  if (kw_tensor(&kw_call, 2, "w", KW_BF16, 1, KW_EXACT, &w)) return -1;
  if (kw_tensor(&kw_call, 3, "y", KW_BF16, 2, KW_FOLDED, &y)) return -1;

  if (kw_dimension(&x, 0, "rows", 0, 17179869176, 1)) return -1;
  const long long rows = x.shape[0];
  double kw_eps;
  if (kw_real(&kw_call, 4, "eps", 0.0, FLT_MAX, &kw_eps)) return -1;
  const float eps = (float)kw_eps;

  if (kw_layout(&x, "[rows, kColumns]", KW_LIST(rows, kColumns), "[kColumns, 1]", KW_LIST(kColumns, 1), 16)) return -1;
  if (kw_layout(&z, "[rows, kColumns]", KW_LIST(rows, kColumns), "[kColumns, 1]", KW_LIST(kColumns, 1), 16)) return -1;
  if (kw_layout(&w, "[kColumns]", KW_LIST(kColumns), "[1]", KW_LIST(1), 16)) return -1;
  if (kw_layout(&y, "[rows, kColumns]", KW_LIST(rows, kColumns), "[kColumns, 1]", KW_LIST(kColumns, 1), 16)) return -1;

  const long long kw_grid[3] = {(rows + (kRowsPerBlock - 1)) / kRowsPerBlock, 1, 1};
  void* kw_arguments[] = {(void*)&rows, &x.data, &z.data, &w.data, &y.data, (void*)&eps};
  if (kw_launch(kw_call.device, kw_grid, kw_arguments)) return -1;
  ffi_result->type_index = kTVMFFINone;
  return 0;
}
