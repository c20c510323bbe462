#include "lora/core/environment.hpp"

#include <doctest/doctest.h>

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

}  // namespace environment_test
