#include "lora/cpu/runtime/machine.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/temp_folder.hpp"

namespace machine_test {

namespace {

using namespace lora;

/// A made-up /proc and /sys below a folder.
class Machine {
 public:
  void write(const std::string& file, const std::string& text) const {
    const auto path = folder_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string root() const { return folder_.path().string(); }

  /// The folders of its control groups, without the machine's own.
  std::vector<std::string> groups(const std::string& cgroup, const char* controller) const {
    write("proc/self/cgroup", cgroup);
    auto folders = cpu::detail::control_groups(root(), controller);
    for (auto& folder : folders) {
      CHECK(folder.starts_with(root() + "/sys/fs/cgroup"));
      folder.erase(0, root().size() + std::string("/sys/fs/cgroup").size());
    }
    return folders;
  }

 private:
  test::TempFolder folder_;
};

constexpr double mib = 1 << 20;
using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("machine: control groups are those of the resource and all above them, innermost first") {
  const Machine machine;
  CHECK(cpu::detail::control_groups(machine.root(), "cpu").empty());  // there is no file
  CHECK(machine.groups("0::/\n", "cpu") == Texts{""});
  CHECK(machine.groups("0::/a/b\n", "cpu") == Texts{"/a/b", "/a", ""});
  CHECK(machine.groups("4:cpu,cpuacct:/a\n", "cpu") == Texts{"/cpu/a", "/cpu"});
  CHECK(machine.groups("4:cpuacct,cpu:/a/\n", "cpu") == Texts{"/cpu/a", "/cpu"});
  CHECK(machine.groups("4:cpuacct:/a\n5:cpuset:/b\n", "cpu").empty());
  CHECK(machine.groups("9:memory:/c\n4:cpu:/a\n", "memory") == Texts{"/memory/c", "/memory"});
  CHECK(machine.groups("9:memory:/c:d\n", "memory") == Texts{"/memory/c:d", "/memory"});
  CHECK(machine.groups("no line of groups\n1:half\n9:memory:/c\n0::/u\n", "memory") ==
        Texts{"/memory/c", "/memory", "/u", ""});
}

TEST_CASE("machine: numbers of files are those behind their key, or the first word") {
  const Machine machine;
  const std::string file = machine.root() + "/file";
  const auto number_after = [&](const std::string& text, std::string_view key) {
    machine.write("file", text);
    return cpu::detail::number_after(file, key).value_or(-1);
  };
  CHECK(number_after("anon 5\ninactive_file 7\ntotal_inactive_file 9\n", "inactive_file ") == 7);
  CHECK(number_after("anon 5\ninactive_file 7\ntotal_inactive_file 9\n", "total_inactive_file ") == 9);
  CHECK(number_after("key none\nkey 3\nkey 4\n", "key ") == 3);
  CHECK(number_after("other 3\n", "key ") == -1);
  const auto first_number = [&](const std::string& text) {
    machine.write("file", text);
    return cpu::detail::first_number(file).value_or(-1);
  };
  CHECK(first_number("12 34\n") == 12);
  CHECK(first_number("max\n") == -1);
  CHECK(first_number("") == -1);
  CHECK_FALSE(cpu::detail::first_number(machine.root() + "/absent"));
  CHECK_FALSE(cpu::detail::number_after(machine.root() + "/absent", "key "));
}

TEST_CASE("machine: of the limits of memory the tightest holds, and of what they leave the least") {
  const Machine machine;
  const auto memory = [&] { return cpu::detail::group_memory(machine.root()); };
  CHECK(memory().limit == std::numeric_limits<double>::infinity());
  CHECK(memory().available == std::numeric_limits<double>::infinity());

  SUBCASE("version 2: the tightest limit may leave more than another") {
    machine.write("proc/self/cgroup", "0::/outer/inner\n");
    machine.write("sys/fs/cgroup/outer/inner/memory.max", "4194304\n");
    machine.write("sys/fs/cgroup/outer/inner/memory.current", "1048576\n");
    machine.write("sys/fs/cgroup/outer/memory.max", "8388608\n");
    machine.write("sys/fs/cgroup/outer/memory.current", "7340032\n");
    CHECK(memory().limit == 4 * mib);
    CHECK(memory().available == mib);
    // More pages of files than are counted leave no more than the limit.
    machine.write("sys/fs/cgroup/outer/memory.max", "max\n");
    machine.write("sys/fs/cgroup/outer/inner/memory.stat", "inactive_file 2097152\n");
    CHECK(memory().available == 4 * mib);
  }
  SUBCASE("version 1: pages of files are those of the groups below as well") {
    machine.write("proc/self/cgroup", "9:memory:/docker\n");
    machine.write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "4194304\n");
    machine.write("sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "3145728\n");
    machine.write("sys/fs/cgroup/memory/docker/memory.stat", "inactive_file 524288\ntotal_inactive_file 1048576\n");
    CHECK(memory().limit == 4 * mib);
    CHECK(memory().available == 2 * mib);
  }
}

TEST_CASE("machine: of the quotas of processors the least holds, a part of one as a whole one") {
  const Machine machine;
  const auto cpus = [&] { return cpu::detail::group_cpus(machine.root()); };
  constexpr double any = std::numeric_limits<double>::infinity();
  CHECK(cpus() == any);
  machine.write("proc/self/cgroup", "0::/outer/inner\n");
  machine.write("sys/fs/cgroup/outer/inner/cpu.max", "300000 100000\n");
  CHECK(cpus() == 3);
  machine.write("sys/fs/cgroup/outer/cpu.max", "50000 20000\n");
  CHECK(cpus() == 2.5);
  machine.write("sys/fs/cgroup/outer/cpu.max", "350000 100000\n");
  CHECK(cpus() == 3);
  for (const char* nothing : {"max 100000\n", "0 100000\n", "-1 100000\n", "100000 0\n", "100000\n"}) {
    CAPTURE(nothing);
    machine.write("sys/fs/cgroup/outer/inner/cpu.max", nothing);
    CHECK(cpus() == 3.5);
  }
  machine.write("proc/self/cgroup", "4:cpu:/\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  CHECK(cpus() == any);  // without a period
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cpus() == 1.5);
  // Of groups that lie in each other as well.
  machine.write("proc/self/cgroup", "4:cpu:/outer/inner\n");
  for (const char* group : {"outer", "outer/inner"})
    machine.write(concat("sys/fs/cgroup/cpu/", group, "/cpu.cfs_period_us"), "100000\n");
  for (const bool outer : {false, true}) {
    machine.write("sys/fs/cgroup/cpu/outer/cpu.cfs_quota_us", outer ? "120000\n" : "300000\n");
    machine.write("sys/fs/cgroup/cpu/outer/inner/cpu.cfs_quota_us", outer ? "300000\n" : "120000\n");
    CHECK(cpus() == 1.2);
  }
  machine.write("proc/self/cgroup", "4:cpu:/\n");
  // Threads: what is less than a thousandth of a processor is nothing, and one is the least.
  const int free = cpu::available_threads("/nowhere");
  const auto threads = [&](const char* quota) {
    machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota);
    return cpu::available_threads(machine.root());
  };
  for (const char* one : {"1", "100000", "100099"}) CHECK(threads(one) == 1);
  for (const char* two : {"100101", "200000"}) CHECK(threads(two) == std::min(free, 2));
  CHECK(threads("200200") == std::min(free, 3));
}

TEST_CASE("machine: memory of the machine is told in kilobytes of 1024, and large pages in bytes") {
  const Machine machine;
  machine.write("proc/meminfo", "MemTotal:  4096 kB\nMemFree:  100 kB\nMemAvailable:   3072 kB\nSwapTotal: 9 kB\n");
  CHECK(cpu::total_memory(machine.root()) == 4096 * 1024);
  CHECK(cpu::available_memory(machine.root()) == 3072 * 1024);
  // A group's limit that is looser than the machine says nothing.
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", "9000000\n");
  CHECK(cpu::total_memory(machine.root()) == 4096 * 1024);
  CHECK(cpu::available_memory(machine.root()) == 3072 * 1024);
  CHECK(cpu::large_page_bytes(machine.root()) == 0);
  machine.write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
  CHECK(cpu::large_page_bytes(machine.root()) == 2097152);
}

TEST_CASE("machine: the processor's name is that of the first one") {
  const Machine machine;
  CHECK(cpu::processor_name(machine.root()).empty());
  machine.write("proc/cpuinfo",
                "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU: @ 2.50GHz\n\nprocessor\t: 1\n"
                "model name\t: Another\n");
  CHECK(cpu::processor_name(machine.root()) == "Some CPU: @ 2.50GHz");
  machine.write("proc/cpuinfo", "model name\t:\nmodel name\t: One\n");
  CHECK(cpu::processor_name(machine.root()) == "One");
  machine.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x48\n");  // as on aarch64
  CHECK(cpu::processor_name(machine.root()).empty());
}

}  // namespace machine_test
