// What goes wrong on an NPU, or on its way there: whole runs, each with one fault, on the stand-in. A run ends with one
// sentence, leaves nothing behind but what the next one goes on from, and takes nothing along.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/effort.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/stand_in.hpp"
#include "support/workshop.hpp"

namespace ascend_faults_test {

namespace {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;

void set(const char* name, std::int64_t value) {
  REQUIRE(stand_in<decltype(standInSet)>("standInSet")(name, value) == 0);
}

/// What was done against the rules, or is left, since the last call.
std::string breaches() {
  set("check_leaks", 1);
  return stand_in_faults();
}

/// A short run with checkpoints, an evaluation and dropout.
struct Subject {
  Workshop shop;
  Quiet quiet;
  Config config = shop.config();
  std::map<std::string, std::string> expected;  // files of an undisturbed run
  StandInCounts counts{};                       // of such a run

  explicit Subject(const std::string& offload = "none") {
    (void)breaches();
    set("delay_us", 5);
    config.device = "ascend";
    config.dtype = "bfloat16";
    config.max_steps = 4;
    config.save_steps = 2;
    config.eval_steps = 3;
    config.offload = offload;
    config.output_dir = (shop.temp / "undisturbed").native();
    const StandInCounts before = stand_in_counts();
    REQUIRE(train() == "");
    const StandInCounts after = stand_in_counts();
    counts.launches = after.launches - before.launches;
    counts.device_allocations = after.device_allocations - before.device_allocations;
    counts.host_allocations = after.host_allocations - before.host_allocations;
    CHECK(breaches() == "");
    expected = lasting_files(config.output_dir);
    config.output_dir = (shop.temp / "run").native();
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject() { set("delay_us", 50); }

  /// What the run says at its end; empty: nothing went wrong.
  std::string train() const {
    try {
      Npu dev;
      train::TrainingRun<Npu, bf16> run(dev, config, inputs::open_source(config), {});
      run.run();
      return "";
    } catch (const DeviceError& error) {
      return error.what();
    }
  }

  /// A run with a fault, which must end well, or with words that hold one of these, and then the run that goes on.
  /// Returns what the first said.
  std::string check_fault(const std::string& setting, std::int64_t value, const std::vector<std::string>& words) {
    CAPTURE(setting);
    CAPTURE(value);
    set(setting.c_str(), value);
    const std::string error = train();
    set(setting.c_str(), -1);
    CAPTURE(error);
    CHECK(breaches() == "");
    const io::Path output = config.output_dir;
    if (!error.empty()) {
      CHECK(std::any_of(words.begin(), words.end(), [&](const std::string& part) { return holds(error, part); }));
      CHECK(holds(error, "[ascend] NPU 0"));
      CHECK_FALSE(holds(error, "\n"));
      CHECK_FALSE(holds(error, "\\x"));
      if (std::filesystem::exists(output))
        for (const auto& entry : std::filesystem::recursive_directory_iterator(output))
          CHECK_FALSE(holds(entry.path().filename().native(), ".lora-"));
      if (!std::filesystem::exists(output / "checkpoints")) {
        std::filesystem::remove_all(output);
        return error;  // there is nothing to go on from
      }
      config.resume_from_checkpoint = "auto";
      CHECK(train() == "");
      config.resume_from_checkpoint.clear();
      CHECK(breaches() == "");
    }
    expect_same(lasting_files(output), expected);
    std::filesystem::remove_all(output);
    return error;
  }
};

/// Numbers from 1 to `count`, evenly; of one, that in the middle.
std::vector<std::int64_t> spread(std::uint64_t count, std::int64_t most) {
  const auto all = static_cast<std::int64_t>(count);
  const std::int64_t points = std::min(most, all);
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < points; ++i)
    numbers.push_back(points == 1 ? (all + 1) / 2 : 1 + i * (all - 1) / (points - 1));
  return numbers;
}

const std::vector<std::string> out_of_memory = {"is out of memory: ", "no memory for work that grows"};

}  // namespace

TEST_CASE("ascend faults: an allocation that fails once is made again, with the same bits; all failing ends the run") {
  for (const std::string offload : {"none", "all"}) {
    CAPTURE(offload);
    Subject subject(offload);
    REQUIRE(subject.counts.device_allocations > 2);
    const auto most = effort<std::int64_t>(offload == "none" ? 99 : 6, 1, "ascend faults: most allocations that fail");
    for (const std::int64_t n : spread(subject.counts.device_allocations, most)) {
      CHECK(subject.check_fault("fail_allocation", n, {}) == "");
      CHECK(subject.check_fault("fail_allocations_from", n, out_of_memory) != "");
    }
    REQUIRE(subject.counts.host_allocations > 1);
    for (const std::int64_t n : spread(subject.counts.host_allocations, most))
      for (const char* setting : {"fail_host_allocation", "fail_host_allocations_from"})
        CHECK(subject.check_fault(setting, n, {"the host gives no page-locked memory, "}) != "");
  }
}

TEST_CASE("ascend faults: a kernel that fails, and a card that is lost, end the run with its last checkpoint whole") {
  for (const std::string offload : {"none", "all"}) {
    CAPTURE(offload);
    Subject subject(offload);
    const auto most = effort<std::int64_t>(offload == "none" ? 9 : 5, 1, "ascend faults: most launches that fail");
    for (const std::int64_t n : spread(subject.counts.launches, most)) {
      const std::string failed = subject.check_fault("kernel_error_at", n, {"exception of a kernel"});
      CHECK(holds(failed, "aclnn"));
      CHECK(subject.check_fault("lose_device_at", n, {"the device is lost"}) != "");
    }
  }
}

TEST_CASE("ascend faults: work that never ends is waited for once, and the run ends") {
  const Environment timeout("LORA_ASCEND_TIMEOUT", "1");
  for (const std::string offload : {"none", "all"}) {
    CAPTURE(offload);
    Subject subject(offload);
    const auto begin = std::chrono::steady_clock::now();
    const auto late = static_cast<std::int64_t>(subject.counts.launches) * 2 / 3;
    CHECK(subject.check_fault("hang_at", late, {"has not ended its work within 1 s"}) != "");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    CHECK(seconds.count() > 1);
  }
}

TEST_CASE("ascend faults: a profile does not keep a run from ending where the device fails") {
  Subject subject;
  subject.config.profile = true;
  for (const char* setting : {"kernel_error_at", "lose_device_at"})
    CHECK(subject.check_fault(setting, static_cast<std::int64_t>(subject.counts.launches) / 2,
                              {"exception of a kernel", "the device is lost"}) != "");
}

}  // namespace ascend_faults_test
