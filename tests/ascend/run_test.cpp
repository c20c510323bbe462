// Whole runs of tiny models on the stand-in: they break no rule of the vendor's interface, and come as near to the
// CPU's as roundings let them.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/model/decoder/blueprint.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/offload.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_gguf.hpp"
#include "support/small_training.hpp"
#include "support/stand_in.hpp"
#include "support/temp_folder.hpp"

namespace ascend_run_test {

namespace {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;

constexpr Index steps = 4, half = 2;

/// How far steps may be apart, relatively.
template <class T>
struct Bounds;
template <>
struct Bounds<float> {
  // A loss is a mean of sums over 100 products, each off by some roundings of 2^-24; steps carry them on.
  static constexpr double loss = 2e-5, norm = 1e-4;
};
template <>
struct Bounds<bf16> {
  // The same with 2^-8; both sides round, in other places.
  static constexpr double loss = 2e-2, norm = 1e-1;
};
template <>
struct Bounds<f16> {
  static constexpr double loss = 3e-3, norm = 2e-2;
};

/// Four steps, saved and loaded in the middle, an evaluation and some generated tokens.
template <class T, class D>
Outcome run(D& dev, const Subject& subject, const std::filesystem::path& folder, const model::WeightPlaces& places = {},
            const optim::StatePlace& state = {}) {
  const auto source = model::Source::open(folder / "model");
  Outcome outcome;
  {
    Training<D, T> training(dev, source, subject, places, state);
    training.run(0, half, outcome);
    training.save(folder / "half");
  }
  Training<D, T> training(dev, source, subject, places, state);
  training.load(folder / "half", half);
  training.run(half, steps - 1, outcome);
  if constexpr (std::same_as<D, Npu>) {
    const StandInCounts before = stand_in_counts();
    training.run(steps - 1, steps, outcome);
    const StandInCounts after = stand_in_counts();
    const bool host_waits = state.on_host || places.from == model::WeightPlaces::From::files;
    CHECK((host_waits || after.waits - before.waits == 1));
    CHECK((state.on_host || after.copies_out - before.copies_out == 1));
    CHECK(after.device_allocations == before.device_allocations);
    CHECK(after.host_allocations == before.host_allocations);
  } else {
    training.run(steps - 1, steps, outcome);
  }
  training.finish(folder / "end", outcome);
  return outcome;
}

void check_near(const std::vector<double>& a, const std::vector<double>& b, double bound) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(a[i] == doctest::Approx(b[i]).epsilon(bound));
  }
}

template <class T>
void check_family(const std::string& family) {
  CAPTURE(family);
  const Subject subject = subject_of(family);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  cpu::Device cpu(2);
  const Outcome expected = run<T>(cpu, subject, folder.path());
  on_stand_in([&] {
    Npu dev;
    const Outcome outcome = run<T>(dev, subject, folder.path());
    check_near(outcome.losses, expected.losses, Bounds<T>::loss);
    check_near(outcome.norms, expected.norms, Bounds<T>::norm);
    check_near({outcome.evaluation}, {expected.evaluation}, Bounds<T>::loss);
    if (std::same_as<T, float>) CHECK(outcome.continued == expected.continued);
    if (!test::effort(true, false, "ascend run: the same again")) return;
    const Outcome again = run<T>(dev, subject, folder.path());
    check_same(again, outcome);
  });
}

/// Losses and norms of some steps in which all of a model's own weights train.
template <class T, class D>
Outcome run_full(D& dev, const Subject& subject, const std::filesystem::path& folder,
                 const model::WeightPlaces& places = {}, const optim::StatePlace& state = {}) {
  const auto source = model::Source::open(folder / "model");
  model::Decoder<D, T> decoder(dev, source, places);
  decoder.train_own(dev, [](const model::TensorInfo&) { return true; });
  decoder.recompute(subject.recomputed);
  comm::Single<D> alone;
  train::Stepper<D, T> stepper(dev, decoder, optim::AdamWSettings{.weight_decay = 0.01}, 1.0, 42u, alone, {}, state);
  Outcome outcome;
  for (Index number = 0; number < steps; ++number) {
    const auto seed = static_cast<std::uint64_t>(number);
    const std::vector<data::Batch> batches{batch_of(std::vector<Index>{9, 1, 5}, 0, 10 + seed),
                                           batch_of(std::vector<Index>{4, 12}, 3, 20 + seed)};
    const auto result = stepper.accumulate(dev, number, batches);
    REQUIRE(result.finite());
    stepper.update(dev, result, 1e-3);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  return outcome;
}

template <class T>
void check_full(const std::string& family) {
  CAPTURE(family);
  const Subject subject = subject_of(family);
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  cpu::Device cpu(2);
  const Outcome expected = run_full<T>(cpu, subject, folder.path());
  on_stand_in([&] {
    Npu dev;
    const Outcome outcome = run_full<T>(dev, subject, folder.path());
    check_near(outcome.losses, expected.losses, Bounds<T>::loss);
    check_near(outcome.norms, expected.norms, Bounds<T>::norm);
    // AdamW's steps are the host's, with other roundings, wherever the weights lie.
    const optim::StatePlace state{.on_host = true, .threads = 1};
    const Outcome host = run_full<T>(dev, subject, folder.path(), {}, state);
    check_near(host.losses, expected.losses, Bounds<T>::loss);
    const Outcome all = run_full<T>(dev, subject, folder.path(),
                                    {.streams_layers = true,
                                     .trains_on_host = true,
                                     .threads = 1,
                                     .trained = [](const model::TensorInfo&) { return true; }},
                                    state);
    CHECK(all.losses == host.losses);
    CHECK(all.norms == host.norms);
  });
}

/// Losses and norms of some steps, and an evaluation, of records with 20 tokens in common, which are computed once.
template <class T, class D>
Outcome run_shared(D& dev, const std::filesystem::path& model, Index recomputed) {
  const auto source = model::Source::open(model);
  model::Decoder<D, T> decoder(dev, source);
  decoder.train_own(dev, [](const model::TensorInfo&) { return true; });
  decoder.recompute(recomputed);
  train::Stepper<D, T> stepper(dev, decoder, optim::AdamWSettings{.weight_decay = 0.01}, 1.0, 42u);
  Random random(3);
  std::vector<data::Example> examples(7);
  std::vector<Index> places;
  for (data::Example& example : examples) {
    for (std::int32_t i = 0; i < 20; ++i) example.tokens.push_back(3 * i);
    for (std::uint32_t left = 3 + random.below(9); left > 0; --left)
      example.tokens.push_back(static_cast<std::int32_t>(random.below(61)));
    example.labels.assign(example.tokens.size(), ignore_index);
    std::copy_n(example.tokens.rbegin(), 2, example.labels.rbegin());
    places.push_back(std::ssize(places));
  }
  Outcome outcome;
  for (Index number = 0; number < steps; ++number) {
    std::vector<data::Batch> batches(1);
    batches[0].append(examples, places, true);
    CHECK(batches[0].rows() == batches[0].sequence_tokens - 6 * 20);
    const auto result = stepper.accumulate(dev, number, batches);
    REQUIRE(result.finite());
    stepper.update(dev, result, 1e-3);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  const auto example_of = [&](Index i) { return examples[static_cast<std::size_t>(i)]; };
  outcome.evaluation = train::evaluate(dev, decoder, std::ssize(examples), example_of, {.batch = 4}).loss();
  return outcome;
}

template <class T>
void check_shared(Index recomputed) {
  CAPTURE(recomputed);
  RandomModel shape;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 64;
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", shape);
  cpu::Device cpu(2);
  const Outcome expected = run_shared<T>(cpu, folder / "model", recomputed);
  on_stand_in([&] {
    Npu dev;
    const Outcome outcome = run_shared<T>(dev, folder / "model", recomputed);
    check_near(outcome.losses, expected.losses, Bounds<T>::loss);
    check_near(outcome.norms, expected.norms, Bounds<T>::norm);
    check_near({outcome.evaluation}, {expected.evaluation}, Bounds<T>::loss);
    check_same(run_shared<T>(dev, folder / "model", recomputed), outcome);
  });
}

/// Steps on one device, and then on another.
template <class T, class First, class Second>
Outcome run_on_both(First& first, Second& second, const Subject& subject, const std::filesystem::path& folder) {
  const auto source = model::Source::open(folder / "model");
  Outcome outcome;
  {
    Training<First, T> training(first, source, subject);
    training.run(0, half, outcome);
    training.save(folder / "half");
  }
  Training<Second, T> training(second, source, subject);
  training.load(folder / "half", half);
  training.run(half, steps, outcome);
  return outcome;
}

}  // namespace

TEST_CASE("ascend run: all weights of every type of model train as on the CPU, within roundings") {
  for (const std::string family : {"gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"}) {
    constexpr auto left_out = "ascend run: all weights of each type of model, one of two precisions";
    if (test::effort(true, family[0] != 'q', left_out)) check_full<float>(family);
    if (test::effort(true, family[0] == 'q', left_out)) check_full<bf16>(family);
  }
}

TEST_CASE("ascend run: what records have in common is computed once, as on the CPU, within roundings") {
  for (const Index recomputed : {0, 2}) check_shared<float>(recomputed);
  check_shared<bf16>(0);
}

TEST_CASE("ascend run: a run begun on a CPU goes on on an NPU, and the other way") {
  const Subject subject = subject_of("qwen3");
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  cpu::Device cpu(2);
  const Outcome expected = run<float>(cpu, subject, folder.path());
  on_stand_in([&] {
    Npu dev;
    check_near(run_on_both<float>(cpu, dev, subject, folder.path()).losses, expected.losses, Bounds<float>::loss);
    check_near(run_on_both<float>(dev, cpu, subject, folder.path()).losses, expected.losses, Bounds<float>::loss);
  });
}

TEST_CASE("ascend run: weights of GGUF's blocks: Q8_0 stays as it is, others are decoded by the host") {
  for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q4_k}) {
    CAPTURE(name_of(dtype));
    if (dtype == DType::q4_0 && !test::effort(true, false, "ascend run: weights in blocks of Q4_0")) continue;
    Subject subject;
    subject.model.family = dtype == DType::q8_0 ? "llama" : "qwen3";  // whose files permute q and k
    subject.model.layers = 3;
    subject.model.hidden = 256;
    subject.model.ffn = dtype == DType::q4_k ? 256 : 64;
    subject.model.head_dim = 64;
    const TempFolder folder = TempFolder::in_memory();
    write_gguf(folder / "model.gguf", subject.model, random_tensors(subject.model), dtype);
    const auto source = model::Source::open(folder / "model.gguf");
    cpu::Device cpu(2);
    Outcome expected;
    Training<cpu::Device, bf16>(cpu, source, subject).run(0, 2, expected);
    on_stand_in([&] {
      Npu dev;
      const auto run = [&](const model::WeightPlaces& places) {
        Training<Npu, bf16> training(dev, source, subject, places);
        Outcome outcome;
        training.run(0, 2, outcome);
        training.finish(folder / "end", outcome);
        return outcome;
      };
      const Outcome outcome = run({});
      check_near(outcome.losses, expected.losses, Bounds<bf16>::loss);
      // Whoever decodes, and wherever the weights lie, the numbers are the same.
      check_same(run({.host_decodes = true, .threads = 1}), outcome);
      using From = model::WeightPlaces::From;
      for (const From from : {From::memory, From::files})
        if (test::effort(true, (from == From::files) == (dtype == DType::q8_0),
                         "ascend run: Q8_0 that streams from memory, others from files"))
          check_same(run({.streams_layers = true, .from = from, .threads = 1}), outcome);
      // What is kept quantized takes half the memory of the same numbers in bfloat16.
      const auto bytes = [&](std::optional<bool> host_decodes) {
        const std::uint64_t before = stand_in_counts().bytes_in;
        const model::Decoder<Npu, bf16> decoder(dev, source, {.host_decodes = host_decodes, .threads = 1});
        return static_cast<double>(stand_in_counts().bytes_in - before);
      };
      const double share = bytes({}) / bytes(true);
      CHECK((dtype == DType::q8_0 ? share < 0.6 : share == 1));
    });
  }
}

TEST_CASE("ascend run: every type of model trains as on the CPU, within roundings, and repeats its bits") {
  for (const std::string family : {"gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"}) {
    constexpr auto left_out = "ascend run: of each type of model, two of three precisions";
    if (test::effort(true, family == "llama" || family == "mistral", left_out)) check_family<float>(family);
    if (test::effort(true, family[0] == 'q', left_out)) check_family<bf16>(family);
    if (test::effort(true, family == "phi3" || family == "smollm3" || family[0] == 'g', left_out))
      check_family<f16>(family);
  }
}

TEST_CASE("ascend run: beginnings are shared under a window that no record is longer than") {
  model::Config model;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.head_dim = 64;
  model.windows = {0, 8};
  const auto shares = [&](Index cutoff_len, std::optional<Index> of_a_stage) {
    settings::Config config;
    config.cutoff_len = cutoff_len;
    config.stages.emplace_back().cutoff_len = of_a_stage;
    on_stand_in([&] {
      Npu dev;
      train::settle_prefixes(dev, config, model);
    });
    return config.share_prefixes.value_or(true);
  };
  CHECK(shares(8, std::nullopt));
  CHECK(shares(8, 7));
  CHECK_FALSE(shares(9, std::nullopt));
  CHECK_FALSE(shares(8, 9));
}

TEST_CASE("ascend run: a model with soft caps is refused before its weights are read, and by plans") {
  const TempFolder folder = TempFolder::in_memory();
  test::RandomModel shape;
  shape.family = "gemma2";
  write_random_model(folder / "model", shape);
  const auto source = model::Source::open(folder / "model");
  const std::string expected =
      "models of type gemma2 have soft caps (attn_logit_softcapping, final_logit_softcapping), which NPUs do not "
      "compute; allowed: device cpu";
  on_stand_in([&] {
    Npu dev;
    CHECK(test::message_of<ConfigError>([&] { model::Decoder<Npu, float> decoder(dev, source); }) == expected);
    CHECK(test::message_of<ConfigError>([&] { model::shape_of<Npu, float>(model::blueprint_of(source)); }) == expected);
  });
}

TEST_CASE("ascend run: with weights or the optimizer's state on the host, the same bits") {
  for (const std::string family : {"qwen2", "qwen3"}) {
    CAPTURE(family);
    if (family == "qwen2" && !test::effort(true, false, "ascend run: qwen2 with weights on the host")) continue;
    const Subject subject = subject_of(family, 4);
    const TempFolder folder = TempFolder::in_memory();
    write_random_model(folder / "model", subject.model);
    on_stand_in([&] {
      Npu dev;
      const Outcome expected = run<bf16>(dev, subject, folder.path());
      using From = model::WeightPlaces::From;
      for (const From from : {From::memory, From::files}) {
        if (from == From::memory && !test::effort(true, false, "ascend run: layers that stream from memory")) continue;
        const model::WeightPlaces places{.streams_layers = true, .from = from, .threads = 1};
        check_same(run<bf16>(dev, subject, folder.path(), places), expected);
      }
      // AdamW's steps are the host's then, with other roundings.
      const Outcome host = run<bf16>(dev, subject, folder.path(), {}, {.on_host = true, .threads = 1});
      check_near(host.losses, expected.losses, Bounds<bf16>::loss);
    });
  }
}

TEST_CASE("ascend run: layers that stay on the card give way where its memory is short, to the same bits") {
  Subject subject = subject_of("qwen2", 4);
  subject.model.hidden = 384;
  subject.model.ffn = 1536;  // so that a layer has its own piece of memory
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", subject.model);
  const auto source = model::Source::open(folder / "model");
  on_stand_in([&] {
    const auto train = [&](bool short_of_memory) {
      Npu dev;
      Training<Npu, bf16> training(dev, source, subject, {.streams_layers = true, .threads = 1});
      std::vector<Tensor<Npu, std::byte>> rest;
      if (short_of_memory) {
        const std::size_t two = training.decoder().streaming()->device;  // layers
        CHECK(training.decoder().keep_layers(dev.memory().free) == two);
        // Less than the arena grows by is left.
        constexpr std::size_t unit = std::size_t{2} << 20;
        const auto left = [&] { return dev.memory().total - stand_in_counts().allocated_bytes; };
        while (left() / unit > 1)
          rest.emplace_back(dev, static_cast<Index>((left() / unit - 1) * unit - ascend::MemoryPool::tail));
      }
      Outcome outcome;
      training.run(0, test::effort<Index>(2, 1, "ascend run: a second step with layers that stay"), outcome);
      return outcome;
    };
    const Outcome expected = train(false);
    const Quiet quiet;
    check_same(train(true), expected);
    CHECK(quiet.said("the device is short of memory: of the layers that stayed there, some are streamed again"));
  });
}

}  // namespace ascend_run_test
