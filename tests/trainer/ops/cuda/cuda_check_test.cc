// How a failed call of CUDA is reported: a broken device is distinguished from a bad request,
// because a job may continue without a broken device. Needs no GPU.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_check.h"

#include <gmock/gmock.h>

namespace ops::cuda {
namespace {

void fail(cudaError_t status) { check_cuda(status, "cudaThis(that)", "file.cc", 7); }

TEST(CudaCheck, SuccessIsSilent) { EXPECT_NO_THROW(fail(cudaSuccess)); }

TEST(CudaCheck, ABrokenDeviceIsAFault) {
  for (const cudaError_t status :
       {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContained,
        cudaErrorNoDevice, cudaErrorDevicesUnavailable, cudaErrorUnknown}) {
    EXPECT_THROW(fail(status), DeviceFault) << cudaGetErrorString(status);
  }
}

TEST(CudaCheck, WhatWasAskedWronglyIsNone) {
  for (const cudaError_t status : {cudaErrorMemoryAllocation, cudaErrorInvalidValue,
                                   cudaErrorIllegalAddress, cudaErrorLaunchFailure}) {
    try {
      fail(status);
      ADD_FAILURE() << cudaGetErrorString(status) << " passed";
    } catch (const DeviceFault& fault) {
      ADD_FAILURE() << fault.what();
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.what(), std::string("cuda: cudaThis(that): ") + cudaGetErrorString(status) +
                                  " (file.cc:7)");
    }
  }
}

}  // namespace
}  // namespace ops::cuda
