#include "lora/run/findings.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lora/io/file.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace findings_test {

using namespace lora;
using run::Finding;
using State = run::Finding::State;

namespace {

Finding of(const std::vector<Finding>& findings, const std::string& part) {
  const auto at = std::find_if(findings.begin(), findings.end(), [&](const Finding& one) { return one.part == part; });
  REQUIRE(at != findings.end());
  return *at;
}

}  // namespace

TEST_CASE("findings: every part is named once, and what could be better says how") {
  cpu::Device dev(1);
  const std::vector<Finding> findings = run::examine(dev);
  for (const Finding& one : findings) {
    CAPTURE(one.part);
    CHECK_FALSE(one.found.empty());
    CHECK((one.state == State::ok) == one.advice.empty());
    CHECK(one.state != State::missing);  // nothing that the CPU needs can be
    CHECK(std::count_if(findings.begin(), findings.end(),
                        [&](const Finding& other) { return other.part == one.part; }) == 1);
  }
  CHECK(of(findings, "build").found.starts_with(run::describe_build()));
  CHECK(of(findings, "products").found == cpu::describe_products(dev));
}

TEST_CASE("findings: limits of the system are told from its files") {
  const test::TempFolder temp;
  const std::string root = temp.path().native();
  const auto put = [&](const std::string& path, std::string_view text) {
    io::create_folders((temp / path).parent_path());
    std::filesystem::remove(temp / path);
    io::write_file(temp / path, text);
  };
  cpu::Device dev(1);
  put("proc/self/cgroup", "0::/job\n");
  put("proc/cpuinfo", "model name\t: A processor\n");
  put("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n");
  put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  put("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
  auto findings = run::examine(dev, root);
  CHECK(of(findings, "processor").found == "A processor");
  CHECK(of(findings, "memory").found == "1.0 GiB of 2.0 GiB are available");
  CHECK(of(findings, "memory").state == State::ok);
  CHECK(of(findings, "large pages").found == "of 2048 KiB, on request");

  put("proc/cpuinfo", "");
  put("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 262144 kB\n");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  put("sys/fs/cgroup/job/cpu.max", "50000 100000\n");
  findings = run::examine(dev, root);
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
    const Finding found = of(run::examine(dev), "temporary folder");
    CHECK(found.state == State::ok);
    CHECK(found.found.starts_with(temp.path().native() + ", "));
    CHECK(found.found.ends_with(" GiB free"));
  }
  const test::Environment folder("TMPDIR", (temp / "missing").native());
  const Finding found = of(run::examine(dev), "temporary folder");
  CHECK(found.state == State::note);
  CHECK(test::holds(found.found, "No such file or directory"));
}

}  // namespace findings_test
