// What a micro-batch and an evaluation are forecast to take of the arena, against what they take.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/train/memory.hpp"
#include "support/effort.hpp"
#include "support/instantiate.hpp"
#include "support/random_model.hpp"
#include "support/spans.hpp"
#include "support/temp_folder.hpp"

namespace forecast_test {

using namespace lora;

namespace {

struct Case {
  std::string name;
  test::RandomModel model{
      .vocabulary = 331, .hidden = 48, .ffn = 112, .layers = 3, .heads = 6, .kv_heads = 2, .head_dim = 12};
  bool has_adapter = true;
  model::AdapterConfig adapter{.rank = 5};
  std::function<bool(const model::TensorInfo&)> chosen{};  // of the model's own tensors
  model::Trained trains{};
  double noise = 0;
  Index recomputed = 0;
  std::vector<Index> lengths{37, 5, 61};
  Index labeled_of = 3;  // one of so many rows is labeled
};

bool begins(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, const auto& change) {
    Case& one = all.emplace_back();
    one.name = std::move(name);
    change(one);
  };
  const auto everything = [](const model::TensorInfo&) { return true; };
  for (const char* family : {"gemma2", "gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"})
    for (const bool tied : {false, true}) {
      const auto shape = [=](Case& c) {
        c.model.family = family;
        c.model.tied = tied;
        if (c.model.family == "llama") c.model.more = {{"attention_bias", true}, {"mlp_bias", true}};
        const std::string type = c.model.family;
        if (type == "mistral" || type == "phi3" || type.starts_with("gemma")) c.model.more = {{"sliding_window", 9}};
      };
      add(concat(family, tied ? ", tied" : "", ": an adapter"), shape);
      add(concat(family, tied ? ", tied" : "", ": all of it"), [=](Case& c) {
        shape(c);
        c.has_adapter = false;
        c.chosen = everything;
      });
    }
  for (const DType stored : {DType::bf16, DType::f16}) {
    add("stored as " + std::string(name_of(stored)), [=](Case& c) { c.model.dtype = stored; });
    add("many rows of weights stored as " + std::string(name_of(stored)), [=](Case& c) {
      c.model.dtype = stored;
      c.lengths = {90, 75, 35};  // from where on float32 joins updates with weights
    });
  }
  for (const Index count : {1, 2, 3}) {
    add(concat("checkpoints ", count), [=](Case& c) { c.recomputed = count; });
    add(concat("checkpoints ", count, ", dropout"), [=](Case& c) {
      c.recomputed = count;
      c.adapter.dropout = 0.25;
    });
    add(concat("checkpoints ", count, " of all of it"), [=](Case& c) {
      c.recomputed = count;
      c.has_adapter = false;
      c.chosen = everything;
    });
  }
  add("ranks by pattern", [](Case& c) {
    c.adapter.rank_pattern = {{"layers.1.self_attn.v_proj", 31}, {"layers.2.mlp.down_proj", 1}, {"gate_proj", 9}};
    c.adapter.alpha_pattern = {{"o_proj", 3.0}};
  });
  add("a large rank in the last layer", [](Case& c) { c.adapter.rank_pattern = {{"layers.2.mlp.up_proj", 90}}; });
  add("a large rank of o in the first layer", [](Case& c) {
    c.adapter.rank_pattern = {{"layers.0.self_attn.o_proj", 90}};
    c.recomputed = 3;
  });
  add("layers without an adapter below", [](Case& c) { c.adapter.layers = {2}; });
  add("layers without an adapter above", [](Case& c) { c.adapter.layers = {0}; });
  add("layers without an adapter between, checkpoints", [](Case& c) {
    c.adapter.layers = {0, 2};
    c.recomputed = 2;
  });
  for (const char* target : {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"})
    add(concat(target, " alone"), [=](Case& c) {
      c.adapter.targets = {target};
      c.adapter.dropout = 0.1;
    });
  add("an excluded module", [](Case& c) { c.adapter.excluded = {"layers.1.mlp.gate_proj", "k_proj"}; });
  add("dropout", [](Case& c) { c.adapter.dropout = 0.25; });
  add("dropout, wide MLP", [](Case& c) {
    c.adapter.dropout = 0.25;
    c.model.ffn = 400;
    c.labeled_of = 20;
  });
  for (const Index count : {0, 2})  // which a weight that is decoded could not hold
    add(concat("dropout over weights that are decoded, checkpoints ", count), [=](Case& c) {
      c.adapter.dropout = 0.25;
      c.model.dtype = DType::bf16;
      c.lengths = {90, 75, 35};
      c.recomputed = count;
    });
  add("noise on embeddings", [](Case& c) { c.noise = 5; });
  add("few labels, wide MLP", [](Case& c) {
    c.model.ffn = 400;
    c.labeled_of = 40;
  });
  add("few labels, wide heads", [](Case& c) {
    c.model.head_dim = 64;
    c.labeled_of = 40;
  });
  add("few labels, wide heads, no norms of them", [](Case& c) {
    c.model.family = "qwen2";
    c.model.head_dim = 64;
    c.labeled_of = 40;
  });
  add("windows of some layers", [](Case& c) {
    c.model.more = {{"use_sliding_window", true}, {"sliding_window", 20}, {"max_window_layers", 1}};
  });
  add("a small vocabulary", [](Case& c) { c.model.vocabulary = 17; });
  add("more rows than tiles have", [](Case& c) {
    c.lengths = {700, 400, 301};
    c.labeled_of = 1;
    c.model.layers = 2;
    c.model.vocabulary = 2500;
    c.adapter.dropout = 0.1;
  });
  add("more rows than tiles have, few labels", [](Case& c) {
    c.lengths = {700, 400, 301};
    c.labeled_of = 40;
    c.model.layers = 1;
    c.adapter.dropout = 0.1;
  });
  add("the head's rows of a small vocabulary are the widest", [](Case& c) {
    c.model = {.vocabulary = 17, .hidden = 96, .ffn = 24, .heads = 2, .kv_heads = 1, .head_dim = 4};
    c.labeled_of = 1;
  });
  add("an adapter and embeddings", [](Case& c) {
    c.adapter.whole_modules = {"embed_tokens"};
    c.adapter.layers = {1};
  });
  add("norms alone", [=](Case& c) {
    c.has_adapter = false;
    c.chosen = [](const model::TensorInfo& info) { return info.kind == model::TensorInfo::Kind::norm; };
  });
  add("norms of q and k alone", [=](Case& c) {
    c.has_adapter = false;
    c.chosen = [](const model::TensorInfo& info) { return info.norm == "self_attn.k_norm"; };
  });
  add("the second norm of the first layer alone", [=](Case& c) {
    c.has_adapter = false;
    c.chosen = [](const model::TensorInfo& info) { return info.norm == "post_attention_layernorm" && info.layer == 0; };
  });
  add("the last norm and the head alone", [=](Case& c) {
    c.has_adapter = false;
    c.chosen = [](const model::TensorInfo& info) { return info.layer < 0; };
  });
  add("biases alone", [=](Case& c) {
    c.model.family = "qwen2";
    c.has_adapter = false;
    c.chosen = [](const model::TensorInfo& info) { return info.kind == model::TensorInfo::Kind::bias; };
  });
  add("o alone, in full", [=](Case& c) {
    c.has_adapter = false;
    c.chosen = [](const model::TensorInfo& info) { return info.projection == "o_proj"; };
  });
  add("a stage that trains a layer of an adapter", [](Case& c) {
    c.trains = [](std::string_view name) { return begins(name, "model.layers.1."); };
    c.labeled_of = 40;
  });
  add("a stage that trains A alone, with large ranks", [](Case& c) {
    c.trains = [](std::string_view name) { return name.find("lora_A") != name.npos; };
    c.adapter.rank = 40;
    c.labeled_of = 40;
  });
  add("a stage that trains B alone, of weights that are decoded", [](Case& c) {
    c.trains = [](std::string_view name) { return name.find("lora_B") != name.npos; };
    c.model.dtype = DType::bf16;
    c.adapter.rank = 40;
    c.lengths = {90, 75, 35};
    c.labeled_of = 40;
  });
  add("a stage of full training", [=](Case& c) {
    c.has_adapter = false;
    c.chosen = everything;
    c.trains = [](std::string_view name) { return name.find("layers.2.mlp") != name.npos; };
    c.model.dtype = DType::bf16;
  });
  return all;
}

data::Batch batch_of(const Case& c) {
  data::Batch batch;
  Index row = 0;
  for (const Index length : c.lengths) {
    data::Example example;
    for (Index i = 0; i < length; ++i, ++row) {
      example.tokens.push_back(static_cast<std::int32_t>(row % c.model.vocabulary));
      example.labels.push_back(row % c.labeled_of == 0 ? example.tokens.back() : ignore_index);
    }
    batch.append(example, batch.sequences());
  }
  return batch;
}

model::Blueprint blueprint_of(const Case& c, const model::Source& source) {
  model::Blueprint blueprint = model::blueprint_of(source);
  if (c.has_adapter) blueprint.adapter = c.adapter;
  blueprint.chosen = c.chosen;
  return blueprint;
}

template <class D, class T>
model::Decoder<D, T> decoder_of(D& dev, const Case& c, const model::Source& source) {
  model::Decoder<D, T> decoder(dev, source);
  c.has_adapter ? decoder.attach(dev, c.adapter, c.chosen) : decoder.train_own(dev, c.chosen);
  if (c.trains) decoder.params().train(dev, c.trains);
  decoder.recompute(c.recomputed);
  decoder.embedding_noise(c.noise);
  return decoder;
}

/// The modules' own pieces are exact; beside a proof device's arena its kernels have one of their own. On the
/// processors kernels' buffers have a bound.
template <class D>
void check_arena(const train::MemoryForecast& forecast, const Arena& arena, int threads) {
  CHECK(forecast.activations == static_cast<double>(arena.peak_saved()));
  const auto scratch = static_cast<double>(arena.peak_scratch());
  if constexpr (D::reads_host_memory) {
    CHECK(forecast.workspace >= scratch);
    CHECK(forecast.workspace <= 4 / 3.0 * scratch + threads * 0.75 * 0x1p20);
  } else {
    CHECK(forecast.workspace == scratch);
  }
}

/// FLOPs of matrix products and attention, and bytes of other kernels, that a profile has counted.
nn::Work counted(const Profile& profile) {
  nn::Work work;
  for (const Profile::Node& node : profile.nodes()) {
    const bool product = node.family == "gemm" || node.family == "low-rank";
    if (product) work.products += node.flops;
    if (node.family == "attention") work.attention += node.flops;
    if (!product && node.family != "attention" && node.family != "quantize") work.moved += node.bytes;
  }
  return work;
}

template <class D, class T>
void check_work(const Case& c, const model::Source& source, const data::Batch& batch, const Tiling& tiling,
                const Profile& profile) {
  nn::WorkPass pass{.rows = batch.rows(),
                    .labeled = batch.labeled,
                    .element = sizeof(T),
                    .sum = sizeof(Accum<T>),
                    .tiling = tiling,
                    .whole_rows = kernel::HasCrossEntropy<D, T>};
  for (const Index length : c.lengths) pass.pairs += static_cast<double>(length * (length + 1)) / 2;
  for (const Index window : source.config().windows) {
    pass.windowed[window] = 0;
    for (const Index length : c.lengths)
      for (Index i = 1; i <= length; ++i)
        pass.windowed[window] += static_cast<double>(window > 0 ? std::min(i, window) : i);
  }
  const nn::Work work =
                     model::training_work(pass, model::shape_of<D, T>(blueprint_of(c, source), c.trains, c.recomputed)),
                 found = counted(profile);
  CHECK(work.attention == found.attention);
  CHECK(work.products == found.products);
  // Factors of an adapter are not counted, and are not small beside layers that are as narrow as these.
  CHECK(work.moved == doctest::Approx(found.moved).epsilon(0.15));
}

/// `prepare` gets the device first.
template <class D, class T>
void check(const Case& c, int threads = 1, const std::function<void(D&)>& prepare = {}) {
  CAPTURE(c.name);
  CAPTURE(name_of(dtype_of<T>));
  const test::TempFolder temp = test::TempFolder::in_memory();
  test::write_random_model(temp / "model", c.model);
  const auto source = model::Source::open(temp / "model");
  const data::Batch batch = batch_of(c);
  {
    D dev(threads);
    if (prepare) prepare(dev);
    auto decoder = decoder_of<D, T>(dev, c, source);
    Tensor<D, typename D::Sum> sum(dev, 1, 1);
    kernel::fill(dev, sum.view(), 0.0);
    Profile profile(Profile::Limits{.skipped_steps = 0});
    dev.set_profile(&profile);
    {
      const ProfileScope step(dev, Profile::Kind::step, "step");
      decoder.train_micro_batch(dev, batch, 1, 7, sum.view());
    }
    dev.set_profile(nullptr);
    dev.synchronize();
    check_work<D, T>(c, source, batch, dev.tiling(), profile);
    CHECK(test::checked_phases(profile).count("forward") == 1);
    const train::MemoryBasis basis{blueprint_of(c, source), nn::machine_of(dev)};
    check_arena<D>(train::forecast_memory<D, T>(basis, batch.rows(), batch.labeled, c.recomputed, c.trains),
                   dev.arena(), threads);
  }
  D dev(threads);
  if (prepare) prepare(dev);
  auto decoder = decoder_of<D, T>(dev, c, source);
  decoder.evaluate(dev, batch);
  const train::MemoryBasis basis{blueprint_of(c, source), nn::machine_of(dev)};
  check_arena<D>(train::forecast_evaluation<D, T>(basis, batch.rows(), batch.labeled), dev.arena(), threads);
}

}  // namespace

/// All cases, or some of them.
std::vector<Case> tried_cases() {
  const std::vector<Case> all = cases();
  std::vector<Case> tried;
  for (std::size_t i = 0; i < all.size(); i += test::effort<std::size_t>(1, 17, "forecast: 16 of 17 models")) {
    const bool large = all[i].name.starts_with("more rows");
    if (!large || test::effort(true, false, "forecast: more rows than tiles have, but on several threads"))
      tried.push_back(all[i]);
  }
  return tried;
}

TEST_CASE("forecast: what modules take of a device's arena is known to the byte, and their FLOPs to the last one") {
  for (const Case& c : tried_cases()) {
    check<proof::Device, float>(c);
    check<proof::Device, bf16>(c);
  }
}

TEST_CASE("forecast: on the processors, what is saved is known to the byte, and with kernels' buffers not much more") {
  for (const Case& c : tried_cases()) {
    check<cpu::Device, float>(c);
    if (test::effort(true, false, "forecast: the processors' bfloat16")) check<cpu::Device, bf16>(c);
  }
}

TEST_CASE("forecast: the bound of the processors' kernels holds for any number of threads, whoever forms products") {
  const auto by_eigen = [](cpu::Device& dev) { cpu::gemm_engines(dev) = {cpu::GemmEngine::eigen}; };
  for (const Case& c : cases()) {
    const bool wide = c.name.find("wide") != c.name.npos, full = c.name == "qwen2: all of it";
    const std::string rows = test::effort("more rows than tiles have", "more rows than tiles have, few labels",
                                          "forecast: labels of all rows on any number of threads");
    if (!wide && !full && c.name != rows) continue;
    if ((wide || full) && !test::effort(true, false, "forecast: wide and whole models on any number of threads"))
      continue;
    check<cpu::Device, bf16>(c, 2, by_eigen);
    if (!test::effort(true, false, "forecast: each type with each engine of products")) continue;
    check<cpu::Device, float>(c, 3);
    check<cpu::Device, bf16>(c, 3);
    check<cpu::Device, float>(c, 2, by_eigen);
    check<cpu::Device, f16>(c, 1);
  }
}

}  // namespace forecast_test
