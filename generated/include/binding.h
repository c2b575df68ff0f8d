/* The host side that every kernwright library shares: argument checks and the CUDA driver, in plain C.
 *
 * A binding defines KW_PROGRAM, KW_THREADS, KW_CLUSTER and KW_SHARED_BYTES (the dynamic part) and includes this file.
 * The build defines KW_CUBIN (file of the machine code), KW_ARCHITECTURE ("sm_90a"), KW_MAJOR and KW_MINOR (its compute
 * capability). Functions return 0, or -1 after raising an error that names the program, the argument, what was expected
 * and what came. Nothing of CUDA is linked: the driver is opened at the first launch, so a library loads anywhere.
 */
#ifndef KERNWRIGHT_BINDING_H_
#define KERNWRIGHT_BINDING_H_

#include <cuda.h>
#include <dlfcn.h>
#include <float.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

/* The machine code, in read-only data. */
extern const unsigned char kw_cubin[] __attribute__((visibility("hidden")));
__asm__(
    ".pushsection .rodata\n.balign 64\n.globl kw_cubin\n.hidden kw_cubin\nkw_cubin:\n.incbin \"" KW_CUBIN
    "\"\n.popsection\n");

/* ---- errors ---- */

__attribute__((cold, noinline, format(printf, 2, 3))) static void kw_set_error(const char* kind, const char* format,
                                                                              ...) {
  char message[1024];
  va_list values;
  va_start(values, format);
  int used = snprintf(message, sizeof message, "%s: ", KW_PROGRAM);
  vsnprintf(message + used, sizeof message - (size_t)used, format, values);
  va_end(values);
  TVMFFIErrorSetRaisedFromCStr(kind, message);
}

/* Sets the error that the caller will see as a Python exception of this kind; its value is -1. */
#define kw_raise(...) (kw_set_error(__VA_ARGS__), -1)

typedef struct {
  char text[256];
} KwText;

/* "[3, 5, 128]" */
static inline KwText kw_list(const int64_t* values, int count) {
  KwText list;
  int used = snprintf(list.text, sizeof list.text, "[");
  for (int i = 0; i < count && used < 220; ++i)
    used += snprintf(list.text + used, sizeof list.text - (size_t)used, i ? ", %lld" : "%lld", (long long)values[i]);
  snprintf(list.text + used, sizeof list.text - (size_t)used, "]");
  return list;
}

/* "cuda:0", "cpu" */
static inline KwText kw_device_name(DLDevice device) {
  KwText name;
  if (device.device_type == kDLCUDA)
    snprintf(name.text, sizeof name.text, "cuda:%d", device.device_id);
  else if (device.device_type == kDLCPU)
    snprintf(name.text, sizeof name.text, "cpu");
  else
    snprintf(name.text, sizeof name.text, "device %d of DLPack type %d", device.device_id, (int)device.device_type);
  return name;
}

/* "bfloat16", "float32", "int64" */
static inline KwText kw_dtype_name(DLDataType dtype) {
  static const char* const names[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  KwText name;
  const char* base = dtype.code < 7 ? names[dtype.code] : "dtype";
  int used = dtype.code == kDLBool ? snprintf(name.text, sizeof name.text, "bool")
                                   : snprintf(name.text, sizeof name.text, "%s%d", base, dtype.bits);
  if (dtype.lanes != 1) snprintf(name.text + used, sizeof name.text - (size_t)used, "x%d", dtype.lanes);
  return name;
}

static inline const char* kw_kind_name(int32_t type_index) {
  switch (type_index) {
    case kTVMFFINone: return "None";
    case kTVMFFIInt: return "int";
    case kTVMFFIBool: return "bool";
    case kTVMFFIFloat: return "float";
    case kTVMFFIDataType: return "dtype";
    case kTVMFFIDevice: return "device";
    case kTVMFFIDLTensorPtr:
    case kTVMFFITensor: return "tensor";
    case kTVMFFIRawStr:
    case kTVMFFISmallStr:
    case kTVMFFIStr: return "str";
    default: return "another object";
  }
}

/* ---- arguments ---- */

enum { KW_MAX_DIMS = 16, KW_MAX_DEVICES = 64 };
enum { KW_EXACT = 0, KW_FOLDED = 1 }; /* KW_FOLDED: any number of leading dimensions stands for the first one */

#define KW_BOOL ((DLDataType){kDLBool, 8, 1})
#define KW_I8 ((DLDataType){kDLInt, 8, 1})
#define KW_I16 ((DLDataType){kDLInt, 16, 1})
#define KW_I32 ((DLDataType){kDLInt, 32, 1})
#define KW_I64 ((DLDataType){kDLInt, 64, 1})
#define KW_U8 ((DLDataType){kDLUInt, 8, 1})
#define KW_U16 ((DLDataType){kDLUInt, 16, 1})
#define KW_U32 ((DLDataType){kDLUInt, 32, 1})
#define KW_U64 ((DLDataType){kDLUInt, 64, 1})
#define KW_BF16 ((DLDataType){kDLBfloat, 16, 1})
#define KW_F16 ((DLDataType){kDLFloat, 16, 1})
#define KW_F32 ((DLDataType){kDLFloat, 32, 1})
#define KW_F64 ((DLDataType){kDLFloat, 64, 1})
#define KW_LIST(...) ((const int64_t[]){__VA_ARGS__})

/* One call: its arguments, and the device of the first tensor, which all others must share. */
typedef struct {
  const TVMFFIAny* args;
  DLDevice device;
  const char* first; /* name of the tensor that gave the device */
} KwCall;

/* A tensor as the kernel sees it: leading dimensions folded. `leading` dimensions of `dl` became the first one. */
typedef struct {
  const char* name;
  const DLTensor* dl;
  void* data;
  int ndim, leading;
  int64_t shape[KW_MAX_DIMS], strides[KW_MAX_DIMS];
  bool foldable; /* the leading dimensions are contiguous among themselves */
} KwTensor;

static inline long long kw_min(long long a, long long b) { return a < b ? a : b; }
static inline long long kw_max(long long a, long long b) { return a > b ? a : b; }

static inline int kw_count(int32_t got, int32_t expected, const char* names) {
  if (got == expected) return 0;
  return kw_raise("TypeError", "expected %d arguments (%s), got %d", expected, names, got);
}

/* Shape and strides of the folded view. Dimensions of one element never take part in a stride. */
static inline int kw_fold(KwTensor* tensor) {
  const DLTensor* dl = tensor->dl;
  int64_t strides[KW_MAX_DIMS], rows = 1, run = 1, row_stride = 0;
  for (int i = dl->ndim - 1; i >= 0; --i) {
    strides[i] = dl->strides ? dl->strides[i] : run;
    run = (int64_t)((uint64_t)run * (uint64_t)dl->shape[i]);
  }
  tensor->foldable = true;
  for (int i = tensor->leading - 1; i >= 0; --i) {
    if (dl->shape[i] != 1) {
      if (row_stride == 0 && rows == 1) row_stride = strides[i];
      else if (strides[i] != rows * row_stride) tensor->foldable = false;
    }
    if (__builtin_mul_overflow(rows, dl->shape[i], &rows))
      return kw_raise("ValueError", "argument %s: expected fewer than 2^63 elements, got shape %s", tensor->name,
                      kw_list(dl->shape, dl->ndim).text);
  }
  tensor->shape[0] = rows;
  tensor->strides[0] = row_stride;
  for (int i = 1; i < tensor->ndim; ++i) {
    tensor->shape[i] = dl->shape[i - 1 + tensor->leading];
    tensor->strides[i] = strides[i - 1 + tensor->leading];
  }
  return 0;
}

/* Type, dtype, device and number of dimensions of the tensor at `position`. */
static inline int kw_tensor(KwCall* call, int position, const char* name, DLDataType dtype, int ndim, int folded,
                            KwTensor* tensor) {
  const TVMFFIAny* value = &call->args[position];
  const DLTensor* dl;
  if (value->type_index == kTVMFFIDLTensorPtr)
    dl = (const DLTensor*)value->v_ptr;
  else if (value->type_index == kTVMFFITensor)
    dl = (const DLTensor*)((const char*)value->v_obj + sizeof(TVMFFIObject));
  else
    return kw_raise("TypeError", "argument %s: expected a tensor, got %s", name, kw_kind_name(value->type_index));
  if (dl->dtype.code != dtype.code || dl->dtype.bits != dtype.bits || dl->dtype.lanes != dtype.lanes)
    return kw_raise("TypeError", "argument %s: expected dtype %s, got %s", name, kw_dtype_name(dtype).text,
                    kw_dtype_name(dl->dtype).text);
  if (dl->device.device_type != kDLCUDA)
    return kw_raise("ValueError", "argument %s: expected a CUDA tensor, got one on %s", name,
                    kw_device_name(dl->device).text);
  if (dl->device.device_id < 0 || dl->device.device_id >= KW_MAX_DEVICES)
    return kw_raise("ValueError", "argument %s: expected a device below cuda:%d, got %s", name, KW_MAX_DEVICES,
                    kw_device_name(dl->device).text);
  if (call->first == NULL) {
    call->first = name;
    call->device = dl->device;
  } else if (dl->device.device_id != call->device.device_id) {
    return kw_raise("ValueError", "argument %s: expected %s, the device of %s, got %s", name,
                    kw_device_name(call->device).text, call->first, kw_device_name(dl->device).text);
  }
  if (folded ? dl->ndim < ndim - 1 || dl->ndim > KW_MAX_DIMS : dl->ndim != ndim)
    return kw_raise("ValueError", "argument %s: expected %s%d dimensions, got %d: shape %s", name,
                    folded ? "at least " : "", folded ? ndim - 1 : ndim, dl->ndim, kw_list(dl->shape, dl->ndim).text);
  tensor->name = name;
  tensor->dl = dl;
  tensor->data = (char*)dl->data + dl->byte_offset;
  tensor->ndim = ndim;
  tensor->leading = dl->ndim - ndim + 1;
  return kw_fold(tensor);
}

/* `where` is "" or says which dimension of which tensor the number is. */
static inline int kw_in_limits(const char* where, const char* name, long long value, long long low, long long high,
                               long long multiple) {
  if (value < low || value > high)
    return kw_raise("ValueError", "argument %s%s: expected %lld to %lld, got %lld", where, name, low, high, value);
  if (value % multiple != 0)
    return kw_raise("ValueError", "argument %s%s: expected a multiple of %lld, got %lld", where, name, multiple, value);
  return 0;
}

/* An integer that is read from a shape: dimension `dim` of `tensor`, after folding. */
static inline int kw_dimension(const KwTensor* tensor, int dim, const char* name, long long low, long long high,
                               long long multiple) {
  char where[160];
  const long long value = tensor->shape[dim];
  if (value >= low && value <= high && value % multiple == 0) return 0;
  snprintf(where, sizeof where, "%s: dimension %d, ", tensor->name, dim);
  return kw_in_limits(where, name, value, low, high, multiple);
}

/* An integer that the caller passes. */
static inline int kw_integer(const KwCall* call, int position, const char* name, long long low, long long high,
                             long long multiple, long long* value) {
  const TVMFFIAny* given = &call->args[position];
  if (given->type_index != kTVMFFIInt)
    return kw_raise("TypeError", "argument %s: expected an int, got %s", name, kw_kind_name(given->type_index));
  *value = given->v_int64;
  return kw_in_limits("", name, *value, low, high, multiple);
}

static inline int kw_boolean(const KwCall* call, int position, const char* name, bool* value) {
  const TVMFFIAny* given = &call->args[position];
  if (given->type_index != kTVMFFIBool)
    return kw_raise("TypeError", "argument %s: expected a bool, got %s", name, kw_kind_name(given->type_index));
  *value = given->v_int64 != 0;
  return 0;
}

/* A finite number from `low` to `high`; an int is taken as the number it is. */
static inline int kw_real(const KwCall* call, int position, const char* name, double low, double high, double* value) {
  const TVMFFIAny* given = &call->args[position];
  if (given->type_index == kTVMFFIFloat)
    *value = given->v_float64;
  else if (given->type_index == kTVMFFIInt)
    *value = (double)given->v_int64;
  else
    return kw_raise("TypeError", "argument %s: expected a float, got %s", name, kw_kind_name(given->type_index));
  if (!(*value >= low && *value <= high)) /* also false for a NaN */
    return kw_raise("ValueError", "argument %s: expected a finite number from %g to %g, got %g", name, low, high,
                    *value);
  return 0;
}

/* Shape, strides, data pointer and alignment (bytes). `shape_text` and `strides_text` are the declared expressions. */
static inline int kw_layout(const KwTensor* tensor, const char* shape_text, const int64_t* shape,
                            const char* strides_text, const int64_t* strides, int alignment) {
  const DLTensor* dl = tensor->dl;
  int64_t elements = 1;
  for (int i = 0; i < tensor->ndim; ++i) {
    if (tensor->shape[i] != shape[i])
      return kw_raise("ValueError", "argument %s: expected shape %s = %s%s, got %s", tensor->name, shape_text,
                      kw_list(shape, tensor->ndim).text, tensor->leading == 1 ? "" : " after folding",
                      kw_list(dl->shape, dl->ndim).text);
    elements *= shape[i];
  }
  if (elements == 0) return 0;
  bool strides_match = tensor->foldable;
  for (int i = 0; i < tensor->ndim; ++i) strides_match &= tensor->shape[i] == 1 || tensor->strides[i] == strides[i];
  if (!strides_match) {
    KwText got = dl->strides ? kw_list(dl->strides, dl->ndim) : (KwText){"[contiguous]"};
    return kw_raise("ValueError", "argument %s: expected strides %s = %s%s, got %s for shape %s", tensor->name,
                    strides_text, kw_list(strides, tensor->ndim).text,
                    tensor->leading == 1 ? "" : " after folding contiguous leading dimensions", got.text,
                    kw_list(dl->shape, dl->ndim).text);
  }
  if (dl->data == NULL)
    return kw_raise("ValueError", "argument %s: expected data, got a null pointer for %lld elements (a fake tensor?)",
                    tensor->name, (long long)elements);
  if ((uintptr_t)tensor->data % (uintptr_t)alignment != 0)
    return kw_raise("ValueError", "argument %s: expected data aligned to %d bytes, got address 0x%llx (%d bytes past)",
                    tensor->name, alignment, (unsigned long long)(uintptr_t)tensor->data,
                    (int)((uintptr_t)tensor->data % (uintptr_t)alignment));
  return 0;
}
/* ---- the driver ---- */

#define KW_DRIVER_FUNCTIONS(X)                                                                             \
  X(cuInit) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGet) X(cuDeviceGetAttribute)                   \
  X(cuDevicePrimaryCtxRetain) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice) X(cuLibraryLoadData) \
  X(cuLibraryGetKernel) X(cuKernelGetFunction) X(cuKernelSetAttribute) X(cuThreadExchangeStreamCaptureMode) \
  X(cuLaunchKernelEx)

#define KW_MEMBER(function) __typeof__(&function) function;
static struct {
  void* handle;
  KW_DRIVER_FUNCTIONS(KW_MEMBER)
} kw_driver;

static pthread_mutex_t kw_lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below while it is being set up */
static CUlibrary kw_library;
static CUkernel kw_kernel; /* belongs to no context: one serves all devices */
static CUdevice kw_device[KW_MAX_DEVICES];
static CUcontext kw_primary[KW_MAX_DEVICES];
static _Atomic bool kw_prepared[KW_MAX_DEVICES];

__attribute__((cold, noinline)) static int kw_driver_error(const char* call, CUresult status, const char* detail) {
  const char *name = NULL, *text = NULL;
  kw_driver.cuGetErrorName(status, &name);
  kw_driver.cuGetErrorString(status, &text);
  if (name == NULL) name = "an unknown error";
  if (text == NULL) text = "no description";
  return kw_raise("RuntimeError", "%s failed with %s (%d): %s%s", call, name, (int)status, text, detail);
}

#define KW_TRY(function, ...)                                                                  \
  do {                                                                                         \
    CUresult kw_status = kw_driver.function(__VA_ARGS__);                                      \
    if (kw_status != CUDA_SUCCESS) return kw_driver_error(#function, kw_status, "");           \
  } while (0)

static inline int kw_open_driver(void) {
  if (kw_driver.handle != NULL) return 0;
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return kw_raise("RuntimeError", "no CUDA driver: %s", dlerror());
#define KW_TEXT_(function) #function
#define KW_TEXT(function) KW_TEXT_(function) /* the versioned name that cuda.h gives a function */
#define KW_RESOLVE(function)                                                                                  \
  if ((kw_driver.function = (__typeof__(&function))dlsym(handle, KW_TEXT(function))) == NULL) {               \
    dlclose(handle);                                                                                          \
    return kw_raise("RuntimeError", "the CUDA driver has no %s: kernwright needs a driver for CUDA 12.0 or newer", \
                    KW_TEXT(function));                                                                       \
  }
  KW_DRIVER_FUNCTIONS(KW_RESOLVE)
  KW_TRY(cuInit, 0);
  kw_driver.handle = handle;
  return 0;
}

/* Makes a context of `device` current. `*restore` is the context to put back afterwards, NULL for none. A thread
 * that never used CUDA (a worker of autograd) has no context; it gets and keeps the device's primary one, torch's. */
static inline int kw_enter(int device, CUcontext* restore) {
  CUdevice current;
  CUresult status = kw_driver.cuCtxGetDevice(&current);
  *restore = NULL;
  if (status == CUDA_SUCCESS && current == kw_device[device]) return 0;
  if (status == CUDA_SUCCESS)
    KW_TRY(cuCtxGetCurrent, restore);
  else if (status != CUDA_ERROR_INVALID_CONTEXT)
    return kw_driver_error("cuCtxGetDevice", status, "");
  KW_TRY(cuCtxSetCurrent, kw_primary[device]);
  return 0;
}

static inline int kw_load(void) {
  if (kw_library == NULL) {
    CUlibrary library;
    KW_TRY(cuLibraryLoadData, &library, kw_cubin, NULL, NULL, 0, NULL, NULL, 0);
    kw_library = library;
  }
  if (kw_kernel == NULL) KW_TRY(cuLibraryGetKernel, &kw_kernel, kw_library, KW_PROGRAM);
  return 0;
}

/* What a device needs once: the right architecture, the loaded kernel, its attributes. Runs in the device's context. */
static inline int kw_set_up(int device) {
  CUfunction loaded;
  static const int cluster[3] = KW_CLUSTER;
  if (kw_load()) return -1;
  if (KW_SHARED_BYTES > 48 * 1024)
    KW_TRY(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, KW_SHARED_BYTES, kw_kernel,
           kw_device[device]);
  if (cluster[0] * cluster[1] * cluster[2] > 8)
    KW_TRY(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1, kw_kernel, kw_device[device]);
  KW_TRY(cuKernelGetFunction, &loaded, kw_kernel); /* loads now what would else load at the first launch */
  return 0;
}

static inline int kw_prepare_locked(int device) {
  int major, minor;
  CUcontext restore;
  if (atomic_load_explicit(&kw_prepared[device], memory_order_relaxed)) return 0;
  if (kw_open_driver()) return -1;
  KW_TRY(cuDeviceGet, &kw_device[device], device);
  KW_TRY(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kw_device[device]);
  KW_TRY(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, kw_device[device]);
  if (major != KW_MAJOR || minor != KW_MINOR)
    return kw_raise("RuntimeError", "this library is for %s (compute capability %d.%d), cuda:%d has %d.%d",
                    KW_ARCHITECTURE, KW_MAJOR, KW_MINOR, device, major, minor);
  if (kw_primary[device] == NULL) KW_TRY(cuDevicePrimaryCtxRetain, &kw_primary[device], kw_device[device]);
  /* Loading is no part of a graph: a capture that another stream or this one has begun must not forbid it. */
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  KW_TRY(cuThreadExchangeStreamCaptureMode, &mode);
  int failed = kw_enter(device, &restore);
  if (!failed) {
    failed = kw_set_up(device);
    if (restore != NULL) kw_driver.cuCtxSetCurrent(restore);
  }
  kw_driver.cuThreadExchangeStreamCaptureMode(&mode);
  if (!failed) atomic_store_explicit(&kw_prepared[device], true, memory_order_release);
  return failed;
}

/* Thread-safe; a failure is not remembered, so a later call tries again. */
static inline int kw_prepare(int device) {
  pthread_mutex_lock(&kw_lock);
  int failed = kw_prepare_locked(device);
  pthread_mutex_unlock(&kw_lock);
  return failed;
}

/* Launches on the current stream of `device`. A grid without blocks launches nothing and needs no driver. */
static inline int kw_launch(DLDevice device, const long long grid[3], void** arguments) {
  static const long long most[3] = {2147483647, 65535, 65535};
  static const int cluster[3] = KW_CLUSTER;
  for (int i = 0; i < 3; ++i) {
    if (grid[i] < 0 || grid[i] > most[i])
      return kw_raise("ValueError", "grid %c: expected at most %lld blocks, got %lld", "xyz"[i], most[i], grid[i]);
    if (grid[i] % cluster[i] != 0)
      return kw_raise("ValueError", "grid %c: expected a multiple of the cluster's %d blocks, got %lld", "xyz"[i],
                      cluster[i], grid[i]);
  }
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return 0;
  if (!atomic_load_explicit(&kw_prepared[device.device_id], memory_order_acquire) && kw_prepare(device.device_id))
    return -1;
  CUcontext restore;
  if (kw_enter(device.device_id, &restore)) return -1;

  CUlaunchAttribute attributes[1];
  CUlaunchConfig config = {
      .gridDimX = (unsigned)grid[0], .gridDimY = (unsigned)grid[1], .gridDimZ = (unsigned)grid[2],
      .blockDimX = KW_THREADS, .blockDimY = 1, .blockDimZ = 1,
      .sharedMemBytes = KW_SHARED_BYTES,
      .hStream = (CUstream)TVMFFIEnvGetStream(kDLCUDA, device.device_id),
      .attrs = attributes, .numAttrs = 0};
  if (cluster[0] * cluster[1] * cluster[2] > 1) {
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = (unsigned)cluster[0];
    attributes[0].value.clusterDim.y = (unsigned)cluster[1];
    attributes[0].value.clusterDim.z = (unsigned)cluster[2];
    config.numAttrs = 1;
  }
  CUresult status = kw_driver.cuLaunchKernelEx(&config, (CUfunction)kw_kernel, arguments, NULL);
  CUresult restored = restore != NULL ? kw_driver.cuCtxSetCurrent(restore) : CUDA_SUCCESS;
  if (status != CUDA_SUCCESS) {
    char detail[160];
    snprintf(detail, sizeof detail, " (grid %lld x %lld x %lld, %d threads, %d dynamic shared bytes, cuda:%d)",
             grid[0], grid[1], grid[2], KW_THREADS, KW_SHARED_BYTES, device.device_id);
    return kw_driver_error("cuLaunchKernelEx", status, detail);
  }
  if (restored != CUDA_SUCCESS) return kw_driver_error("cuCtxSetCurrent", restored, "");
  return 0;
}

/* prepare(device): loads the kernel for a device, so that a graph capture or a timed call finds it ready. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_prepare(void* ffi_self, const TVMFFIAny* ffi_args, int32_t ffi_count,
                                         TVMFFIAny* ffi_result) {
  KwCall kw_call = {.args = ffi_args};
  long long device;
  (void)ffi_self;
  if (kw_count(ffi_count, 1, "device")) return -1;
  if (kw_integer(&kw_call, 0, "device", 0, KW_MAX_DEVICES - 1, 1, &device)) return -1;
  if (kw_prepare((int)device)) return -1;
  ffi_result->type_index = kTVMFFINone;
  return 0;
}
#endif /* KERNWRIGHT_BINDING_H_ */
