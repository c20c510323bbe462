// What lies on the host instead of the device: the same bits, and no more copies and waits than that needs.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/proof_kernels.hpp"
#include "support/small_training.hpp"
#include "support/temp_folder.hpp"

namespace offload_test {

namespace {

using namespace lora;
using namespace lora::test;
using From = model::WeightPlaces::From;

template <class T>
Outcome run(proof::Device& dev, const model::Source& source, const Subject& subject, const model::WeightPlaces& places,
            const std::filesystem::path& folder) {
  Outcome outcome;
  Training<proof::Device, T> training(dev, source, subject, places);
  training.run(0, 2, outcome);
  training.ask(outcome);
  training.run(2, 4, outcome);
  training.finish(folder, outcome);
  return outcome;
}

template <class T>
void check_family(const std::string& family) {
  const Subject subject = subject_of(family, 4);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  proof::Device dev(2, {.late_sources = true});
  const Outcome expected = run<T>(dev, source, subject, {}, folder / "none");
  for (const From from : {From::memory, From::files}) {
    CAPTURE(static_cast<int>(from));
    check_same(run<T>(dev, source, subject, {.streams_layers = true, .from = from}, folder / "params"), expected);
  }
}

}  // namespace

TEST_CASE("offload: every type of model trains with streamed layers as without, to the bit") {
  for (const char* family : {"llama", "qwen2", "qwen3", "smollm3"}) {
    CAPTURE(family);
    check_family<float>(family);
    check_family<bf16>(family);
  }
}

}  // namespace offload_test
