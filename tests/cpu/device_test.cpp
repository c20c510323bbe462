#include "lora/cpu/runtime/device.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>

#include "lora/tensor/transfer.hpp"
#include "support/effort.hpp"
#include "support/process.hpp"
#include "support/temp_folder.hpp"

namespace device_test {

namespace {

using namespace lora;
using D = cpu::Device;

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

constexpr std::size_t mib = std::size_t{1} << 20;

/// Whether large pages are wanted in the mapping that an address lies in: "hg" among what the system says of it.
bool wants_large_pages(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream mappings("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(mappings, line);) {
    std::size_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) inside = begin <= place && place < end;
    if (inside && line.starts_with("VmFlags:")) return (line + ' ').find(" hg ") != std::string::npos;
  }
  return false;
}

/// Bytes of address space that this process has; terabytes under a sanitizer.
std::size_t held_address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("device: available memory is the machine's, or what the tightest control group leaves") {
  const Machine machine;
  machine.write("proc/meminfo", "MemTotal:  4096 kB\nMemFree:  100 kB\nMemAvailable:   3072 kB\n");
  CHECK(cpu::available_memory(machine.root()) == 3 * mib);
  CHECK(cpu::total_memory(machine.root()) == 4 * mib);

  SUBCASE("no more than there is, whatever the machine says") {
    machine.write("proc/meminfo", "MemTotal:  4096 kB\nMemAvailable:   8192 kB\n");
    CHECK(cpu::available_memory(machine.root()) == 4 * mib);
    machine.write("proc/meminfo", "");
    const std::size_t physical = cpu::total_memory(machine.root());
    CHECK(physical > 16 * mib);
    CHECK(cpu::available_memory(machine.root()) == physical);
  }
  SUBCASE("version 2, where an outer group is tighter") {
    machine.write("proc/self/cgroup", "0::/outer/inner\n");
    machine.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
    machine.write("sys/fs/cgroup/outer/memory.max", "2097152\n");
    machine.write("sys/fs/cgroup/outer/memory.current", "1572864\n");
    machine.write("sys/fs/cgroup/outer/memory.stat", "anon 100\ninactive_file 524288\n");
    CHECK(cpu::available_memory(machine.root()) == mib);  // dropped files make room
    CHECK(cpu::total_memory(machine.root()) == 2 * mib);
  }
  SUBCASE("version 1, seen from inside a container") {
    machine.write("proc/self/cgroup", "5:cpu,cpuacct:/docker/1\n9:memory:/docker/1\n");
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
    machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "786432\n");
    CHECK(cpu::available_memory(machine.root()) == mib / 4);
    CHECK(cpu::total_memory(machine.root()) == mib);
  }
  SUBCASE("a group that is over its limit leaves nothing") {
    machine.write("proc/self/cgroup", "0::/\n");
    machine.write("sys/fs/cgroup/memory.max", "1048576\n");
    machine.write("sys/fs/cgroup/memory.current", "2097152\n");
    CHECK(cpu::available_memory(machine.root()) == 0);
  }
}

TEST_CASE("device: threads are those that may run, no more than a control group's quota") {
  const Machine machine;
  const int free = cpu::available_threads(machine.root());
  CHECK(free >= 1);
  cpu_set_t mask;
  REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
  CHECK(free == CPU_COUNT(&mask));

  SUBCASE("version 2") {
    machine.write("proc/self/cgroup", "0::/a\n");
    machine.write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    CHECK(cpu::available_threads(machine.root()) == 1);
    machine.write("sys/fs/cgroup/a/cpu.max", "110000 100000\n");  // a part of a processor counts as one
    CHECK(cpu::available_threads(machine.root()) == std::min(free, 2));
    machine.write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    CHECK(cpu::available_threads(machine.root()) == free);
  }
  SUBCASE("version 1") {
    machine.write("proc/self/cgroup", "4:cpu,cpuacct:/a\n");
    machine.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "80000\n");
    machine.write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    CHECK(cpu::available_threads(machine.root()) == 1);
    machine.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    CHECK(cpu::available_threads(machine.root()) == free);
  }
}

TEST_CASE("device: memory is aligned, the arena large and untouched") {
  D dev(2);
  CHECK(dev.threads() == 2);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
    void* const memory = dev.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % Arena::alignment == 0);
    dev.free(memory, bytes);
  }
  CHECK(dev.arena().capacity() >= 64 * mib);
  CHECK(dev.arena().peak() == 0);
  auto piece = scratch<float>(dev, 3, 5);
  piece.row(2)[4] = 1;
  CHECK(reinterpret_cast<std::uintptr_t>(piece.data()) % Arena::alignment == 0);
}

TEST_CASE("device: the arena asks for large pages where they are small enough to be filled") {
  const Machine machine;
  CHECK(cpu::large_page_bytes(machine.root()) == 0);
  machine.write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "536870912\n");
  CHECK(cpu::large_page_bytes(machine.root()) == 512 * mib);

  const auto wanted = [](std::size_t large_page) {
    const cpu::detail::Reservation memory(64 * mib, large_page);
    return wants_large_pages(memory.memory());
  };
  CHECK(!wanted(0));
  CHECK(!wanted(32 * mib));
  CHECK(!wanted(512 * mib));
  void* const probe =
      mmap(nullptr, 64 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(probe != MAP_FAILED);
  madvise(probe, 64 * mib, MADV_HUGEPAGE);
  const bool says = wants_large_pages(probe);
  munmap(probe, 64 * mib);
  if (!says || cpu::large_page_bytes() == 0) {
    test::skipped("device: large pages, which this system has not, or doesn't tell of");
    return;
  }
  CHECK(wanted(2 * mib));
  CHECK(wanted(4 * mib));
  D dev(1);
  CHECK(wants_large_pages(scratch<float>(dev, 1, 1).data()) == (cpu::large_page_bytes() <= 4 * mib));
}

TEST_CASE("device: values go there and back") {
  D dev(1);
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  auto tensor = tensor_of<float>(dev, values, 2, 3);
  CHECK(to_host(dev, tensor.view()) == values);
  CHECK(to_host(dev, tensor.view().col_slice(1, 2)) == std::vector<float>{2, 3, 5, 6});
}

TEST_CASE("device: memory that is not there is an error") {
  D dev(1);
  CHECK_THROWS_AS(dev.arena().scratch(dev.arena().capacity() + 1), DeviceError);
  if (held_address_space() > (std::size_t{1} << 40)) {
    test::skipped("device: more memory than there is, which a sanitizer ends the process for");
    return;
  }
  CHECK_THROWS_WITH_AS(dev.allocate((std::size_t{1} << 60) + 1),
                       "[cpu] out of memory: 1152921504606846977 bytes were asked for", DeviceError);
  CHECK(dev.allocated().now() == 0);
}

TEST_CASE("device: where address space is limited, the arena leaves some for everybody else") {
  const std::size_t held = held_address_space();
  if (held > (std::size_t{1} << 40)) {
    test::skipped("the arena under a limit of address space: a sanitizer holds all of it");
    return;
  }
  const auto end = test::run_apart([&](int out) {
    const auto limit_to = [&](std::size_t more) {
      const rlimit limit{held + more, RLIM_INFINITY};
      setrlimit(RLIMIT_AS, &limit);
    };
    std::string told;
    for (const std::size_t more : {500 * mib, 580 * mib, 760 * mib}) {
      limit_to(more);
      const cpu::detail::Reservation arena(std::size_t{64} << 30);
      void* const rest = mmap(nullptr, 200 * mib, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      told += rest == MAP_FAILED ? "nothing is left; " : arena.bytes() >= 64 * mib ? "fine; " : "small; ";
      if (rest != MAP_FAILED) munmap(rest, 200 * mib);
    }
    limit_to(200 * mib);
    try {
      const cpu::detail::Reservation arena(std::size_t{64} << 30);
    } catch (const DeviceError& error) {
      told += error.what();
    }
    (void)!write(out, told.data(), told.size());
  });
  CHECK(end.text ==
        "fine; fine; fine; [cpu] no address space for an arena of 64 MiB and 256 MiB for the rest; is it limited "
        "(ulimit -v)?");
}

TEST_CASE("device: loops visit every item once, on no more threads than asked for") {
  for (const int threads : {1, 2, 3, 8}) {
    D dev(threads);
    for (const Index count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      std::atomic<int> highest{0};
      const auto visit = [&](Index i) {
        ++visits[static_cast<std::size_t>(i)];
        int before = highest;
        while (before < omp_get_thread_num() && !highest.compare_exchange_weak(before, omp_get_thread_num())) {}
      };
      dev.parallel_for(count, 3, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) visit(i);
      });
      dev.parallel_items(count, visit);
      for (const auto& times : visits) REQUIRE(times == 2);
      CHECK(highest < threads);
    }
  }
}

TEST_CASE("device: a range too small to share stays on the calling thread") {
  D dev(4);
  int calls = 0;
  dev.parallel_for(7, 4, [&](Index begin, Index end) {
    ++calls;
    CHECK(begin == 0);
    CHECK(end == 7);
  });
  CHECK(calls == 1);
}

TEST_CASE("device: items of too little work stay on the calling thread") {
  D dev(4);
  for (const auto& [work, shared] : {std::pair(100.0, false), std::pair(1e9, true)}) {
    std::atomic<int> visits{0}, highest{0};
    // Whoever is first waits for another thread, as long as there may be one.
    const auto visit = [&, wait = shared](Index) {
      ++visits;
      if (omp_get_thread_num() > 0) highest = omp_get_thread_num();
      for (long turn = 0; wait && highest == 0 && turn < 1'000'000'000; ++turn) {}
    };
    dev.parallel_items(8, visit, work);
    CHECK(visits == 8);
    CHECK((highest > 0) == shared);
  }
}

TEST_CASE("device: parts belong to one device and live as long as it") {
  struct Counter {
    int value = 0;
  };
  D one(1), other(1);
  one.state<Counter>().value = 5;
  CHECK(one.state<Counter>().value == 5);
  CHECK(other.state<Counter>().value == 0);
  CHECK(one.state<std::vector<int>>().empty());
}

TEST_CASE("device: describes itself by its threads") {
  CHECK(D(1).describe().substr(0, 13) == "cpu, 1 thread");
  CHECK(D(3).describe().substr(0, 14) == "cpu, 3 threads");
}

}  // namespace device_test
