// What lies on the host instead of the device: the same bits, and no more copies and waits than that needs.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lora/train/memory_plan.hpp"
#include "lora/train/trainer.hpp"
#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/quiet.hpp"
#include "support/small_training.hpp"
#include "support/temp_folder.hpp"
#include "support/workshop.hpp"

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
void check_family(const std::string& family, std::size_t number) {
  const Subject subject = subject_of(family, 4);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  proof::Device dev(2, {.late_sources = true});
  const auto& places = all_places();
  const Outcome expected = run<T>(dev, source, subject, places[0], places[0], folder.path());
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (i != number && !test::effort(true, false, "offload: of each type of model, three of four places")) continue;
    const Places& then = places[(i + 1) % places.size()];
    CAPTURE(places[i].name);
    CAPTURE(then.name);
    check_same(run<T>(dev, source, subject, places[i], then, folder.path()), expected);
  }
}

}  // namespace

TEST_CASE("offload: a step waits for its result and for each piece of the gradient, and brings nothing twice") {
  const Subject subject = subject_of("qwen3", 4);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  proof::Device dev(2, {.late_sources = true});
  for (const Places& places : all_places()) {
    CAPTURE(places.name);
    Training<proof::Device, bf16> training(dev, source, subject, places.weights, places.state);
    Outcome outcome;
    training.run(0, 2, outcome);
    const proof::Counts before = dev.counts();
    training.run(2, 3, outcome);
    const proof::Counts step = dev.counts() - before;
    const auto elements = static_cast<std::size_t>(training.decoder().params().slab(0).value.size());
    const std::size_t pieces = !places.state.on_host ? 0 : places.state.piece ? elements / 1024 : 1;
    CHECK(elements > 1024);
    CHECK(step.allocations == 0);
    CHECK(step.copies_out == 1 + pieces);
    CHECK(step.bytes_out == 2 * sizeof(double) + (pieces > 0 ? elements * sizeof(float) : 0));
    if (places.weights.from != From::files) CHECK(step.waits == 1 + pieces);
    const auto& streaming = training.decoder().streaming();
    const std::size_t anew = streaming ? 2 * static_cast<std::size_t>(4 - places.weights.slots) : 0;
    const std::size_t layers = micro_batches * anew * (streaming ? streaming->layers / 4 : 0);
    CHECK(step.bytes_beside == layers + (pieces > 0 ? 2 * elements * sizeof(float) : 0));
    CHECK(step.copies_in == micro_batches * (1 + anew) + pieces);
  }
}

TEST_CASE("offload: what trains may change between steps, with the optimizer's state on the host") {
  const Subject subject = subject_of("llama");
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  proof::Device dev(2, {.late_sources = true});
  const auto run = [&](const Places& places) {
    Training<proof::Device, bf16> training(dev, source, subject, places.weights, places.state);
    Outcome outcome;
    Index step = 0;
    for (const char* const layers : {"1", "01", "0", "01"}) {
      training.train_layers(layers);
      training.run(step, step + 2, outcome);
      step += 2;
    }
    training.finish(folder / "end", outcome);
    return outcome;
  };
  const auto& places = all_places();
  const Outcome expected = run(places[0]);
  check_same(run(places[1]), expected);
  check_same(run(places[4]), expected);
}

TEST_CASE("offload: what the host lacks is said before anything happens") {
  const Subject subject = subject_of("qwen3");
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  proof::Device dev(1), without(1, {.host_memory = 4096});
  const auto train = [&](proof::Device& on, const optim::StatePlace& state) {
    Training<proof::Device, float>(on, source, subject, {}, state);
  };
  CHECK_THROWS_WITH_AS(train(dev, {.on_host = true, .memory = std::size_t{1} << 19}),
                       "key offload: the optimizer's state needs 0.6 MiB of the host's memory, but 0.5 MiB are "
                       "available; allowed: none, or params with an adapter",
                       ConfigError);
  CHECK_THROWS_WITH_AS(train(without, {.on_host = true}),
                       doctest::Contains("key offload: memory on the host for the optimizer's state, 0.6 MiB, can't be "
                                         "had: [proof] out of page-locked memory"),
                       DeviceError);
  CHECK_NOTHROW(train::expect_host_has_values(3e9, 1e9, 4'000'000'000));
  CHECK_THROWS_WITH_AS(train::expect_host_has_values(0x6p30, 0x4p30, std::size_t{8} << 30),
                       "key offload: the weights that train and the optimizer's state need 10.00 GiB of the host's "
                       "memory, but 8.00 GiB are available; allowed: none or optimizer, which need less, or with "
                       "zero_stage 3 more processes, which share them out",
                       ConfigError);
  cpu::Device cpu(1);
  CHECK_THROWS_WITH_AS((Training<cpu::Device, float>(cpu, source, subject, {}, {.on_host = true})),
                       "the optimizer's state can't leave a device whose memory is the host's", ConfigError);
}

TEST_CASE("offload: the processors as device are told why they have none") {
  const Quiet quiet;
  const Workshop shop;
  for (const char* const value : {"optimizer", "params", "all"}) {
    auto config = shop.config();
    config.offload = value;
    CHECK_THROWS_WITH_AS(fine_tune(config),
                         concat("key offload: given ", value,
                                ", but the run's device is the processors, whose memory is the host's: weights are "
                                "used in place from the mapped files; allowed: none")
                             .c_str(),
                         ConfigError);
    CHECK_FALSE(std::filesystem::exists(config.output_dir));
  }
  auto config = shop.config();
  config.finetuning_type = "full";
  config.lora_rank.reset();
  config.lora_dropout = 0;
  config.offload = "params";
  CHECK_THROWS_WITH_AS(settings::validate(config, settings::train_command),
                       "key offload: given params, allowed: none, optimizer or all with finetuning_type full: an "
                       "optimizer on the device has the weights that train there, in float32",
                       ConfigError);
  for (const char* const value : {"optimizer", "all"}) {
    config.offload = value;
    CHECK_NOTHROW(settings::validate(config, settings::train_command));
  }
  config.offload = "disk";
  CHECK_THROWS_WITH_AS(settings::validate(config, settings::train_command),
                       "key offload: given disk, allowed: one of none, optimizer, params, all", ConfigError);
}

template <class T>
void check_whole_model(const char* dtype) {
  CAPTURE(dtype);
  const Quiet quiet;
  const Workshop shop;
  const auto files_of = [&](const char* offload, bool stages) {
    Config config = shop.config(offload);
    config.finetuning_type = "full";
    config.lora_rank.reset();
    config.lora_dropout = 0;
    config.dtype = dtype;
    config.offload = offload;
    config.load_best_model_at_end = true;
    config.trainable = {R"(layers\.1\.)", "embed", "norm"};  // the rest is streamed as it is stored
    if (stages) {
      config.num_train_epochs = 3;
      config.trainable = {"."};
      config.stages = {{.until_step = 4, .trainable = {{R"(layers\.1\.)", "norm"}}},
                       {.until_step = 9, .trainable = {{"embed", "self_attn"}}},
                       {.until_step = 13}};
    }
    proof::Device dev(1, {.late_sources = true});
    train::TrainingRun<proof::Device, T>(dev, config, inputs::open_source(config), RunOptions{}, nullptr).run();
    const auto files = lasting_files(config.output_dir);
    CHECK(files.size() > 8);
    std::filesystem::remove_all(config.output_dir);
    return files;
  };
  for (const bool stages : {false, true}) {
    CAPTURE(stages);
    const auto expected = files_of("optimizer", stages);
    expect_same(files_of("all", stages), expected);
    expect_same(files_of("none", stages), expected);
  }
  CHECK(quiet.said("offload: the weights that train lie beside the optimizer's state in "));
  CHECK(quiet.said(" of page-locked memory, and each layer is copied ahead of its use: "));
}

TEST_CASE("offload: a whole model trains to the same bits with its weights on the host, whatever trains when") {
  check_whole_model<bf16>("bfloat16");
  if (test::effort(true, false, "offload: a whole model in float32 and float16")) {
    check_whole_model<float>("float32");
    check_whole_model<f16>("float16");
  }
}

TEST_CASE("offload: the memory plan says what each memory holds") {
  const Subject subject = subject_of("qwen3", 4);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  proof::Device dev(1);
  settings::Config config;
  const auto plan = [&](const char* offload) {
    config.offload = offload;
    Training<proof::Device, bf16> training(dev, source, subject, train::weight_places<proof::Device>(config, 1),
                                           train::state_place(config));
    auto& decoder = training.decoder();
    model::Blueprint blueprint = model::blueprint_of(source);
    blueprint.adapter = decoder.adapter();
    const auto basis = train::memory_basis<proof::Device, bf16>(dev, blueprint, decoder.streaming());
    return train::plan_memory<proof::Device, bf16>(basis, {64, 64}, {}, config, 1e12);
  };
  const auto none = plan("none"), optimizer = plan("optimizer"), params = plan("params"), all = plan("all");
  // 61 · 16 numbers each of embedding and head, stored as f16; matrices of a layer; norms in float32.
  const double layer = 2 * (16 * (16 + 8 + 8 + 16) + 3 * 16 * 24), ends = 2 * 2 * 61 * 16, norms = 4 * (16 + 4 * 40);
  CHECK(none.needs.weights == 4 * layer + ends + norms);
  CHECK(params.needs.weights == 2 * layer + ends + norms);
  CHECK(none.host->total() == 0);
  CHECK(params.host->weights == 4 * layer);
  CHECK(params.host->optimizer == 0);
  CHECK(none.held == none.trained.total());
  CHECK(optimizer.trained.moments == 0);
  CHECK(optimizer.held == none.held - none.trained.moments);
  CHECK(optimizer.needs.weights == none.needs.weights);
  // Moments and values, and four buffers that hold all of it.
  CHECK(optimizer.host->optimizer == 3.5 * none.trained.moments);
  CHECK(all.host->total() == params.host->weights + optimizer.host->optimizer);
  CHECK(all.held + all.needs.total() <
        std::min(optimizer.held + optimizer.needs.total(), params.held + params.needs.total()));
  const Quiet quiet;
  train::say_memory(all, 4, config, {0, std::size_t{1} << 30});
  CHECK(quiet.said("is expected on the device (weights "));
  CHECK(quiet.said("); 1.00 GiB are available"));
  CHECK(quiet.said("memory of the host: 0.00 GiB for weights that are streamed, 0.00 GiB for the optimizer; "));
}

TEST_CASE("offload: every type of model trains to the same bits wherever weights and state lie, resumed or not") {
  std::size_t number = 0;
  for (const char* family : {"llama", "qwen2", "qwen3", "smollm3"}) {
    CAPTURE(family);
    ++number;
    const bool first = family[0] == 'l' || family[0] == 's';
    constexpr auto left_out = "offload: of each type of model, one of two precisions";
    if (test::effort(true, first, left_out)) check_family<float>(family, number);
    if (test::effort(true, !first, left_out)) check_family<bf16>(family, number);
  }
}

}  // namespace offload_test
