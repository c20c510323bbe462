// Whole runs of tiny models on the proof device: they keep to the device contract, and have the CPU's bits.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/step.hpp"
#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/small_training.hpp"
#include "support/temp_folder.hpp"

namespace proof_run_test {

namespace {

using namespace lora;
using namespace lora::test;
constexpr Index steps = 4, half = 2;

/// Four steps, saved and loaded in the middle, an evaluation and some generated tokens.
template <class T, class D>
Outcome run(D& dev, const Subject& subject, const std::filesystem::path& folder) {
  const auto source = model::Source::open(folder / "model");
  Outcome outcome;
  {
    Training<D, T> training(dev, source, subject);
    training.run(0, half, outcome);
    training.save(folder / "half");
  }
  Training<D, T> training(dev, source, subject);
  training.load(folder / "half", half);
  training.run(half, steps - 1, outcome);
  if constexpr (std::same_as<D, proof::Device>) {
    const proof::Counts before = dev.counts();
    training.run(steps - 1, steps, outcome);
    const proof::Counts step = dev.counts() - before;
    CHECK(step.waits == 1);
    CHECK(step.copies_out == 1);
    CHECK(step.bytes_out == 2 * sizeof(double));
    CHECK(step.allocations == 0);
    CHECK(step.copies_in == micro_batches);
    CHECK(step.launches > 0);
  } else {
    training.run(steps - 1, steps, outcome);
  }
  training.finish(folder / "end", outcome);
  return outcome;
}

/// Two steps each with other layers that train, in one go, or else saved and loaded before each change.
template <class T, class D>
Outcome run_switched(D& dev, const Subject& subject, const std::filesystem::path& folder, bool saved) {
  const std::array<std::string_view, 4> stages{"01", "1", "0", "01"};
  const auto source = model::Source::open(folder / "model");
  Outcome outcome;
  std::optional<Training<D, T>> training;
  training.emplace(dev, source, subject);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto done = static_cast<Index>(2 * stage);
    if (saved && stage > 0) {
      const auto place = folder / concat("stage ", stage);
      training->save(place);
      training.emplace(dev, source, subject);
      training->train_layers(stages[stage - 1]);
      training->load(place, done);
    }
    training->train_layers(stages[stage]);
    training->run(done, done + 2, outcome);
  }
  training->finish(folder / (saved ? "end of parts" : "end of whole"), outcome);
  return outcome;
}

template <class T>
void check_switched(const std::string& family) {
  const Subject subject = subject_of(family);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  cpu::Device cpu(2);
  const Outcome whole = run_switched<T>(cpu, subject, folder.path(), false);
  CHECK(whole.losses.size() == 8);
  check_same(run_switched<T>(cpu, subject, folder.path(), true), whole);
  proof::Device dev(2, {.late_sources = true});
  check_same(run_switched<T>(dev, subject, folder.path(), false), whole);
  check_same(run_switched<T>(dev, subject, folder.path(), true), whole);
}

template <class T>
void check_family(const std::string& family) {
  const Subject subject = subject_of(family);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  cpu::Device cpu(2);
  const Outcome expected = run<T>(cpu, subject, folder.path());
  CHECK(expected.losses.size() == steps);
  proof::Device dev(2, {.late_sources = true});
  check_same(run<T>(dev, subject, folder.path()), expected);
}

/// Who would be refused by a device that wants what `settings` say: "kernel operand", or who called, in a step and an
/// evaluation of a model whose extents are multiples of 32, with more rows than tiles of rows have.
template <class T>
std::set<std::string> complaints(const proof::Settings& settings) {
  Subject subject;
  subject.model.family = "qwen2";
  subject.model.hidden = 64;
  subject.model.ffn = 96;
  subject.model.heads = 2;
  subject.model.kv_heads = 1;
  subject.model.head_dim = 32;
  subject.model.dtype = DType::f32;
  subject.rank = 8;
  subject.dropout = 0.1;
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  proof::Device dev(1, settings);
  {
    const auto source = model::Source::open(folder / "model");
    Training<proof::Device, T> training(dev, source, subject);
    const data::Batch batch = batch_of(
        std::vector<Index>(effort<std::size_t>(61, 20, "proof run: more rows than a tile of rows has"), 31), 0, 1);
    Outcome outcome;
    training.step(0, std::span(&batch, 1), outcome);
    training.finish(folder / "end", outcome);
    training.load(folder / "end", 1);
  }
  std::set<std::string> who;
  for (const auto& fault : dev.finish()) {
    const auto begins = fault.what.find(" begins ");
    who.insert(fault.what.substr(0, begins != fault.what.npos ? begins : fault.what.find(": ")));
  }
  return who;
}

/// Fails for each complaint that is not known.
void check_known(const std::set<std::string>& complaints, const std::set<std::string>& known) {
  for (const auto& complaint : complaints) {
    CAPTURE(complaint);
    CHECK(known.count(complaint) == 1);
  }
}

}  // namespace

TEST_CASE("proof run: every type of model trains as on the CPU, to the bit, and keeps to the device contract") {
  for (const char* family : {"gemma2", "llama", "qwen2", "qwen3", "smollm3"}) {
    CAPTURE(family);
    const bool narrow = family[0] == 'q';
    constexpr auto left_out = "proof run: of each type of model, one of two precisions";
    if (effort(true, !narrow, left_out)) check_family<float>(family);
    if (effort(true, narrow, left_out)) check_family<bf16>(family);
  }
}

TEST_CASE("proof run: what trains may change between steps, with the bits of a run that is saved and loaded there") {
  check_switched<float>("qwen3");
  check_switched<bf16>("llama");
}

// What a device would refuse today that is stricter than the contract asks. A list that may only grow shorter.

TEST_CASE("proof run: operands off 32 bytes are those that are known") {
  const std::set<std::string> known{"gemm: a", "sum_of_products: a"};  // columns of h, one projection's
  check_known(complaints<float>({.alignment = true}), known);
  check_known(complaints<bf16>({.alignment = true}), known);
}

TEST_CASE("proof run: no result shares its last 32 bytes") {
  check_known(complaints<float>({.tails = true}), {});
  check_known(complaints<bf16>({.tails = true}), {});
}

}  // namespace proof_run_test
