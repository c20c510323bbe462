// The processors of processes that share a machine, with the quotas of the control groups that they are in.

#include "lora/cpu/runtime/processors.hpp"

#include <doctest/doctest.h>
#include <sched.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lora/core/format.hpp"
#include "support/temp_folder.hpp"

namespace processors_test {

using namespace lora;

namespace {

/// A made-up /proc and /sys below a folder.
class Machine {
 public:
  void write(const std::string& file, const std::string& text) const {
    const auto path = folder_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string root() const { return folder_.path().string(); }

 private:
  test::TempFolder folder_;
};

/// The processors from `first` on, and quotas of control groups by their numbers.
cpu::Processors processors(int first, int count, const std::vector<cpu::CpuQuota>& quotas = {}) {
  cpu::Processors result;
  CPU_ZERO(&result.mask);
  for (int i = first; i < first + count; ++i) CPU_SET(static_cast<unsigned>(i), &result.mask);
  for (const cpu::CpuQuota& quota : quotas) result.quota[result.quotas++] = quota;
  return result;
}

std::string shared(const std::vector<cpu::Processors>& processes) {
  const cpu::SharedThreads threads = cpu::share_threads(processes);
  std::string text;
  for (const int each : threads.each) text += concat(each, " ");
  return concat(text, "of ", threads.processors);
}

}  // namespace

TEST_CASE("processors: processes of one machine share its processors, unless each is bound to its own") {
  CHECK(shared({processors(0, 8)}) == "8 of 8");
  CHECK(shared({processors(0, 8), processors(0, 8), processors(0, 8)}) == "2 2 2 of 8");
  CHECK(shared({processors(0, 2), processors(0, 2), processors(0, 2)}) == "1 1 1 of 2");
  CHECK(shared({processors(0, 3), processors(3, 5)}) == "3 5 of 8");
  CHECK(shared({processors(0, 3), processors(2, 6)}) == "4 4 of 8");
}

TEST_CASE("processors: of a control group's quota the processes that are in it have equal parts, whole ones") {
  const auto with = [](const std::vector<cpu::CpuQuota>& quotas) { return processors(0, 16, quotas); };
  CHECK(shared({with({{7, 5}})}) == "5 of 5");
  CHECK(shared({with({{7, 2.5}})}) == "3 of 3");
  CHECK(shared({with({{7, 5}}), with({{7, 5}})}) == "2 2 of 5");
  CHECK(shared({with({{7, 3.5}}), with({{7, 3.5}})}) == "2 2 of 4");
  CHECK(shared({with({{7, 0.5}}), with({{7, 0.5}})}) == "1 1 of 1");
  // Containers have a quota each, and what is not limited takes its part of the processors.
  CHECK(shared({with({{7, 5}}), with({{8, 2}})}) == "5 2 of 7");
  CHECK(shared({with({{7, 5}}), with({})}) == "5 8 of 16");
  // Of groups that lie in each other the tightest counts, by those who are in it.
  CHECK(shared({with({{7, 4}, {9, 6}}), with({{8, 4}, {9, 6}})}) == "3 3 of 6");
  CHECK(shared({with({{7, 1}, {9, 6}}), with({{8, 4}, {9, 6}})}) == "1 3 of 4");
  CHECK(shared({with({{7, 3}, {7, 3}}), with({{7, 3}})}) == "1 1 of 3");  // seen twice
  // Looser than the processors it changes nothing.
  CHECK(shared({with({{7, 40}}), with({{7, 40}})}) == "8 8 of 16");
  CHECK(shared({processors(0, 2, {{7, 3}}), processors(2, 2, {{7, 3}})}) == "1 1 of 3");
  cpu::Processors wrong = with({{7, 4}});
  wrong.quotas = 1000;  // as nobody sends it
  CHECK(cpu::share_threads(std::vector<cpu::Processors>{wrong}).each.size() == 1);
}

TEST_CASE("processors: a process tells its processors with the quotas above it, each known by its folder") {
  const Machine machine, other;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
  cpu::Processors own = cpu::own_processors(machine.root());
  CHECK(CPU_EQUAL(&own.mask, &mask));
  CHECK(own.quotas == 0);
  machine.write("proc/self/cgroup", "0::/outer/middle/inner\n");
  machine.write("sys/fs/cgroup/outer/middle/inner/cpu.max", "150000 100000\n");
  machine.write("sys/fs/cgroup/outer/middle/cpu.max", "max 100000\n");
  machine.write("sys/fs/cgroup/outer/cpu.max", "400000 100000\n");
  own = cpu::own_processors(machine.root());
  REQUIRE(own.quotas == 2);
  CHECK(own.quota[0].processors == 1.5);
  CHECK(own.quota[1].processors == 4);
  CHECK(own.quota[0].group != own.quota[1].group);
  // In a container of its own the same group lies at the root, and another group of the same path is another one.
  machine.write("proc/self/cgroup", "0::/outer\n");
  CHECK(cpu::own_processors(machine.root()).quota[0].group == own.quota[1].group);
  other.write("proc/self/cgroup", "0::/outer\n");
  other.write("sys/fs/cgroup/outer/cpu.max", "400000 100000\n");
  CHECK(cpu::own_processors(other.root()).quota[0].group != own.quota[1].group);
  // Of version 1, and more of them than are told.
  std::string path;
  for (int depth = 0; depth < 10; ++depth) {
    path += "/g";
    machine.write(concat("sys/fs/cgroup/cpu", path, "/cpu.cfs_quota_us"), concat(100000 * (depth + 1), "\n"));
    machine.write(concat("sys/fs/cgroup/cpu", path, "/cpu.cfs_period_us"), "100000\n");
  }
  machine.write("proc/self/cgroup", concat("4:cpu:", path, "\n"));
  own = cpu::own_processors(machine.root());
  CHECK(own.quotas == cpu::Processors::most_quotas);
  CHECK(own.quota[0].processors == 10);
  CHECK(own.quota[7].processors == 3);
}

}  // namespace processors_test
