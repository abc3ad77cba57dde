# The CUDA half: compiler, architecture, and the libraries as one target, gristmill_cuda_libraries.
# Needs: nvcc 13, the headers of cuBLASLt, NVRTC and cuDNN 9 (in CUDA's folder or CUDNN_ROOT), and
# of cudnn-frontend and CUTLASS, which cmake/fetch_headers.sh puts under build/cuda-headers when
# CUDA_HEADERS_DIR is not given.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
# PTX of 8.0 runs on every GPU since Ampere, compiled by the driver at the first start; 9.0a is
# Hopper's own code. `./bootstrap package` takes machine code for all.
set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90a-real CACHE STRING "GPU code that the programs hold")
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
# CMake 3.25 does not know that nvcc supports C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
if(CMAKE_CUDA_ARCHITECTURES MATCHES "^(native|all|all-major)$")
  string(REPLACE - _ kind "${CMAKE_CUDA_ARCHITECTURES}")
  string(TOUPPER ${kind} kind)
  set(GPU_CODE ${CMAKE_CUDA_ARCHITECTURES_${kind}})
else()
  set(GPU_CODE ${CMAKE_CUDA_ARCHITECTURES})
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
set(host_warnings -Wall,-Wextra,-Wno-missing-field-initializers)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=${host_warnings}>")

find_package(CUDAToolkit 13 REQUIRED)
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES
  include REQUIRED)
if(NOT CUDA_HEADERS_DIR)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/cmake/fetch_headers.sh
    ${PROJECT_SOURCE_DIR}/build/cuda-headers
                  COMMAND_ERROR_IS_FATAL ANY)
  set(CUDA_HEADERS_DIR ${PROJECT_SOURCE_DIR}/build/cuda-headers/include CACHE PATH "" FORCE)
endif()

add_library(gristmill_cuda_libraries INTERFACE)
target_include_directories(gristmill_cuda_libraries SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS}
  ${CUDNN_INCLUDE_DIR}
                           ${CUDA_HEADERS_DIR})
# cuBLASLt, cuDNN, NVRTC and NCCL are opened at run time by the code that calls them
# (trainer/ops/cuda/library.h).
target_link_libraries(gristmill_cuda_libraries INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS}
  Threads::Threads)
