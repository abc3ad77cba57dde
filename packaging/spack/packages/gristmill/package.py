# SPDX-License-Identifier: MIT
# In a clone of the tree:  spack repo add packaging/spack && spack dev-build gristmill@0.1.0
from spack.package import *


class Gristmill(CMakePackage):
    """Raw text to a language model: Megatron datasets, trainer, conversion."""

    license("MIT")
    version("0.1.0")

    variant("cuda", default=False, description="Build the CUDA half of the trainer")

    generator("ninja")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("pkgconfig", type="build")
    for library in """
        simdjson nlohmann-json icu4c zstd zlib bzip2 xz expat intel-oneapi-tbb cxxopts yaml-cpp
        openssl@3:
    """.split():
        depends_on(library)
    depends_on("cuda@13:", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl", when="+cuda")
    # The headers of cudnn-frontend and CUTLASS: pip downloads their wheels.
    depends_on("python", type="build", when="+cuda")
    depends_on("py-pip", type="build", when="+cuda")

    conflicts("%gcc@:11", msg="C++20 needs GCC 12 or newer")

    def cmake_args(self):
        return [self.define_from_variant("CUDA", "cuda"), self.define("BUILD_TESTING", False)]
