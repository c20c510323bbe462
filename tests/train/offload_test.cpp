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

/// What lies where.
struct Places {
  std::string name;
  model::WeightPlaces weights{};
  optim::StatePlace state{};
};

const std::vector<Places>& all_places() {
  // Pieces of one block, so that there are several.
  static const std::vector<Places> places{
      {"none", {}, {}},
      {"optimizer", {}, {.on_host = true, .threads = 1, .piece = 1024}},
      {"params", {.streams_layers = true, .from = From::memory, .threads = 1}},
      {"params from files", {.streams_layers = true, .from = From::files, .threads = 1}},
      {"all",
       {.streams_layers = true, .slots = 3, .from = From::memory, .threads = 1},
       {.on_host = true, .threads = 1}},
  };
  return places;
}

/// Two steps, an evaluation and answers, a step more, all saved and loaded as `then` says, a last step and the rest.
template <class T>
Outcome run(proof::Device& dev, const model::Source& source, const Subject& subject, const Places& first,
            const Places& then, const std::filesystem::path& folder) {
  Outcome outcome;
  {
    Training<proof::Device, T> training(dev, source, subject, first.weights, first.state);
    training.run(0, 2, outcome);
    training.ask(outcome);
    training.run(2, 3, outcome);
    training.save(folder / "half");
  }
  Training<proof::Device, T> training(dev, source, subject, then.weights, then.state);
  training.load(folder / "half", 3);
  training.run(3, 5, outcome);
  training.finish(folder / "end", outcome);
  return outcome;
}

template <class T>
void check_family(const std::string& family) {
  const Subject subject = subject_of(family, 4);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  proof::Device dev(2, {.late_sources = true});
  const auto& places = all_places();
  const Outcome expected = run<T>(dev, source, subject, places[0], places[0], folder.path());
  for (std::size_t i = 1; i < places.size(); ++i) {
    const Places& then = places[(i + 1) % places.size()];
    CAPTURE(places[i].name);
    CAPTURE(then.name);
    check_same(run<T>(dev, source, subject, places[i], then, folder.path()), expected);
  }
}

}  // namespace

TEST_CASE("offload: every type of model trains to the same bits wherever weights and state lie, resumed or not") {
  for (const char* family : {"llama", "qwen2", "qwen3", "smollm3"}) {
    CAPTURE(family);
    check_family<float>(family);
    check_family<bf16>(family);
  }
}

}  // namespace offload_test
