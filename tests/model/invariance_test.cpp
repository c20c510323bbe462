// What must not matter: the order of sequences, what else is in the batch, rows that lead to no label, threads,
// recomputation.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lora/data/batches/batch.hpp"
#include "lora/instantiate.hpp"
#include "support/effort.hpp"
#include "support/gradcheck.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace invariance_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

struct Sequence {
  std::vector<std::int32_t> tokens, labels;  // labels: the token that each row predicts, -100 for none
  std::int32_t place = 0;
};

std::vector<Sequence> sequences_of(std::span<const Index> lengths) {
  std::vector<Sequence> sequences;
  Random random(3);
  for (const Index length : lengths) {
    Sequence s;
    s.place = static_cast<std::int32_t>(sequences.size());
    for (Index i = 0; i < length; ++i) {
      s.tokens.push_back(static_cast<std::int32_t>(random.below(61)));
      // The last third of each sequence leads to no label.
      s.labels.push_back(3 * i < 2 * length ? static_cast<std::int32_t>(random.below(61)) : -100);
    }
    sequences.push_back(s);
  }
  return sequences;
}

std::vector<Sequence> some_sequences() { return sequences_of(std::vector<Index>{9, 1, 30, 17}); }

/// 1,200 rows, or 600: more than a tile of rows (512), and than what one thread takes at a time of any kernel. Where a
/// weight must be decoded, the update rides in it for all of them together, and for none of them alone.
std::vector<Sequence> many_sequences() {
  std::vector<Index> lengths;
  for (int i = 0; i < effort(60, 30, "invariance: half of 1,200 rows"); ++i)
    lengths.push_back(std::array<Index, 6>{30, 1, 25, 17, 29, 18}[static_cast<std::size_t>(i % 6)]);
  return sequences_of(lengths);
}

/// `count` micro-batches of as many sequences each.
std::vector<std::vector<Sequence>> split(const std::vector<Sequence>& sequences, std::size_t count) {
  std::vector<std::vector<Sequence>> batches(count);
  for (std::size_t i = 0; i < sequences.size(); ++i) batches[i * count / sequences.size()].push_back(sequences[i]);
  return batches;
}

constexpr Index inner_extent = 96;  // the largest of the models below

struct Outcome {
  double loss = 0;
  std::vector<float> gradient;
  Index rows = 0;
  std::size_t references = 0;  ///< products for which oneDNN has only its reference implementation
};

nn::Batch laid_out(const std::vector<Sequence>& sequences) {
  nn::Batch rows;
  for (const auto& s : sequences) {
    const Index begin = rows.rows();
    for (std::size_t i = 0; i < s.tokens.size(); ++i) {
      rows.tokens.push_back(s.tokens[i]);
      rows.labels.push_back(s.labels[i]);
      rows.positions.push_back(static_cast<std::int32_t>(i));
      rows.sequence_index.push_back(s.place);
    }
    rows.segments.push_back({begin, rows.rows()});
  }
  return rows;
}

/// Loss and gradient of the micro-batches of one step. Products of bfloat16 are Eigen's,
/// whose sums do not depend on the extents of the product: else a sum near the middle of two bfloat16 numbers is
/// rounded to either of them.
template <class T>
Outcome outcome_of_batches(const std::filesystem::path& folder, const std::vector<nn::Batch>& micro_batches,
                           int threads, Index recomputed = 0, double dropout = 0.3) {
  D dev(threads);
  if constexpr (std::same_as<T, bf16>) cpu::gemm_engines(dev) = {cpu::GemmEngine::eigen};
  const auto source = model::Source::open(folder);
  model::Decoder<D, T> decoder(dev, source);
  model::AdapterConfig adapter;
  adapter.rank = 4;
  adapter.dropout = dropout;
  decoder.attach(dev, adapter);
  decoder.recompute(recomputed);
  model::init_adapter(dev, decoder, 5);
  std::uint64_t key = 0;
  decoder.params().for_each([&](const nn::ParamRef<D, T>& param) {
    Random random(mix_key(11, ++key));
    if (param.transposed)
      for (float& value : elements(param.value)) value = 0.2f * (2 * random.uniform() - 1);
  });
  decoder.params().refresh(dev);
  Outcome result;
  Index labeled = 0;
  for (const auto& batch : micro_batches) {
    for (const auto label : batch.labels) labeled += label >= 0 ? 1 : 0;
    result.rows += batch.rows();
  }
  Tensor<D, double> sum(dev, 1);
  kernel::fill(dev, sum.view(), 0.0);
  for (const auto& batch : micro_batches)
    decoder.train_micro_batch(dev, batch, 1 / static_cast<double>(labeled), 77, sum.view());
  result.loss = sum.view().data()[0] / static_cast<double>(labeled);
#if defined(LORA_WITH_ONEDNN)
  result.references = dev.state<cpu::OneDnn>().references();
#endif
  decoder.params().for_each([&](const nn::ParamRef<D, T>& param) {
    for (const float g : elements(param.grad)) result.gradient.push_back(g);
  });
  return result;
}

/// The same of sequences, each list being a micro-batch.
template <class T = float>
Outcome outcome_of(const std::filesystem::path& folder, const std::vector<std::vector<Sequence>>& micro_batches,
                   int threads, Index recomputed = 0, double dropout = 0.3) {
  std::vector<nn::Batch> batches;
  for (const auto& sequences : micro_batches) batches.push_back(laid_out(sequences));
  return outcome_of_batches<T>(folder, batches, threads, recomputed, dropout);
}

/// Equal but for the rounding of sums of float32 terms in another order: n rows through 2 layers of inner extents up to
/// k and back, each sum with a relative error of at most √(n k) · 2⁻²⁴ of its norm. In bfloat16 too: what a row is
/// rounded to depends on nothing but its sequence, and over rows sums are float32. `roundings`: else, those of rows to
/// T.
void expect_near(const Outcome& a, const Outcome& b, Index extent = inner_extent, double roundings = 0) {
  CHECK(a.loss == doctest::Approx(b.loss).epsilon(std::max(1e-6, roundings)));
  REQUIRE(a.gradient.size() == b.gradient.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.gradient.size(); ++i) {
    const double d = static_cast<double>(a.gradient[i]) - static_cast<double>(b.gradient[i]);
    difference += d * d;
    norm += static_cast<double>(b.gradient[i]) * static_cast<double>(b.gradient[i]);
  }
  CHECK(std::sqrt(difference / norm) < std::max(std::sqrt(static_cast<double>(a.rows * extent)) * 0x1p-24, roundings));
}

struct Model {
  TempFolder folder;
  explicit Model(DType dtype = DType::f32) {
    RandomModel shape;
    shape.hidden = 64;
    shape.ffn = inner_extent;
    shape.head_dim = 12;
    shape.dtype = dtype;
    write_random_model(folder.path(), shape);
  }
};

/// Calls check.operator()<T>(model) for models of each type that is computed in and stored, or only for that whose
/// weights are decoded.
template <class Check>
void each_model(const Check& check, bool all = true) {
  if (all) SUBCASE("f32") {
      check.template operator()<float>(Model(DType::f32));
    }
  SUBCASE("f32 over bf16") { check.template operator()<float>(Model(DType::bf16)); }
  if (all) SUBCASE("bf16") {
      check.template operator()<bf16>(Model(DType::bf16));
    }
}

bool of_all() { return effort(true, false, "invariance: many rows, but where weights are decoded"); }

}  // namespace

TEST_CASE("invariance: the order of sequences in a batch") {
  each_model([]<class T>(const Model& model) {
    auto sequences = some_sequences();
    const auto before = outcome_of<T>(model.folder.path(), {sequences}, 1);
    std::swap(sequences[0], sequences[3]);
    std::swap(sequences[1], sequences[2]);
    expect_near(outcome_of<T>(model.folder.path(), {sequences}, 1), before);
  });
}

TEST_CASE("invariance: each sequence alone, or all together, with dropout") {
  each_model([]<class T>(const Model& model) {
    const auto sequences = some_sequences();
    expect_near(outcome_of<T>(model.folder.path(), split(sequences, sequences.size()), 1),
                outcome_of<T>(model.folder.path(), {sequences}, 1));
  });
}

TEST_CASE("invariance: many sequences alone, or all together, with and without dropout") {
  each_model(
      []<class T>(const Model& model) {
        const auto sequences = many_sequences();
        for (const double dropout : {0.0, 0.3}) {
          CAPTURE(dropout);
          const auto together = outcome_of<T>(model.folder.path(), {sequences}, 2, 0, dropout);
          CHECK(together.rows == effort(1200, 600, "invariance: half of 1,200 rows"));
          expect_near(outcome_of<T>(model.folder.path(), split(sequences, sequences.size()), 2, 0, dropout), together);
        }
      },
      of_all());
}

TEST_CASE("invariance: what sequences have in common computed once, or for each of them") {
  // A beginning of all, and of some more after it; one row alone; sequences that are equal; what has no label.
  std::vector<data::Example> examples;
  Random random(8);
  for (const std::string_view text :
       {"a long beginning, which all have in common: then this",
        "a long beginning, which all have in common: then that", "a long beginning, which all have in common, but then",
        "a long beginning, which all have in common: then this", "another, alone", "a"}) {
    data::Example example;
    for (const char letter : text) example.tokens.push_back(static_cast<std::int32_t>(letter) % 61);
    example.labels.assign(example.tokens.size(), ignore_index);
    for (std::size_t i = examples.size() % 2; i < std::min<std::size_t>(4, text.size()); ++i)
      *(example.labels.end() - 1 - static_cast<std::ptrdiff_t>(i)) = static_cast<std::int32_t>(random.below(61));
    examples.push_back(std::move(example));
  }
  const std::vector<Index> places{0, 1, 2, 3, 4, 5};
  data::Batch apart, shared;
  for (std::size_t i = 0; i < examples.size(); ++i) apart.append(examples[i], places[i]);
  shared.append(examples, places, true);
  CHECK(shared.rows() < 0.6 * static_cast<double>(apart.rows()));
  CHECK(shared.labeled == apart.labeled);
  each_model([&]<class T>(const Model& model) {
    for (const Index recomputed : {0, 2}) {
      const auto one = outcome_of_batches<T>(model.folder.path(), {shared}, 1, recomputed, 0);
      // The gradients of a row in common are added up before they are rounded: some ten roundings in each layer.
      const double roundings = std::same_as<T, bf16> ? std::sqrt(20.0) * 0x1p-9 : 0;
      expect_near(outcome_of_batches<T>(model.folder.path(), {apart}, 1, recomputed, 0), one, inner_extent, roundings);
      if constexpr (std::same_as<T, float>) {
        const auto more = outcome_of_batches<T>(model.folder.path(), {shared}, 3, recomputed, 0);
        CHECK(more.loss == doctest::Approx(one.loss).epsilon(1e-6));
      }
    }
  });
  for (const std::string family : {"llama", "qwen2", "smollm3"}) {
    CAPTURE(family);
    TempFolder folder;
    RandomModel shape;
    shape.family = family;
    shape.hidden = 64;
    shape.ffn = inner_extent;
    if (family == "smollm3") shape.more = {{"no_rope_layers", {1, 0}}};
    write_random_model(folder.path(), shape);
    expect_near(outcome_of_batches<float>(folder.path(), {apart}, 2, 0, 0),
                outcome_of_batches<float>(folder.path(), {shared}, 2, 0, 0));
  }
}

TEST_CASE("invariance: dropout is a sequence's own, so that none is drawn for what several have in common") {
  const Model model;
  data::Batch shared;
  const data::Example example{std::vector<std::int32_t>(20, 7), [] {
                                std::vector<std::int32_t> labels(20, ignore_index);
                                labels.back() = 3;
                                return labels;
                              }()};
  shared.append(std::vector<data::Example>{example, example}, std::vector<Index>{0, 1}, true);
  CHECK(shared.rows() == 22);
  CHECK(message_of<ConfigError>([&] { outcome_of_batches<float>(model.folder.path(), {shared}, 1); }) ==
        "[lora_linear] dropout of rows that several sequences have in common; its random numbers are a sequence's");
}

TEST_CASE("invariance: a step in 1, 2, 4 or 8 micro-batches") {
  each_model([]<class T>(const Model& model) {
    auto sequences = many_sequences();
    sequences.resize(8);
    const auto whole = outcome_of<T>(model.folder.path(), split(sequences, 1), 2);
    for (const std::size_t count : {2u, 4u, 8u}) {
      CAPTURE(count);
      expect_near(outcome_of<T>(model.folder.path(), split(sequences, count), 2), whole);
    }
  });
}

TEST_CASE("invariance: rows that lead to no label, or none of them") {
  each_model([]<class T>(const Model& model) {
    auto sequences = some_sequences();
    const auto whole = outcome_of<T>(model.folder.path(), {sequences}, 1);
    for (auto& s : sequences) {
      while (s.labels.back() < 0) {
        s.tokens.pop_back();
        s.labels.pop_back();
      }
    }
    expect_near(outcome_of<T>(model.folder.path(), {sequences}, 1), whole);
  });
}

TEST_CASE("invariance: threads; the same number gives the same bits") {
  each_model(
      []<class T>(const Model& model) {
        const auto sequences = many_sequences();  // every kernel splits so many rows
        const auto one = outcome_of<T>(model.folder.path(), {sequences}, 1);
        for (int threads = effort(1, 3, "invariance: one and two threads"); threads <= 3; ++threads) {
          CAPTURE(threads);
          const auto first = outcome_of<T>(model.folder.path(), {sequences}, threads);
          const auto second = outcome_of<T>(model.folder.path(), {sequences}, threads);
          CHECK(first.loss == second.loss);
          CHECK(first.gradient == second.gradient);
          expect_near(first, one);
        }
      },
      of_all());
}

TEST_CASE("invariance: recomputing no, one or all layers gives the same bits") {
  each_model([]<class T>(const Model& model) {
    const auto sequences = some_sequences();
    const auto kept = outcome_of<T>(model.folder.path(), {sequences}, 2);
    for (const Index layers : {1, 2}) {
      const auto again = outcome_of<T>(model.folder.path(), {sequences}, 2, layers);
      CHECK(again.loss == kept.loss);
      CHECK(again.gradient == kept.gradient);
    }
  });
}

TEST_CASE("invariance: blocks used as stored, or their numbers decoded beforehand and rounded to what computes") {
  RandomModel shape;
  shape.family = "qwen2";
  shape.ffn = inner_extent;
  shape.head_dim = 16;
  int number = 0;
  for (const DType dtype : weight_types) {
    if (block_elements(dtype) == 1) continue;
    CAPTURE(name_of(dtype));
    constexpr auto left_out = "invariance: of each quantized type, rows that add or rows that ride";
    const bool adds = effort(true, number++ % 2 == 0, left_out), rides = effort(true, !adds, left_out);
    if (number % effort(1, 3, "invariance: two of three quantized types") != 0) continue;
    shape.hidden = std::max(block_elements(dtype), Index{64});
    const Index extent = std::max(shape.hidden, shape.ffn);
    const TempFolder folder;
    auto tensors = random_tensors(shape);
    write_gguf(folder / "model.gguf", shape, tensors, dtype);
    for (auto& tensor : tensors) encode(tensor.values, gguf_dtype(tensor.shape, dtype));
    write_model(folder / "f32", config_json(shape), tensors, DType::f32);
    for (auto& tensor : tensors)
      if (tensor.shape.rank() == 2) encode(tensor.values, DType::bf16);
    write_model(folder / "rounded", config_json(shape), tensors, DType::f32);  // norms and biases stay float32
    const std::vector<std::vector<Sequence>> some{some_sequences()}, many{many_sequences()};
    // With dropout, and for few rows, the update is added to y; else it rides in the decoded weight.
    if (adds) expect_near(outcome_of(folder / "model.gguf", some, 2), outcome_of(folder / "f32", some, 2), extent);
    if (rides)
      expect_near(outcome_of(folder / "model.gguf", many, 2, 0, 0), outcome_of(folder / "f32", many, 2, 0, 0), extent);
    if (!adds && !effort(true, false, "invariance: in bfloat16 one of two quantized types")) continue;
    const auto narrow = outcome_of<bf16>(folder / "model.gguf", some, 2),
               decoded = outcome_of<bf16>(folder / "rounded", some, 2);
    CHECK(narrow.loss == decoded.loss);
    CHECK(narrow.gradient == decoded.gradient);
  }
}

TEST_CASE("invariance: another place draws another dropout") {
  const Model model;
  auto sequences = some_sequences();
  const auto before = outcome_of(model.folder.path(), {sequences}, 1);
  for (auto& s : sequences) s.place += 1;
  CHECK(outcome_of(model.folder.path(), {sequences}, 1).loss != before.loss);
}

/// What dropout makes of four rows of ones, from a projection without a weight of its own, of rank 16.
std::vector<float> dropped_ones(D& dev, nn::LoraLinear<D, float>& linear, nn::ParamStore<D, float>& params) {
  params.for_each([](const nn::ParamRef<D, float>& param) {  // y = drop(x)
    for (float& value : elements(param.value)) value = 0;
    for (Index i = 0; i < 16; ++i) elements(param.value)[static_cast<std::size_t>(17 * i)] = 1;
  });
  params.refresh(dev);
  const std::vector<std::int32_t> ids(4, 0), positions{0, 1, 2, 3};
  const std::vector<kernel::Segment> segments{{0, 4}};
  const nn::Pass<D, float> pass(dev, nn::Batch{ids, positions, ids, segments}, 77);
  const std::vector<float> ones(64, 1.0F);
  const auto x = tensor_of<float>(dev, ones, 4, 16);
  Tensor<D, float> y(dev, 4, 16);
  nn::LoraLinear<D, float>::Saved saved;
  linear.forward(dev, pass, View<D, const float>(x.view()), y.view(), saved, nn::Keep::nothing);
  return to_host(dev, y.view());
}

TEST_CASE("invariance: each module draws a dropout of its own, the same one again") {
  D dev(1);
  std::vector<float> weight(16 * 16, 0.0F);
  const auto output_of = [&](std::uint64_t module) {
    const StoredView<D> stored(reinterpret_cast<const std::byte*>(weight.data()), DType::f32, 16, 16);
    std::vector<std::pair<std::string, nn::Linear<D, float>>> parts;
    parts.emplace_back("q_proj", nn::Linear<D, float>{nn::Weight<D>(stored, nullptr)});
    nn::LoraLinear<D, float> linear(std::move(parts), module);
    const std::vector<nn::LoraRank> ranks{{16, 1.0}};
    nn::ParamStore<D, float> params;
    linear.attach(params, "", ranks, 0.5);
    params.build(dev);
    return dropped_ones(dev, linear, params);
  };
  const auto first = output_of(1);
  CHECK(first == output_of(1));
  CHECK(first != output_of(2));
  // Nor is one row's mask the next one's.
  CHECK_FALSE(std::equal(first.begin(), first.begin() + 16, first.begin() + 16));
}

TEST_CASE("invariance: the same projection of another layer draws another dropout") {
  const TempFolder folder;
  const RandomModel shape;
  auto tensors = random_tensors(shape);
  for (auto& tensor : tensors)
    if (tensor.name.ends_with("o_proj.weight")) std::fill(tensor.values.begin(), tensor.values.end(), 0.0);
  write_model(folder.path(), config_json(shape), tensors, shape.dtype);
  D dev(1);
  const auto source = model::Source::open(folder.path());
  model::Decoder<D, float> decoder(dev, source);
  model::AdapterConfig adapter;
  adapter.rank = 16;
  adapter.alpha = 16;
  adapter.dropout = 0.5;
  adapter.targets = {"o_proj"};
  decoder.attach(dev, adapter);
  const auto output_of = [&](Index layer) {
    return dropped_ones(dev, decoder.stack().layer(layer).inner().attention().o_proj(), decoder.params());
  };
  const auto first = output_of(0);
  CHECK(std::count(first.begin(), first.end(), 0.0F) + std::count(first.begin(), first.end(), 2.0F) == 64);
  CHECK(first == output_of(0));
  CHECK(first != output_of(1));
}

// The instructions that oneDNN may use are the process's: see DNNL_MAX_CPU_ISA in .ci/run.
TEST_CASE("invariance: no product of a training step is left to a reference kernel, whatever the processor has") {
  each_model([]<class T>(const Model& model) {
    for (int threads = effort(1, 2, "invariance: products of one thread"); threads <= 2; ++threads)
      for (const auto& sequences : {some_sequences(), many_sequences(), sequences_of(std::vector<Index>{2})})
        CHECK(outcome_of<T>(model.folder.path(), {sequences}, threads).references == 0);
  });
}

}  // namespace invariance_test
