// Launchers as their processes see them: the variables of each, and the mistakes that are common.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "trainer/rendezvous/interfaces.h"
#include "trainer/rendezvous/launch.h"
#include "trainer/rendezvous/sha256.h"

namespace rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Launch detect(const Variables& variables, int devices = 1) {
  return detect_launch(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      devices);
}

std::string refusal(const Variables& variables, int devices = 1) {
  try {
    return "accepted: " + detect(variables, devices).describe();
  } catch (const LaunchError& error) {
    return error.what();
  }
}

TEST(Launch, NobodyIsOneRankOrStartsOneForEachDevice) {
  EXPECT_EQ(detect({}).world_size, 1);
  EXPECT_FALSE(detect({}).per_node);
  const Launch host = detect({}, 4);
  EXPECT_TRUE(host.per_node);
  const std::vector<Launch> ranks = ranks_on_host(host, 4);
  EXPECT_EQ(ranks[3].describe(), "trainer: rank 3 of 4, local rank 3 of 4, node 0 of 1");
}

const Variables kTorchrun = {{"TORCHELASTIC_RUN_ID", "none"},
                             {"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "n01"},
                             {"MASTER_PORT", "29500"}};

TEST(Launch, TorchrunListensOnItsOwnPort) {
  EXPECT_EQ(detect(kTorchrun).describe(),
            "torchrun: rank 5 of 8, local rank 1 of 4, node 1 of 2; rank 0 at n01 port 29501");
}

TEST(Launch, ARunIsKnownByTheIdThatItsLauncherGives) {
  EXPECT_EQ(detect(kTorchrun).run, "") << "torchrun's none is no id";
  Variables named = kTorchrun;
  named["TORCHELASTIC_RUN_ID"] = "job 7";
  EXPECT_EQ(detect(named).run, "6a6f622037") << "its bytes";
  named["SLURM_JOB_ID"] = "81";  // many jobs may have the same id
  EXPECT_EQ(detect(named).run, "6a6f622037-slurm-3831");
  named["WORLD_SIZE"] = "4", named["RANK"] = "1";
  EXPECT_EQ(detect(named).run, "6a6f622037-slurm-3831") << "the same on one host";
  Launch host = detect({}, 4);
  host.run = "abc";
  host.tracker = "7 2 1.5";
  host.began_ms = 5'000'000'000;
  Variables child;
  for (const auto& [name, value] : to_variables(ranks_on_host(host, 4)[2])) child[name] = value;
  EXPECT_EQ(detect(child, 4).run, "abc");
  EXPECT_EQ(detect(child, 4).tracker, "7 2 1.5");
  EXPECT_EQ(detect(child, 4).began_ms, 5'000'000'000);
}

// Hosts that were reached in another way than by srun may not all know the job.
TEST(Launch, RanksAgreeOnTheJobThatAnyOfThemKnows) {
  const std::string bare = "6a6f62", seven = "6a6f62-slurm-37", eight = "6a6f62-slurm-38";
  EXPECT_EQ(agreed_run({bare, bare}), bare);
  EXPECT_EQ(agreed_run({bare, seven, bare}), seven);
  EXPECT_EQ(agreed_run({seven, bare, seven}), seven);
  EXPECT_EQ(agreed_run({seven, eight}), bare);
  EXPECT_EQ(agreed_run({bare, seven, eight}), bare);
  EXPECT_EQ(agreed_run({"", ""}), "");
  EXPECT_TRUE(may_be_one_run(bare, seven) && may_be_one_run(seven, bare));
  EXPECT_FALSE(may_be_one_run(seven, eight));
  EXPECT_FALSE(may_be_one_run(bare, "6a6f6220-slurm-37"));
  EXPECT_FALSE(may_be_one_run("", seven)) << "torchrun without an id";
}

// SLURM's count is not torchrun's: after a requeue torchrun itself begins at 0 again.
TEST(Launch, ARequeuedJobIsNoFirstStart) {
  Variables job = kTorchrun;
  job["TORCHELASTIC_RESTART_COUNT"] = "0";
  EXPECT_FALSE(detect(job).requeued);
  job["SLURM_RESTART_COUNT"] = "0";
  EXPECT_FALSE(detect(job).requeued);
  job["SLURM_RESTART_COUNT"] = "2";
  EXPECT_TRUE(detect(job).requeued);
  EXPECT_EQ(detect(job).restarts, 0) << "the ranks meet as in a first start";
}

TEST(Launch, TorchrunWinsOverTheTaskOfSrunAroundIt) {
  Variables inside = kTorchrun;
  inside.insert({{"SLURM_PROCID", "1"},
                 {"SLURM_STEP_ID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_STEP_NUM_NODES", "2"},
                 {"SLURM_NTASKS", "2"}});
  EXPECT_EQ(detect(inside).launcher, "torchrun");
  inside["SLURM_STEP_NUM_TASKS"] = "8";
  EXPECT_THAT(refusal(inside), HasSubstr("give srun --ntasks-per-node=1"));
}

const Variables kSlurm = {{"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "5"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08]"}};

TEST(Launch, SrunATaskForEachGpu) {
  const Launch launch = detect(kSlurm);
  EXPECT_EQ(launch.launcher, "srun");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.local_size, 4);
  EXPECT_EQ(launch.address, "gpu07");
  EXPECT_FALSE(launch.per_node);
  Variables other = kSlurm;
  other["SLURM_JOB_ID"] = "78";
  EXPECT_NE(detect(other).port, launch.port);
}

TEST(Launch, SrunATaskForEachNodeStartsItsRanks) {
  Variables variables = kSlurm;
  variables["SLURM_STEP_NUM_TASKS"] = "2";
  variables["SLURM_PROCID"] = "1";
  variables["SLURM_LOCALID"] = "0";
  const Launch host = detect(variables, 4);
  ASSERT_TRUE(host.per_node);
  const Launch rank = ranks_on_host(host, 4)[2];
  EXPECT_EQ(rank.rank, 6);
  EXPECT_EQ(rank.world_size, 8);
  EXPECT_EQ(rank.node, 1);
  EXPECT_EQ(rank.address, "gpu07");
  Variables child;
  for (const auto& [name, value] : to_variables(rank)) child[name] = value;
  EXPECT_EQ(detect(child, 4).describe(), rank.describe());
  EXPECT_FALSE(detect(child, 4).per_node);
}

TEST(Launch, AnSbatchShellIsNoStep) {
  const Launch launch = detect({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(launch.world_size, 1);
  ASSERT_EQ(launch.remarks.size(), 1u);
  EXPECT_THAT(launch.remarks[0], HasSubstr("say srun trainer to use them all"));
}

TEST(Launch, MpirunOfOneHostNeedsNoAddressAndOfMoreSaysSo) {
  const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  EXPECT_EQ(detect(open_mpi).describe(), "Open MPI: rank 2 of 4, local rank 2 of 4, node 0 of 1");
  Variables two = open_mpi;
  two["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(refusal(two), HasSubstr("use --rendezvous HOST:PORT"));
  const Variables mpich = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ(detect(mpich).describe(), "MPICH: rank 1 of 2, local rank 1 of 2, node 0 of 1");
}

TEST(Launch, KubernetesAndPaiStartAProcessForEachHost) {
  const Variables pod = {{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "job-master-0"},
                         {"MASTER_PORT", "23456"}};
  const Launch host = detect(pod, 8);
  EXPECT_TRUE(host.per_node);
  EXPECT_EQ(ranks_on_host(host, 8)[7].describe(),
            "environment: rank 15 of 16, local rank 7 of 8, node 1 of 2; rank 0 at job-master-0 "
            "port 23456");
  EXPECT_FALSE(detect(pod, 1).per_node);
  const Variables indexed = {
      {"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  EXPECT_EQ(detect(indexed).rank, 1);
  EXPECT_THAT(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not"));
}

TEST(Launch, DeepspeedsLauncherSaysHowManyAHostHas) {
  EXPECT_EQ(detect({{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_SIZE", "4"},
                    {"CROSS_RANK", "1"},
                    {"MASTER_ADDR", "n01"},
                    {"MASTER_PORT", "29500"}})
                .describe(),
            "environment: rank 5 of 8, local rank 1 of 4, node 1 of 2; rank 0 at n01 port 29500");
}

TEST(Launch, WhatIsNotSaidAndWhatIsTooLarge) {
  EXPECT_EQ(detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n01"}}).port, 29500);
  Variables many = {{"RANK", "0"}, {"WORLD_SIZE", "16777216"}, {"MASTER_ADDR", "n01"}};
  EXPECT_EQ(detect(many).world_size, 1 << 24);
  many["WORLD_SIZE"] = "16777217";
  EXPECT_EQ(refusal(many), "WORLD_SIZE=16777217 is no count");
  many["WORLD_SIZE"] = "-1";
  EXPECT_EQ(refusal(many), "WORLD_SIZE=-1 is no count");
  // One task for a host, each of which starts its ranks: WORLD_SIZE may count either.
  Variables hosts = kSlurm;
  hosts.insert({"WORLD_SIZE", "16"});
  EXPECT_EQ(detect(hosts).remarks.size(), 1u);
  hosts["SLURM_STEP_NUM_TASKS"] = hosts["SLURM_NTASKS"] = "2";
  hosts["SLURM_PROCID"] = "1";
  hosts["SLURM_LOCALID"] = "0";
  EXPECT_EQ(detect(hosts, 8).remarks.size(), 0u);
}

TEST(Launch, TorchrunsFlagsAreTheHostsOfAPlainStart) {
  const HostFlags hosts{.nodes = 2, .node_rank = 1, .address = "n01", .port = 6000};
  const auto with = [](const Variables& variables, const HostFlags& flags, int devices) {
    const Environment environment = with_hosts(
        [&](const char* name) {
          const auto found = variables.find(name);
          return found == variables.end() ? nullptr : found->second.c_str();
        },
        flags);
    return detect_launch(environment, devices);
  };
  const Launch host =
      with({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"PMI_RANK", "1"}}, hosts, 4);
  EXPECT_TRUE(host.per_node);
  EXPECT_EQ(ranks_on_host(host, 4)[1].describe(),
            "environment: rank 5 of 8, local rank 1 of 4, node 1 of 2; rank 0 at n01 port 6000");
  EXPECT_EQ(with({}, {.nodes = 2, .address = "a"}, 1).describe(),
            "environment: rank 0 of 2, local rank 0 of 1, node 0 of 2; rank 0 at a port 29500");
  // The launcher's own variables take precedence.
  EXPECT_EQ(with(kTorchrun, hosts, 1).describe(), detect(kTorchrun).describe());
  EXPECT_EQ(with({}, {.nodes = 1, .address = "n01"}, 1).world_size, 1);
}

TEST(Launch, HalfSetVariablesAreExplained) {
  EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}}), HasSubstr("WORLD_SIZE is set, RANK is not"));
  EXPECT_THAT(refusal({{"RANK", "4"}}), HasSubstr("RANK is set, WORLD_SIZE is not"));
  EXPECT_THAT(refusal({{"RANK", "x"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK=x is no count"));
  EXPECT_THAT(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}),
              HasSubstr("rank 4 of 4"));
}

// One host may use another name for itself; that is not another job.
TEST(Launch, AHostThatNamesItselfOtherwiseIsOfTheSameJob) {
  Variables pod = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "23456"}};
  const std::string job = detect(pod).job;
  pod["MASTER_ADDR"] = "job-master-0";
  EXPECT_EQ(detect(pod).job, job);
  pod["MASTER_PORT"] = "23457";
  EXPECT_NE(detect(pod).job, job);
}

TEST(Launch, AnAddressThatIsNoneIsExplained) {
  Variables variables = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1 172.17.0.1"}};
  EXPECT_THAT(refusal(variables), HasSubstr("more than one address (hostname -I prints all"));
  variables["MASTER_ADDR"] = "a";
  variables["MASTER_PORT"] = "70000";
  EXPECT_EQ(refusal(variables), "port 70000: permitted is 1 to 65535");
  variables["MASTER_PORT"] = "tcp://10.0.0.1:23456";  // a service of Kubernetes named "master".
  EXPECT_THAT(refusal(variables), HasSubstr("MASTER_PORT=tcp://10.0.0.1:23456 is no count"));
}

TEST(Launch, AWorldSizeThatDoesNotMatchIsNamed) {
  Variables variables = kSlurm;
  variables["WORLD_SIZE"] = "16";
  ASSERT_EQ(detect(variables).remarks.size(), 1u);
  EXPECT_EQ(detect(variables).remarks[0],
            "WORLD_SIZE=16 is set, and srun started 8 tasks: the tasks count");
  variables["WORLD_SIZE"] = "8";
  EXPECT_EQ(detect(variables).remarks.size(), 0u);
  EXPECT_THAT(refusal({{"RANK", "1"},
                       {"WORLD_SIZE", "2"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "8"},
                       {"MASTER_ADDR", "a"}}),
              HasSubstr("local rank 1 of 8 on a host, and WORLD_SIZE=2"));
}

TEST(Launch, TasksThatWouldAllBeRankZeroAreRefused) {
  EXPECT_THAT(refusal({{"PMIX_RANK", "3"}}), HasSubstr("PMIX_RANK=3 is set, and no variable"));
}

TEST(Launch, InterfacesThatAreNotThereAreNamed) {
  const Interfaces own = {{"lo", "127.0.0.1"}, {"eth0", "10.0.0.7"}, {"eth0", ""}, {"ib0", ""}};
  const auto objection = [&](const char* variable, const char* value, bool nccl) {
    const Environment environment = [&](const char* name) {
      return name == std::string(variable) ? value : nullptr;
    };
    return interface_objection(environment, own, nccl);
  };
  for (const char* fits : {"eth", "=eth0", "^lo", "^docker,lo", "ens,eth"})
    EXPECT_EQ(objection("NCCL_SOCKET_IFNAME", fits, true), "") << fits;
  for (const char* wrong : {"ens", "=eth", "^eth,lo", "ib0"})
    EXPECT_EQ(objection("NCCL_SOCKET_IFNAME", wrong, true),
              "NCCL_SOCKET_IFNAME=" + std::string(wrong) +
                  " leaves no interface of this host, which has lo, eth0, ib0: name one of them, "
                  "or unset it");
  EXPECT_EQ(objection("NCCL_SOCKET_IFNAME", "ens", false), "");  // Not for CPU ranks.
  EXPECT_EQ(objection("GLOO_SOCKET_IFNAME", "ens,eth0", false), "");
  EXPECT_THAT(objection("GLOO_SOCKET_IFNAME", "eth", false), HasSubstr("GLOO_SOCKET_IFNAME=eth"));
  EXPECT_EQ(gloo_address([](const char*) { return "eth0"; }, own), "10.0.0.7");
  EXPECT_EQ(gloo_address([](const char*) { return nullptr; }, own), "");
}

TEST(Launch, ThisHostHasALoopback) {
  EXPECT_THAT(interfaces(),
              testing::Contains(std::pair<std::string, std::string>("lo", "127.0.0.1")));
}

TEST(Launch, AnInterfaceThatOthersCannotReachIsRemarked) {
  Variables variables = kSlurm;
  variables["NCCL_SOCKET_IFNAME"] = "docker0";
  ASSERT_EQ(detect(variables).remarks.size(), 1u);
  EXPECT_THAT(detect(variables).remarks[0], HasSubstr("NCCL_SOCKET_IFNAME=docker0"));
}

TEST(Launch, HostListsExpand) {
  EXPECT_THAT(expand_hosts("n[01-03,7],login"), ElementsAre("n01", "n02", "n03", "n7", "login"));
  EXPECT_THAT(expand_hosts("a"), ElementsAre("a"));
  EXPECT_THAT(expand_hosts("r[1-2]-ib,b[9-10]"), ElementsAre("r1-ib", "r2-ib", "b9", "b10"));
  EXPECT_THAT(expand_hosts("a[1"), ElementsAre());
}

TEST(Launch, ADeviceForEachRank) {
  const Launch launch{.world_size = 4, .local_rank = 3, .local_size = 4};
  EXPECT_EQ(device_of(launch, 4), 3);
  EXPECT_EQ(device_of(launch, 1), 0);  // narrowed to this rank's own.
  EXPECT_THROW(device_of(launch, 2), LaunchError);
  // Chosen by this program's launcher; one of them is missing since.
  const Launch chosen{.world_size = 2, .local_rank = 1, .local_size = 2, .device = 3, .devices = 4};
  EXPECT_EQ(device_of(chosen, 4), 3);
  try {
    device_of(chosen, 1);
    ADD_FAILURE() << "a device that is not there";
  } catch (const LaunchError& error) {
    EXPECT_STREQ(error.what(),
                 "GPU 3 is not there: this host has 1 now, and had 4 when the run began");
  }
}

TEST(Sha256, PublishedValues) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // RFC 4231, cases 2 and 6.
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace
}  // namespace rendezvous
