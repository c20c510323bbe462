#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/decode/generate.hpp"
#include "lora/instantiate.hpp"
#include "lora/run/state.hpp"
#include "lora/train/step.hpp"
#include "support/random_model.hpp"

// Tiny models that are trained by hand, on any device, and all that comes out.

namespace lora::test {

using Tokens = std::vector<std::int32_t>;

struct Subject {
  RandomModel model{};
  Index rank = 2;
  double dropout = 0;
  Index recomputed = 0;
};

/// A model of each type, stored in another way each, with what differs between runs switched on here and there.
inline Subject subject_of(const std::string& family, Index layers = 2) {
  Subject s;
  s.model.family = family;
  s.model.layers = layers;
  if (family == "llama") {
    s.model.more = {{"attention_bias", true}, {"mlp_bias", true}};
    s.dropout = 0.25;
  }
  if (family == "qwen2") {
    s.model.tied = true;
    s.model.dtype = DType::bf16;
  }
  if (family == "qwen3") {
    s.model.dtype = DType::f16;
    s.dropout = 0.25;
    s.recomputed = 1;
  }
  if (family == "mistral" || family == "phi3") s.model.more = {{"sliding_window", 4}};
  if (family.starts_with("gemma")) {
    std::vector<std::string> types(static_cast<std::size_t>(layers), "sliding_attention");
    types[1] = "full_attention";
    s.model.tied = true;
    s.model.more = {{"sliding_window", 4}, {"layer_types", types}, {"query_pre_attn_scalar", 2}};
    if (family == "gemma2") s.model.more.update({{"attn_logit_softcapping", 0.75}, {"final_logit_softcapping", 2}});
    s.recomputed = 1;
  }
  if (family == "smollm3") {
    std::vector<int> rotates(static_cast<std::size_t>(layers), 1);
    rotates[1] = 0;
    s.model.more = {{"no_rope_layers", rotates}};
    s.recomputed = layers;
  }
  return s;
}

/// Sequences of random tokens, of which the later part is labeled.
inline data::Batch batch_of(std::span<const Index> lengths, Index first_place, std::uint64_t seed) {
  data::Batch batch;
  Random random(seed);
  for (const Index length : lengths) {
    data::Example example;
    for (Index i = 0; i < length; ++i) {
      example.tokens.push_back(static_cast<std::int32_t>(random.below(61)));
      example.labels.push_back(3 * i < length ? ignore_index : example.tokens.back());
    }
    batch.append(example, first_place + batch.sequences());
  }
  return batch;
}

constexpr Index micro_batches = 2;  // of a step

struct Outcome {
  std::vector<double> losses, norms;
  double evaluation = 0;           ///< the last
  std::string adapter, optimizer;  ///< files
  std::vector<Tokens> continued;
};

inline void check_same(const Outcome& a, const Outcome& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK(a.evaluation == b.evaluation);
  CHECK(a.adapter == b.adapter);
  CHECK(a.optimizer == b.optimizer);
  CHECK(a.continued == b.continued);
}

/// A model whose adapter is trained for some steps.
template <class D, class T>
class Training {
 public:
  Training(D& dev, const model::Source& source, const Subject& subject, const model::WeightPlaces& places = {},
           const optim::StatePlace& state = {})
      : dev_(dev), decoder_(dev, source, places) {
    model::AdapterConfig config;
    config.rank = subject.rank;
    config.dropout = subject.dropout;
    decoder_.attach(dev, config);
    decoder_.recompute(subject.recomputed);
    model::init_adapter(dev, decoder_, 7);
    stepper_.emplace(dev, decoder_, optim::AdamWSettings{.weight_decay = 0.01}, 1.0, 42u, alone_, train::StepSharing{},
                     state);
  }

  void step(Index number, std::span<const data::Batch> batches, Outcome& outcome) {
    const auto result = stepper_->accumulate(dev_, number, batches);
    REQUIRE(result.finite());
    stepper_->update(dev_, result, 1e-2);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }

  void run(Index first, Index last, Outcome& outcome) {
    for (Index number = first; number < last; ++number) {
      const auto seed = static_cast<std::uint64_t>(number);
      const std::vector<data::Batch> batches{batch_of(std::vector<Index>{9, 1, 5}, 0, 10 + seed),
                                             batch_of(std::vector<Index>{4, 12}, 3, 20 + seed)};
      step(number, batches, outcome);
    }
  }

  /// From now on only adapters of these layers train.
  void train_layers(std::string_view layers) {
    constexpr std::string_view prefix = "model.layers.";
    stepper_->train(dev_, [=](std::string_view name) { return layers.find(name[prefix.size()]) != layers.npos; });
  }

  void save(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    model::save_adapter(dev_, decoder_, folder);
    stepper_->with_optimizer(dev_, [&](auto& dev, auto& optimizer) { run::save_optimizer(dev, optimizer, folder); });
  }
  void load(const std::filesystem::path& folder, Index updates) {
    model::load_adapter(dev_, decoder_, model::open_adapter(folder));
    stepper_->with_optimizer(dev_,
                             [&](auto& dev, auto& optimizer) { run::load_optimizer(dev, optimizer, updates, folder); });
  }

  model::Decoder<D, T>& decoder() { return decoder_; }

  /// Files, an evaluation and some generated tokens.
  void finish(const std::filesystem::path& folder, Outcome& outcome) {
    save(folder);
    outcome.adapter = io::read_file(folder / "adapter_model.safetensors");
    outcome.optimizer = io::read_file(folder / "optimizer.safetensors");
    ask(outcome);
  }
  void ask(Outcome& outcome) {
    evaluate(outcome);
    const std::vector<Tokens> prompts{{3, 7, 12}, {9}};
    outcome.continued = decode::generate(dev_, decoder_, std::span<const Tokens>(prompts),
                                         decode::GenerateOptions{.max_new_tokens = 5});
  }
  void evaluate(Outcome& outcome) {
    const data::Batch batch = batch_of(std::vector<Index>{7, 3}, 0, 30);
    outcome.evaluation = decoder_.evaluate(dev_, batch).loss_sum;
  }

 private:
  D& dev_;
  model::Decoder<D, T> decoder_;
  comm::Single<D> alone_;
  std::optional<train::Stepper<D, T>> stepper_;
};

}  // namespace lora::test
