// --no-copy-engines where there is nothing that copy engines would carry out.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include "tests/trainer/config/small_config.h"

namespace trainer {
namespace {

using testing::ElementsAre;

TEST(CopyFlags, AreNotedWhereTheyChangeNothing) {
  TrainConfig config = small_config();
  config.no_copy_engines = true;
  const auto notes = [](TrainConfig c, int64_t world_size) {
    return derive_and_check(c, {}, world_size);
  };
  EXPECT_THAT(notes(config, 1), ElementsAre("--no-copy-engines: nothing to share on one device"));
  EXPECT_THAT(notes(config, 2),
              ElementsAre("--no-copy-engines changes nothing: no transfer is overlapped"));
  config.overlap_grad_reduce = true;
  EXPECT_THAT(notes(config, 2), ElementsAre());
  config.overlap_grad_reduce = false;
  config.zero_stage = 2;
  EXPECT_THAT(notes(config, 2), ElementsAre());
}

}  // namespace
}  // namespace trainer
