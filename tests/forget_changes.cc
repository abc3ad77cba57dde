// Lets all tests of a program run in one process: what one of them does to a file that is mapped
// would be held against the outputs of all later ones.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "libindexed/mapped_file.h"

namespace {

class ForgetChanges : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { indexed::forget_changed_files(); }
};

const bool listens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ForgetChanges);
  return true;
}();

}  // namespace
