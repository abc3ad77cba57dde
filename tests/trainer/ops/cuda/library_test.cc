// Where CUDA's libraries are searched for, the message when one is missing, and that the forwarded
// functions reach them. Needs no GPU; the last case needs the libraries.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/library.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <link.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "trainer/ops/tensor.h"

namespace ops::cuda {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// Of the libraries that a process has, those of CUDA that are forwarded to.
std::vector<std::string> vendor_libraries() {
  std::vector<std::string> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        const std::string name = fs::path(info->dlpi_name).filename();
        for (const char* vendor : {"libcublas", "libcudnn", "libnvrtc", "libnccl"}) {
          if (name.starts_with(vendor))
            static_cast<std::vector<std::string>*>(list)->push_back(name);
        }
        return 0;
      },
      &found);
  return found;
}

/// Before main(): no test has called anything yet.
const std::vector<std::string> at_start = vendor_libraries();

TEST(VendorCalls, NoLibraryIsThereBeforeItIsCalled) { EXPECT_THAT(at_start, ElementsAre()); }

class LibraryFolders : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "library_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string folder(const std::string& name) {
    fs::create_directories(root_ / name);
    return (root_ / name).string();
  }
  /// Those under root_; /usr/local/cuda and python3 of the machine are not ours.
  std::vector<std::string> found(const std::map<std::string, std::string>& environment) {
    std::vector<std::string> all = library_folders([&](const char* name) {
      const auto at = environment.find(name);
      return at == environment.end() ? "" : at->second;
    });
    std::erase_if(all, [&](const std::string& one) { return !one.starts_with(root_.string()); });
    return all;
  }
  fs::path root_;
};

TEST_F(LibraryFolders, AreThoseOfTheToolkitThenOfPythonInTheEnvironment) {
  const std::string toolkit = folder("cuda/lib64");
  const std::string venv = folder("venv/lib/python3.12/site-packages/nvidia/cudnn/lib");
  const std::string other = folder("venv/lib/python3.12/site-packages/nvidia/nccl/lib");
  const std::string conda = folder("conda/lib/python3.11/site-packages/nvidia/cu13/lib");
  EXPECT_THAT(found({{"CONDA_PREFIX", (root_ / "conda").string()},
                     {"VIRTUAL_ENV", (root_ / "venv").string()},
                     {"CUDA_HOME", (root_ / "cuda").string()}}),
              ElementsAre(toolkit, venv, other, conda));
  EXPECT_THAT(found({}), ElementsAre());
  EXPECT_THAT(found({{"CUDA_HOME", (root_ / "nowhere").string()}}), ElementsAre());
}

TEST_F(LibraryFolders, AreThoseOfEachPython3OnThePathAndOfTheUser) {
  const std::string first = folder("a/lib/python3.13/site-packages/nvidia/nccl/lib");
  const std::string system = folder("b/local/lib/python3.11/dist-packages/nvidia/nccl/lib");
  const std::string user = folder("home/.local/lib/python3.11/site-packages/nvidia/nccl/lib");
  folder("c/lib/python3.13/site-packages/nvidia/nccl/lib");  // without a python3
  for (const char* name : {"a/bin", "b/bin", "c/bin"}) folder(name);
  for (const char* name : {"a/bin/python3", "b/bin/python3"}) std::ofstream(root_ / name) << "";
  const std::string at = root_.string();
  EXPECT_THAT(
      found({{"PATH", at + "/c/bin:" + at + "/a/bin::relative:" + at + "/b/bin/:" + at + "/a/bin"},
             {"HOME", at + "/home"}}),
      ElementsAre(first, system, user));
}

TEST(Library, AMissingOneIsNamedWithWhereItWasLookedFor) {
  try {
    Library("libgristmill_has_none.so.7");
    ADD_FAILURE() << "it was opened";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuda: libgristmill_has_none.so.7: cannot open"));
    EXPECT_THAT(error.what(), HasSubstr("LD_LIBRARY_PATH"));
  }
}

TEST_F(LibraryFolders, AFileThatIsNoLibraryIsTheReason) {
  const std::string bad = folder("cuda/lib") + "/libgristmill_bad.so.7";
  std::ofstream(bad) << "not a library";
  setenv("CUDA_HOME", (root_ / "cuda").c_str(), 1);
  try {
    Library("libgristmill_bad.so.7");
    ADD_FAILURE() << "it was opened";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuda: " + bad + ": file too short"));
  }
  unsetenv("CUDA_HOME");
}

TEST(Library, AMissingFunctionIsNamedWithTheFile) {
  const Library c("libc.so.6");
  EXPECT_EQ(c.function<decltype(getpid)>("getpid")(), getpid());
  try {
    c.function<void()>("gristmill_has_none");
    ADD_FAILURE() << "it was found";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libc.so.6: has no gristmill_has_none"));
  }
}

TEST(VendorCalls, ReachTheLibrariesAndAreNotSeenByThem) {
  try {
    for (const char* name : {"libcublasLt.so.13", "libcudnn.so.9"}) Library{name};
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_EQ(cublasLtGetVersion() / 10000, 13);
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS), "success");
  EXPECT_EQ(cudnnGetVersion() / 10000, 9);
  EXPECT_THAT(vendor_libraries(), Contains(HasSubstr("libcudnn.so.9")));
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_SUCCESS), "CUDNN_STATUS_SUCCESS");
  for (const char* name : {"cublasLtGetVersion", "cudnnGetVersion"})
    EXPECT_EQ(dlsym(RTLD_DEFAULT, name), nullptr) << name;
}

}  // namespace
}  // namespace ops::cuda
