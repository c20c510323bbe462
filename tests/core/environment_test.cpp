#include "lora/core/environment.hpp"

#include <doctest/doctest.h>

#include <list>
#include <string>

#include "support/environment.hpp"
#include "support/message_of.hpp"

namespace environment_test {

using namespace lora;
using test::Environment;

namespace {

std::string told() {
  return test::message_of<ConfigError>([] { expect_one_process(); });
}

}  // namespace

TEST_CASE("environment: several processes of a launcher are refused, by the variable that tells of them") {
  expect_one_process();
  for (const std::string name :
       {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    CAPTURE(name);
    {
      const Environment two(name.c_str(), "2");
      CHECK(told() == concat("the environment's ", name,
                             " is 2, as a launcher sets it that starts several processes, but this is one process; ",
                             "start one, or unset ", name));
    }
    for (const char* value : {"1", "0", ""}) {
      const Environment one(name.c_str(), value);
      CHECK_NOTHROW(expect_one_process());
    }
    for (const char* value : {"two", "-1", "2x", "99999999999"}) {
      const Environment other(name.c_str(), value);
      CHECK(told() ==
            concat("the environment's ", name, " is '", value, "'; expected a number from 0 on, as launchers set it"));
    }
  }
}

TEST_CASE("environment: a batch script of several tasks starts the program once, as does a user in srun's terminal") {
  const Environment tasks("SLURM_NTASKS", "8"), rank("SLURM_PROCID", "0");
  CHECK_NOTHROW(expect_one_process());
  const Environment step("SLURM_STEP_NUM_TASKS", "8");
  CHECK_THROWS_AS(expect_one_process(), ConfigError);
  const Environment terminal("SLURM_PTY_PORT", "40001");
  CHECK_NOTHROW(expect_one_process());
  const Environment world("WORLD_SIZE", "2");
  CHECK_THROWS_AS(expect_one_process(), ConfigError);
}

TEST_CASE("environment: a number may be the least and the most, and nothing beyond them") {
  constexpr const char* name = "LORA_TEST_NUMBER";
  const auto number = [] { return environment_number(name, 3, 12, "a number from 3 to 12"); };
  CHECK_FALSE(number());
  for (const char* const text : {"3", "12", "007"}) {
    const Environment set(name, text);
    CHECK(number() == std::stoi(text));
  }
  for (const char* const text : {"2", "13", "-5", " 5", "5 ", "+5", "4.0", "9999999999"}) {
    const Environment set(name, text);
    CHECK(test::message_of<ConfigError>([&] { number(); }) ==
          concat("the environment's LORA_TEST_NUMBER is '", text, "'; expected a number from 3 to 12"));
  }
  const Environment empty(name, "");
  CHECK_FALSE(number());
  const Environment most("LORA_TEST_OTHER", "2147483647");
  CHECK(launcher_number("LORA_TEST_OTHER") == 2147483647);
  const Environment none("LORA_TEST_OTHER", "0");
  CHECK(launcher_number("LORA_TEST_OTHER") == 0);
}

TEST_CASE("environment: all launchers but torchrun start processes that meet by MPI") {
  const Launched alone = launched();
  CHECK(alone.variable == nullptr);
  CHECK(alone.processes == 1);
  CHECK_FALSE(alone.by_mpi);
  for (const std::string name :
       {"SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"}) {
    CAPTURE(name);
    const Environment three(name.c_str(), "3");
    const Launched found = launched();
    CHECK(found.variable == name);
    CHECK(found.processes == 3);
    CHECK(found.by_mpi == (name != "WORLD_SIZE"));
  }
  const Environment one("WORLD_SIZE", "1"), four("PMI_SIZE", "4"), five("SLURM_STEP_NUM_TASKS", "5");
  CHECK(launched().variable == std::string("PMI_SIZE"));
  CHECK(launched().processes == 4);
}

TEST_CASE("environment: WORLD_SIZE and the number of an MPI launcher must be one, srun may start launchers") {
  for (const std::string name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    CAPTURE(name);
    const Environment world("WORLD_SIZE", "4");
    {
      const Environment three(name.c_str(), "3");
      CHECK(test::message_of<ConfigError>([] { launched(); }) ==
            concat("the environment's WORLD_SIZE is 4, but its ", name,
                   " is 3: two launchers disagree; unset the variables of one"));
    }
    const Environment four(name.c_str(), "4");
    CHECK(launched().variable == name);
    CHECK(launched().processes == 4);
    CHECK(launched().by_mpi);
  }
  const Environment world("WORLD_SIZE", "4"), nodes("SLURM_STEP_NUM_TASKS", "2");
  CHECK(launched().variable == std::string("WORLD_SIZE"));
  CHECK(launched().processes == 4);
  CHECK_FALSE(launched().by_mpi);
}

TEST_CASE("environment: which of its host's processes this is, each launcher says by a variable of its own") {
  CHECK_FALSE(local_rank());
  // The last is looked at first.
  const std::string names[] = {"SLURM_LOCALID", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                               "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"};
  for (const std::string& name : names) {
    CAPTURE(name);
    const Environment empty(name.c_str(), "");
    CHECK_FALSE(local_rank());
    const Environment other(name.c_str(), "x");
    CHECK(test::message_of<ConfigError>([] { local_rank(); }) ==
          concat("the environment's ", name, " is 'x'; expected a number from 0 on, as launchers set it"));
  }
  std::list<Environment> set;
  for (const std::string& name : names) {
    CAPTURE(name);
    set.emplace_back(name.c_str(), std::to_string(set.size()));
    const auto rank = local_rank();
    REQUIRE(rank);
    CHECK(rank->variable == name);
    CHECK(rank->number == static_cast<int>(set.size()) - 1);
  }
  while (set.size() > 1) set.pop_back();  // srun's is left
  CHECK(local_rank()->variable == names[0]);
  const Environment terminal("SLURM_PTY_PORT", "40001");
  CHECK_FALSE(local_rank());
  const Environment torchrun("LOCAL_RANK", "5");
  CHECK(local_rank()->number == 5);
}

}  // namespace environment_test
