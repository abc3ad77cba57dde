// plan-training's cluster: how many GPUs there are and on how many hosts, by its own flags and by
// those that start ranks.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::Not;
const Words kModel = {"--num-layers",          "4",     "--hidden-size", "512",
                      "--num-attention-heads", "8",     "--seq-length",  "512",
                      "--vocab-size",          "50257", "--gpu",         "h200"};

class PlanClusterTest : public ProgramTest {
 protected:
  Ended plan(const Words& words) { return wait(start(words, {}, PLAN_PROGRAM, false)); }
};

// The flags that start ranks say how many GPUs there are, and on how many hosts.
TEST_F(PlanClusterTest, TheLaunchersFlagsGiveTheCluster) {
  const auto planned = [&](const Words& more) {
    const Ended ended = plan(kModel + Words{"--max-global-batch-size", "16", "--json"} + more);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return nlohmann::json::parse(ended.out);
  };
  const auto cluster = [&](const Words& more) {
    const nlohmann::json json = planned(more);
    return std::pair(json["world_size"].get<int>(), json["local_world_size"].get<int>());
  };
  EXPECT_EQ(cluster({"--nnodes", "2", "--nproc-per-node", "4"}), std::pair(8, 4));
  EXPECT_EQ(cluster({"--world-size", "8", "--nproc-per-node", "4"}), std::pair(8, 4));
  EXPECT_EQ(cluster({"--world-size", "8", "--nnodes", "4"}), std::pair(8, 2));
  EXPECT_EQ(cluster({"--nproc-per-node", "2"}), std::pair(2, 2));
  const std::string command =
      planned({"--nnodes", "2", "--node-rank", "1", "--master-addr", "n1", "--master-port", "99",
               "--nproc-per-node", "4"})["best"][0]["command"];
  EXPECT_THAT(command, HasSubstr("torchrun --nnodes 2 --node_rank $RANK --nproc_per_node 4 "));
  for (const char* flag : {"--nnodes", "--node-rank", "--master-addr", "--master-port"})
    EXPECT_THAT(command.substr(command.find("trainer ")), Not(HasSubstr(flag)));
  const auto error = [&](const Words& more) { return plan(kModel + more).err; };
  EXPECT_THAT(error({"--global-batch-size", "16", "--world-size", "8", "--nnodes", "2",
                     "--nproc-per-node", "8"}),
              HasSubstr("--world-size 8, but --nnodes 2 of 8 GPUs each"));
  EXPECT_THAT(error({"--global-batch-size", "16", "--world-size", "12"}),
              HasSubstr("--local-world-size 8, the usual number, does not divide --world-size 12"));
  EXPECT_THAT(error({"--global-batch-size", "16", "--world-size", "8", "--nnodes", "3"}),
              HasSubstr("--nnodes 3 does not divide --world-size 8"));
  EXPECT_THAT(
      error({"--global-batch-size", "16", "--nproc-per-node", "4", "--local-world-size", "8"}),
      HasSubstr("--local-world-size 8, but --nproc-per-node 4: both are the GPUs of a"));
}

// A file's numbers are those of another run where the command says how many GPUs there are.
TEST_F(PlanClusterTest, TheCommandsNumberBeatsAFiles) {
  std::ofstream(folder_ + "/c.toml") << "nproc-per-node = 1\n";
  std::ofstream(folder_ + "/w.toml") << "local-world-size = 8\nworld-size = 8\n";
  const auto local = [&](const Words& more) {
    const Ended ended = plan(
        kModel + Words{"--config", "c.toml", "--max-global-batch-size", "16", "--json"} + more);
    EXPECT_EQ(ended.status, 0) << ended.err;
    return nlohmann::json::parse(ended.out)["local_world_size"].get<int>();
  };
  EXPECT_EQ(local({"--world-size", "4"}), 4);
  EXPECT_EQ(local({}), 1);
  EXPECT_EQ(local({"--config", "w.toml", "--nproc-per-node", "4"}), 4);
  EXPECT_EQ(local({"--world-size", "4", "--nproc-per-node", "2"}), 2);
}

TEST_F(PlanClusterTest, ProcessorsAreNotPlannedFor) {
  Words words = kModel;
  words.erase(words.end() - 2, words.end());  // the card.
  EXPECT_EQ(plan(words + Words{"--global-batch-size", "8", "--device", "cpu"}).err,
            "plan-training: --device cpu: plans are for GPUs; trainer --auto-layout plans for "
            "processors\n");
}

}  // namespace
}  // namespace trainer
