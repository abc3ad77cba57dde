// The functions of NCCL that nccl.cc calls, each forwarded to the library, which the first call
// opens (ops/cuda/library.h). Their addresses are hidden: the library does not call these.
// SPDX-License-Identifier: MIT
#pragma GCC visibility push(hidden)
#include <nccl.h>

#include "trainer/ops/cuda/library.h"

namespace {

const ops::cuda::Library& nccl() {
  static const ops::cuda::Library library("libnccl.so.2");
  return library;
}

}  // namespace

#define NCCL(name, parameters, arguments) \
  FORWARD_TO(nccl, ncclResult_t, name, parameters, arguments)

extern "C" {

FORWARD_TO(nccl, const char*, ncclGetErrorString, (ncclResult_t result), (result))
FORWARD_TO(nccl, const char*, ncclGetLastError, (ncclComm_t comm), (comm))
NCCL(ncclGetUniqueId, (ncclUniqueId * id), (id))
NCCL(ncclCommInitRankConfig,
     (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config),
     (comm, size, id, rank, config))
NCCL(ncclCommDestroy, (ncclComm_t comm), (comm))
NCCL(ncclCommAbort, (ncclComm_t comm), (comm))
NCCL(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error), (comm, error))
NCCL(ncclAllReduce,
     (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
      ncclComm_t comm, cudaStream_t stream),
     (from, to, count, type, operation, comm, stream))
NCCL(ncclReduceScatter,
     (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
      ncclComm_t comm, cudaStream_t stream),
     (from, to, count, type, operation, comm, stream))
NCCL(ncclAllGather,
     (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
      cudaStream_t stream),
     (from, to, count, type, comm, stream))
NCCL(ncclBroadcast,
     (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
      cudaStream_t stream),
     (from, to, count, type, root, comm, stream))
NCCL(ncclSend,
     (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
      cudaStream_t stream),
     (from, count, type, peer, comm, stream))
NCCL(ncclRecv,
     (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
     (to, count, type, peer, comm, stream))
NCCL(ncclGroupStart, (), ())
NCCL(ncclGroupEnd, (), ())
}
#pragma GCC visibility pop
