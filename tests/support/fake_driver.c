/* A CUDA driver that launches nothing: it answers as a driver would, writes down every call, and fails on demand.
 *
 * Built as libcuda.so.1 and found through LD_LIBRARY_PATH. A test controls and reads it through the fake_* functions.
 * A context is 0x1000 + device; the current one belongs to the calling thread, as in the real driver.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char record[1 << 16];
static size_t used;
static char failing[64];
static int failing_code, failing_times;
static int major = 9, minor = 0, devices = 2, quiet;
static int sizes[64], arguments;
static __thread CUcontext current;
static __thread CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void write_down(const char* format, ...) {
  va_list values;
  if (quiet) return;
  pthread_mutex_lock(&lock);
  if (used > sizeof record - 8192) { /* full: a test that reads so much resets first */
    pthread_mutex_unlock(&lock);
    return;
  }
  va_start(values, format);
  used += (size_t)vsnprintf(record + used, sizeof record - used, format, values);
  va_end(values);
  used += (size_t)snprintf(record + used, sizeof record - used, "\n");
  pthread_mutex_unlock(&lock);
}

/* The code to fail with, if the test asked `function` to fail. */
static CUresult verdict(const char* function) {
  if (failing_times == 0 || strcmp(function, failing) != 0) return CUDA_SUCCESS;
  --failing_times;
  return (CUresult)failing_code;
}

#define ANSWER(function)                     \
  do {                                       \
    CUresult status = verdict(#function);    \
    if (status != CUDA_SUCCESS) return status; \
  } while (0)

void fake_reset(void) { used = 0; record[0] = 0; failing_times = 0; }
const char* fake_record(void) { return record; }
void fake_fail(const char* function, int code, int times) {
  snprintf(failing, sizeof failing, "%s", function);
  failing_code = code;
  failing_times = times;
}
void fake_capability(int new_major, int new_minor) { major = new_major; minor = new_minor; }
void fake_arguments(const int* new_sizes, int count) {
  arguments = count;
  memcpy(sizes, new_sizes, sizeof(int) * (size_t)count);
}
void fake_set_context(int device) { current = device < 0 ? NULL : (CUcontext)(uintptr_t)(0x1000 + device); }
int fake_get_context(void) { return current ? (int)((uintptr_t)current - 0x1000) : -1; }

/* Nanoseconds per call of a binding's function: its whole host path, without Python. */
double fake_time(int (*function)(void*, const void*, int, void*), const void* args, int count, int calls) {
  struct timespec start, stop;
  char result[16] = {0};
  int failed = 0;
  quiet = 1;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < calls; ++i) failed |= function(NULL, args, count, result);
  clock_gettime(CLOCK_MONOTONIC, &stop);
  quiet = 0;
  if (failed) return -1.0;
  return ((double)(stop.tv_sec - start.tv_sec) * 1e9 + (double)(stop.tv_nsec - start.tv_nsec)) / calls;
}

CUresult cuInit(unsigned flags) {
  write_down("cuInit %u", flags);
  ANSWER(cuInit);
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
          : error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == CUDA_ERROR_NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
                                              : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_INVALID_VALUE   ? "invalid argument"
          : error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
          : error == CUDA_ERROR_NO_DEVICE     ? "no CUDA-capable device is detected"
                                              : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ANSWER(cuDeviceGet);
  if (ordinal < 0 || ordinal >= devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  ANSWER(cuDeviceGetAttribute);
  (void)device;
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? major : minor;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  write_down("cuDevicePrimaryCtxRetain %d", device);
  ANSWER(cuDevicePrimaryCtxRetain);
  *context = (CUcontext)(uintptr_t)(0x1000 + device);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  ANSWER(cuCtxGetCurrent);
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  write_down("cuCtxSetCurrent %d", context ? (int)((uintptr_t)context - 0x1000) : -1);
  ANSWER(cuCtxSetCurrent);
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  ANSWER(cuCtxGetDevice);
  if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *device = (int)((uintptr_t)current - 0x1000);
  return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options, void** jit_values,
                           unsigned jit_count, CUlibraryOption* options, void** values, unsigned count) {
  (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
  write_down("cuLibraryLoadData %.8s aligned %d capture %d", (const char*)code, (uintptr_t)code % 64 == 0,
             (int)capture_mode);
  ANSWER(cuLibraryLoadData);
  *library = (CUlibrary)0x2000;
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  (void)library;
  write_down("cuLibraryGetKernel %s", name);
  ANSWER(cuLibraryGetKernel);
  *kernel = (CUkernel)0x3000;
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  (void)kernel;
  write_down("cuKernelGetFunction in %d", fake_get_context());
  ANSWER(cuKernelGetFunction);
  if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *function = (CUfunction)0x4000;
  return CUDA_SUCCESS;
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  (void)kernel;
  write_down("cuKernelSetAttribute %d = %d on %d", (int)attribute, value, device);
  ANSWER(cuKernelSetAttribute);
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  CUstreamCaptureMode old = capture_mode;
  ANSWER(cuThreadExchangeStreamCaptureMode);
  capture_mode = *mode;
  *mode = old;
  return CUDA_SUCCESS;
}
/* A map is 16 words: the address that it was made with, each of them with its place in the low bits. */
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  char text[512];
  int length = 0;
#define PUT(...) length += snprintf(text + length, sizeof text - (size_t)length, __VA_ARGS__)
  for (unsigned i = 0; i < rank; ++i) PUT(" %llu", (unsigned long long)extents[i]);
  PUT(" strides");
  for (unsigned i = 0; i + 1 < rank; ++i) PUT(" %llu", (unsigned long long)strides[i]);
  PUT(" box");
  for (unsigned i = 0; i < rank; ++i) PUT(" %u", box[i]);
  PUT(" steps");
  for (unsigned i = 0; i < rank; ++i) PUT(" %u", steps[i]);
#undef PUT
  write_down("cuTensorMapEncodeTiled 0x%llx type %d rank %u extents%s interleave %d swizzle %d promotion %d fill %d "
             "aligned %d in %d", (unsigned long long)(uintptr_t)address, (int)type, rank, text, (int)interleave,
             (int)swizzle, (int)promotion, (int)fill, (uintptr_t)map % 64 == 0, fake_get_context());
  ANSWER(cuTensorMapEncodeTiled);
  if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  for (int i = 0; i < CU_TENSOR_MAP_NUM_QWORDS; ++i) map->opaque[i] = (uintptr_t)address + (unsigned)i;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction kernel, void** values, void** extra) {
  char text[4096];
  int length = 0;
  (void)extra;
  if (!quiet) {
    for (int i = 0; i < arguments; ++i) {
      for (int from = 0; from < sizes[i]; from += 8) { /* the words of a long argument with commas */
        unsigned long long value = 0;
        memcpy(&value, (const char*)values[i] + from, (size_t)(sizes[i] - from < 8 ? sizes[i] - from : 8));
        length += snprintf(text + length, sizeof text - (size_t)length, from ? ",0x%llx" : " 0x%llx", value);
      }
    }
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute* attribute = &config->attrs[i];
      const int cluster = attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      unsigned first;
      memcpy(&first, &attribute->value, sizeof first);
      length += snprintf(text + length, sizeof text - (size_t)length, " attribute %d = %u", (int)attribute->id, first);
      if (cluster)
        length += snprintf(text + length, sizeof text - (size_t)length, " %u %u", attribute->value.clusterDim.y,
                           attribute->value.clusterDim.z);
    }
    text[length] = 0;
    write_down("cuLaunchKernelEx 0x%llx grid %u %u %u block %u %u %u shared %u stream 0x%llx in %d capture %d:%s",
               (unsigned long long)(uintptr_t)kernel, config->gridDimX, config->gridDimY, config->gridDimZ,
               config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes,
               (unsigned long long)(uintptr_t)config->hStream, fake_get_context(), (int)capture_mode, text);
  }
  ANSWER(cuLaunchKernelEx);
  return current == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
