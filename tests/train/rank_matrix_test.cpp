// One table of all that ranks may share out: how many ranks there are, what each holds, where it lies, what trains and
// in which precision. Every combination that is allowed writes the bytes of one process, and every other is refused.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/train/trainer.hpp"
#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/quiet.hpp"
#include "support/thread_ranks.hpp"
#include "support/workshop.hpp"

namespace rank_matrix_test {

using namespace lora;
using namespace lora::test;

namespace {

using Files = std::map<std::string, std::string>;

constexpr Index units = 6;  // of a step: a micro-batch of two sequences each

/// What ranks share out, and where it lies.
struct Way {
  int ranks = 1;
  Index zero_stage = 0;
  std::string offload = "none";
};

std::string name_of(const Way& way) { return concat(way.ranks, " ranks, stage ", way.zero_stage, ", ", way.offload); }

/// Every combination, allowed or not.
std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const int ranks : {1, 2, 3, 6})
    for (const Index zero_stage : {0, 1, 2, 3})
      for (const char* const offload : {"none", "optimizer", "params", "all"})
        ways.push_back({ranks, zero_stage, offload});
  return ways;
}

template <class T>
constexpr const char* dtype_of() {
  return std::is_same_v<T, float> ? "float32" : std::is_same_v<T, bf16> ? "bfloat16" : "float16";
}

/// A model whose matrices have one block or two, so that ranks share tensors, and records of which the second step has
/// one alone: five of six units are empty then.
struct Subject : Workshop {
  Subject() {
    write_random_model(temp / "model", RandomModel{.ffn = 72, .layers = 3});
    write_tokens(temp / "train.jsonl", 13, 1);
  }

  Config config(const std::string& output, bool full, const char* dtype, const Way& way, Index steps) const {
    Config config = Workshop::config(output);
    config.dtype = dtype;
    if (full) {
      config.finetuning_type = "full";
      config.lora_rank.reset();
      config.lora_dropout = 0;
      config.max_shard_size = "9KB";  // several files
    }
    config.gradient_checkpointing = (way.ranks + way.zero_stage) % 2 == 1;  // which changes no bit
    config.step_units = units;
    config.gradient_accumulation_steps = units / way.ranks;
    config.ranks = way.ranks;
    config.zero_stage = way.zero_stage;
    config.offload = way.offload;
    config.warmup_steps = 1;
    config.max_steps = steps;
    config.save_steps = 2;
    config.eval_steps = 2;
    config.load_best_model_at_end = steps > 2;
    config.logging_steps = 1;
    return config;
  }
};

/// Up to the step `last`, whose checkpoint is then there; to the end without one. Returns the errors of ranks.
template <AnyDevice D, class T>
std::vector<std::string> train(const Config& config, Index last = 0) {
  std::atomic<int> stop = 0;
  const int ranks = static_cast<int>(config.ranks);
  return try_ranks<D>(ranks, [&](auto& self) {
    RunOptions options;
    options.log = [](log::Level, std::string_view) {};
    options.stop = &stop;
    options.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step == last && self.rank() == self.size() - 1) stop = 15;
    };
    D dev(1);
    train::TrainingRun<D, T>(dev, config, inputs::open_source(config), options, ranks > 1 ? &self : nullptr).run();
  });
}

/// Why this is not allowed, by the words with which it is refused; nothing where it is.
template <AnyDevice D>
std::optional<std::string> refusal_of(const Way& way, bool full) {
  if (full && way.offload == "params")
    return "key offload: given params, allowed: none, optimizer or all with finetuning_type full: an optimizer on the "
           "device has the weights that train there, in float32";
  if (D::reads_host_memory && way.offload != "none")
    return concat("key offload: given ", way.offload, ", but the run's device is the processors, whose memory is the ",
                  "host's: weights are used in place from the mapped files; allowed: none");
  if (way.zero_stage == 3 && way.ranks == 1)
    return "key zero_stage: given 3, but a single process has nobody to share layers with; allowed: 0, 1 or 2, or "
           "more processes";
  return std::nullopt;
}

/// Of short runs a seventh of the table, which has every stage, every offload and every number of ranks.
bool is_left_out(std::size_t at) {
  return at % 7 != 0 && !effort(true, false, "rank matrix: six sevenths of what ranks share out");
}

template <AnyDevice D, class T>
void check_table(const Subject& shop, bool full, Files* const of_one) {
  const auto config_of = [&](const std::string& output, const Way& way) {
    return shop.config(output, full, dtype_of<T>(), way, 2);
  };
  const Config alone = config_of("alone", {});
  REQUIRE(train<D, T>(alone).front() == "");
  const Files expected = lasting_files(alone.output_dir);
  if (of_one != nullptr) *of_one = expected;
  CHECK(expected.size() > 8);
  std::size_t allowed = 0;
  for (const Way& way : all_ways()) {
    CAPTURE(name_of(way));
    const Config config = config_of("run", way);
    if (const auto refusal = refusal_of<D>(way, full)) {
      for (const std::string& error : train<D, T>(config)) CHECK(error == *refusal);
      CHECK_FALSE(io::is_there(shop.temp / "run"));
      continue;
    }
    if (is_left_out(allowed++)) continue;
    for (const std::string& error : train<D, T>(config)) CHECK(error == "");
    expect_same(lasting_files(config.output_dir), expected);
    std::filesystem::remove_all(config.output_dir);
  }
  CHECK(allowed == (D::reads_host_memory ? 15u : full ? 45u : 60u));
  std::filesystem::remove_all(alone.output_dir);
}

/// On a device with memory of its own, and on the processors, whose bytes are the same but for what states note of
/// threads.
template <class T>
void check_devices(bool full) {
  const Quiet quiet;
  const Subject shop;
  Files device, processors;
  check_table<proof::Device, T>(shop, full, &device);
  check_table<cpu::Device, T>(shop, full, &processors);
  for (Files* const files : {&device, &processors})
    std::erase_if(*files, [](const auto& file) { return file.first.ends_with("trainer_state.json"); });
  expect_same(processors, device);
}

using Stages = std::array<Index, 3>;  // of the first turns; one process shares nothing

/// Six ranks begin, two go on, then three, and one process ends it. On a device with memory of its own what lies on the
/// host is not the same in any two of these.
template <AnyDevice D, class T>
void check_turns(bool full, const Stages& stages) {
  CAPTURE(full);
  CAPTURE(stages[0]);
  CAPTURE(dtype_of<T>());
  const Quiet quiet;
  const Subject shop;
  const auto config_of = [&](const std::string& output, const Way& way) {
    return shop.config(output, full, dtype_of<T>(), way, 8);
  };
  REQUIRE(train<D, T>(config_of("alone", {})).front() == "");
  const std::pair<int, Index> turns[] = {{6, 1}, {2, 3}, {3, 5}, {1, 0}};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& turn = turns[i];
    const char* const offloads[] = {"all", "none", "all", "optimizer"};
    const Way way{.ranks = turn.first,
                  .zero_stage = i < 3 ? stages[i] : 0,
                  .offload = D::reads_host_memory ? "none" : offloads[i]};
    CAPTURE(name_of(way));
    Config config = config_of("in turn", way);
    config.resume_from_checkpoint = "auto";
    for (const std::string& error : train<D, T>(config, turn.second)) CHECK(error == "");
  }
  Files files = lasting_files(shop.temp / "in turn");
  std::erase_if(files, [&](const auto& file) {  // of where it was stopped
    return std::any_of(std::begin(turns), std::end(turns), [&](const auto& turn) {
      return file.first.starts_with(concat("checkpoints/checkpoint-", turn.second, "/"));
    });
  });
  expect_same(files, lasting_files(shop.temp / "alone"));
  if (!full) return;
  CHECK(files.contains("final_model/model.safetensors.index.json"));
  // There is nothing left to do, which each rank comes to know: nothing is written once more.
  const io::Path result = shop.temp / "in turn" / "final_model" / "model.safetensors.index.json";
  const auto written = std::filesystem::last_write_time(result);
  const Files there = lasting_files(shop.temp / "in turn");
  Config config = config_of("in turn", {.ranks = 2, .zero_stage = stages[1]});
  config.resume_from_checkpoint = "auto";
  for (const std::string& error : train<D, T>(config)) CHECK(error == "");
  expect_same(lasting_files(shop.temp / "in turn"), there);
  CHECK(std::filesystem::last_write_time(result) == written);
}

}  // namespace

TEST_CASE("rank matrix: an adapter in float32 has the bytes of one process whatever ranks share out, or is refused") {
  check_devices<float>(false);
}
TEST_CASE("rank matrix: an adapter in bfloat16 has the bytes of one process whatever ranks share out, or is refused") {
  if (effort(true, false, "rank matrix: an adapter in bfloat16")) check_devices<bf16>(false);
}
TEST_CASE(
    "rank matrix: a whole model in float32 has the bytes of one process whatever ranks share out, or is refused") {
  if (effort(true, false, "rank matrix: a whole model in float32")) check_devices<float>(true);
}
TEST_CASE(
    "rank matrix: a whole model in bfloat16 has the bytes of one process whatever ranks share out, or is refused") {
  check_devices<bf16>(true);
}

TEST_CASE("rank matrix: six ranks begin, two, three and one go on, and the bytes are those of a run in one piece") {
  const Stages whole{0, 0, 0}, shared{3, 3, 3}, any{2, 1, 3};
  check_turns<proof::Device, bf16>(false, shared);
  check_turns<cpu::Device, float>(true, shared);
  check_turns<cpu::Device, float>(false, any);
  if (!effort(true, false, "rank matrix: six of nine ways in which another number goes on")) return;
  check_turns<proof::Device, bf16>(true, shared);
  check_turns<cpu::Device, float>(false, shared);
  check_turns<cpu::Device, f16>(true, shared);
  for (const bool full : {false, true}) check_turns<cpu::Device, float>(full, whole);
  check_turns<proof::Device, f16>(true, any);
}

}  // namespace rank_matrix_test
