// The functions of cuBLASLt, cuDNN and NVRTC that this room and cudnn-frontend call, each forwarded
// to the library, which the first call opens. The symbols are hidden, so that the libraries call
// one another and not these.
// SPDX-License-Identifier: MIT
#pragma GCC visibility push(hidden)
#include <cublasLt.h>
#include <cudnn.h>
#include <nvrtc.h>

#include "trainer/ops/cuda/library.h"

namespace {

using ops::cuda::Library;

const Library& cublaslt() {
  static const Library library("libcublasLt.so.13");
  return library;
}

const Library& nvrtc() {
  static const Library library("libnvrtc.so.13");
  return library;
}

const Library& cudnn() {
  static const Library library("libcudnn.so.9");
  return library;
}

}  // namespace

#define LT(result, name, parameters, arguments) \
  FORWARD_TO(cublaslt, result, name, parameters, arguments)
#define DNN(result, name, parameters, arguments) \
  FORWARD_TO(cudnn, result, name, parameters, arguments)
#define RTC(name, parameters, arguments) FORWARD_TO(nvrtc, nvrtcResult, name, parameters, arguments)

extern "C" {

LT(size_t, cublasLtGetVersion, (), ())
LT(const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
LT(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
LT(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))
LT(cublasStatus_t, cublasLtMatmul,
   (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
    cublasLtMatrixLayout_t a_desc, const void* b, cublasLtMatrixLayout_t b_desc, const void* beta,
    const void* c, cublasLtMatrixLayout_t c_desc, void* d, cublasLtMatrixLayout_t d_desc,
    const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
    cudaStream_t stream),
   (handle, desc, alpha, a, a_desc, b, b_desc, beta, c, c_desc, d, d_desc, algorithm, workspace,
    workspace_bytes, stream))
LT(cublasStatus_t, cublasLtMatmulAlgoCheck,
   (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result),
   (handle, desc, a, b, c, d, algorithm, result))
LT(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
   (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int asked, cublasLtMatmulHeuristicResult_t* results,
    int* given),
   (handle, desc, a, b, c, d, preference, asked, results, given))
LT(cublasStatus_t, cublasLtMatmulDescCreate,
   (cublasLtMatmulDesc_t * desc, cublasComputeType_t compute, cudaDataType_t scale),
   (desc, compute, scale))
LT(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc), (desc))
LT(cublasStatus_t, cublasLtMatmulDescSetAttribute,
   (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, const void* value,
    size_t bytes),
   (desc, which, value, bytes))
LT(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference),
   (preference))
LT(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference),
   (preference))
LT(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
   (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
    const void* value, size_t bytes),
   (preference, which, value, bytes))
LT(cublasStatus_t, cublasLtMatrixLayoutCreate,
   (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns,
    int64_t pitch),
   (layout, type, rows, columns, pitch))
LT(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))
LT(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,
   (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const void* value,
    size_t bytes),
   (layout, which, value, bytes))

DNN(size_t, cudnnGetVersion, (), ())
DNN(const char*, cudnnGetErrorString, (cudnnStatus_t status), (status))
DNN(void, cudnnGetLastErrorString, (char* message, size_t bytes), (message, bytes))
DNN(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))
DNN(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))
DNN(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
DNN(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream), (handle, stream))
DNN(cudnnStatus_t, cudnnBackendCreateDescriptor,
    (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor), (type, descriptor))
DNN(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor),
    (descriptor))
DNN(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
DNN(cudnnStatus_t, cudnnBackendSetAttribute,
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
     cudnnBackendAttributeType_t type, int64_t count, const void* elements),
    (descriptor, name, type, count, elements))
DNN(cudnnStatus_t, cudnnBackendGetAttribute,
    (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
     cudnnBackendAttributeType_t type, int64_t asked, int64_t* given, void* elements),
    (descriptor, name, type, asked, given, elements))
DNN(cudnnStatus_t, cudnnBackendExecute,
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variant),
    (handle, plan, variant))

RTC(nvrtcCreateProgram,
    (nvrtcProgram * program, const char* source, const char* name, int count,
     const char* const* headers, const char* const* include_names),
    (program, source, name, count, headers, include_names))
RTC(nvrtcCompileProgram, (nvrtcProgram program, int count, const char* const* options),
    (program, count, options))
RTC(nvrtcDestroyProgram, (nvrtcProgram * program), (program))
RTC(nvrtcGetCUBINSize, (nvrtcProgram program, size_t* bytes), (program, bytes))
RTC(nvrtcGetCUBIN, (nvrtcProgram program, char* cubin), (program, cubin))
RTC(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t* bytes), (program, bytes))
RTC(nvrtcGetProgramLog, (nvrtcProgram program, char* log), (program, log))
}
#pragma GCC visibility pop
