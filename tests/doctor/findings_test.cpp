#include "lora/doctor/findings.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace findings_test {

using namespace lora;
using doctor::Finding;
using State = doctor::Finding::State;

namespace {

Finding of(const std::vector<Finding>& findings, const std::string& part) {
  const auto at = std::find_if(findings.begin(), findings.end(), [&](const Finding& one) { return one.part == part; });
  REQUIRE(at != findings.end());
  return *at;
}

/// Files that a system tells of itself by, of a process in the group "job".
struct System {
  test::TempFolder temp;
  std::string root = temp.path().native();

  System() { put("proc/self/cgroup", "0::/job\n"); }
  void put(const std::string& path, std::string_view text) const {
    io::create_folders((temp / path).parent_path());
    std::filesystem::remove(temp / path);
    io::write_file(temp / path, text);
  }
};

}  // namespace

TEST_CASE("findings: every part is named once, and what could be better says how") {
  cpu::Device dev(1);
  const std::vector<Finding> findings = doctor::examine(dev);
  for (const Finding& one : findings) {
    CAPTURE(one.part);
    CHECK_FALSE(one.found.empty());
    CHECK((one.state == State::ok) == one.advice.empty());
    CHECK(one.state != State::missing);  // nothing that the CPU needs can be
    CHECK(std::count_if(findings.begin(), findings.end(),
                        [&](const Finding& other) { return other.part == one.part; }) == 1);
  }
  CHECK(of(findings, "build").found.starts_with(run::describe_build()));
  const Finding products = of(findings, "products");
  CHECK(products.found == cpu::describe_products(dev));
  const bool fast = cpu::gemm_engine<float>(dev) == cpu::GemmEngine::onednn;
  CHECK(products.state == (fast ? State::ok : State::note));
  CHECK(products.advice ==
        (fast ? "" : "install oneDNN (Debian: libdnnl-dev) and build again: its products are faster"));
}

TEST_CASE("findings: limits of the system are told from its files") {
  const System system;
  cpu::Device dev(1);
  system.put("proc/cpuinfo", "model name\t: A processor\n");
  system.put("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n");
  system.put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  system.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  system.put("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
  auto findings = doctor::examine(dev, system.root);
  CHECK(of(findings, "processor").found == "A processor");
  CHECK(of(findings, "memory").found == "1.0 GiB of 2.0 GiB are available");
  CHECK(of(findings, "memory").state == State::ok);
  CHECK(of(findings, "large pages").found == "of 2048 KiB, on request");

  system.put("proc/cpuinfo", "");
  system.put("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 262144 kB\n");
  system.put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  system.put("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  findings = doctor::examine(dev, system.root);
  CHECK(of(findings, "processor").found == "the system doesn't name it");
  CHECK(of(findings, "memory").found == "0.2 GiB of 2.0 GiB are available");
  CHECK(of(findings, "memory").state == State::note);
  CHECK(of(findings, "large pages").found == "the system gives none (never)");
  CHECK(of(findings, "large pages").state == State::note);
  if (std::thread::hardware_concurrency() > 1) {
    CHECK(test::holds(of(findings, "threads").found, "1 thread of "));
    CHECK(of(findings, "threads").state == State::note);
  }
}

TEST_CASE("findings: a temporary folder that can't be written is noted with the reason") {
  const test::TempFolder temp;
  cpu::Device dev(1);
  {
    const test::Environment folder("TMPDIR", temp.path().native());
    const Finding found = of(doctor::examine(dev), "temporary folder");
    CHECK(found.state == State::ok);
    CHECK(found.found.starts_with(temp.path().native() + ", "));
    CHECK(found.found.ends_with(" GiB free"));
    const double gib = static_cast<double>(std::filesystem::space(temp.path()).available) / 0x1p30;  // others write too
    CHECK(std::stod(found.found.substr(temp.path().native().size() + 2)) == doctest::Approx(gib).epsilon(0.2));
  }
  const test::Environment folder("TMPDIR", (temp / "missing").native());
  const Finding found = of(doctor::examine(dev), "temporary folder");
  CHECK(found.state == State::note);
  CHECK(found.found.starts_with((temp / "missing").native() + ": "));
  CHECK(test::holds(found.found, "No such file or directory"));
  CHECK(found.advice == "set TMPDIR to a folder that can be written; compressed data and very long texts need it");
}

TEST_CASE("findings: memory is enough where more than a quarter is free, and large pages where they are given") {
  const System system;
  cpu::Device dev(1);
  system.put("sys/fs/cgroup/job/cpu.max", "100000 100000\n");
  system.put("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 524288 kB\n");
  const auto found = [&](const char* part) { return of(doctor::examine(dev, system.root), part); };
  CHECK(found("memory").state == State::note);
  CHECK(found("memory").advice == "end other programs; memory_limit_gib and gradient_checkpointing make a run smaller");
  system.put("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 524292 kB\n");
  CHECK(found("memory").state == State::ok);

  CHECK(found("large pages").state == State::note);
  CHECK(found("large pages").found == "the system doesn't say that it has any");
  system.put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
  CHECK(found("large pages").found == "the system gives none (always)");
  CHECK(found("large pages").advice == "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  system.put("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "1048576\n");
  CHECK(found("large pages").state == State::ok);
  CHECK(found("large pages").found == "of 1024 KiB, on request");
  system.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise never\n");
  CHECK(found("large pages").found == "the system doesn't say that it has any");

  const auto all = std::thread::hardware_concurrency();
  if (all > 1) {
    CHECK(found("threads").found ==
          concat("1 thread of ", all, ": the process's affinity or a control group's quota allows no more"));
    CHECK(found("threads").advice ==
          "start it with more processors (taskset, docker --cpus, the batch system's --cpus-per-task)");
  }
  system.put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  const int available = cpu::available_threads(system.root);
  const std::string threads = concat(available, available == 1 ? " thread" : " threads");
  CHECK(found("threads").found.starts_with(threads));
  CHECK((found("threads").state == State::ok) == (available >= static_cast<int>(all)));
}

TEST_CASE("findings: they come in an order that stays, and states have their names") {
  cpu::Device dev(1);
  std::string parts;
  for (const Finding& one : doctor::examine(dev)) parts += one.part + "; ";
  CHECK(parts ==
        "build; processor; threads; memory; large pages; products; data files; compressed data; settings files; "
        "temporary "
        "folder; ");
#if defined(LORA_WITH_ZLIB) && defined(LORA_WITH_ZSTD)
  CHECK(of(doctor::examine(dev), "compressed data").found == "gzip yes, Zstandard yes");
  CHECK(of(doctor::examine(dev), "compressed data").state == State::ok);
#endif
#if defined(LORA_WITH_CSV) && defined(LORA_WITH_PARQUET)
  CHECK(of(doctor::examine(dev), "data files").found == "JSON, texts, CSV, Parquet");
  CHECK(of(doctor::examine(dev), "data files").state == State::ok);
#elif defined(LORA_WITH_CSV)
  CHECK(of(doctor::examine(dev), "data files").found == "JSON, texts, CSV, no Parquet");
  CHECK(of(doctor::examine(dev), "data files").state == State::note);
  CHECK(of(doctor::examine(dev), "data files").advice ==
        "install Arrow's C++ libraries (docs/install.md tells from where) and build again");
#endif
#if defined(LORA_WITH_YAML)
  CHECK(of(doctor::examine(dev), "settings files").found == "JSON, YAML");
  CHECK(of(doctor::examine(dev), "settings files").state == State::ok);
#endif
  CHECK(doctor::name_of(State::ok) == "ok");
  CHECK(doctor::name_of(State::note) == "note");
  CHECK(doctor::name_of(State::missing) == "missing");
  CHECK(doctor::detail::gib_text(1.25 * 0x1p30) == "1.2 GiB");
}

}  // namespace findings_test
