// What PyTorch + PEFT compute in float64 with tiny models of each family (tests/make/golden.py).

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "lora/data/batches/batch.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/export/rotary_note.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/optim/clip.hpp"
#include "lora/optim/schedule.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace golden_test {

namespace {

using namespace lora;
using D = cpu::Device;

/// How far a result may be from the reference, relative to its norm. For float: the least of what check_roundings
/// derives for any family and tensor, 2.06e-6 of the loss, 1.47e-5 of the logits and 1.42e-5 of a gradient. AdamW
/// divides each element of the update by its own size, so that one whose gradient is smaller than its error may move
/// either way: of normal gradients a share of √(2/π) · 1.4e-5 does, which changes the update by 2 √1.1e-5 = 7e-3 of its
/// norm; its bar is below that. In double what is left is the rotary frequencies: float32 numbers, of which two ways to
/// form a power differ by a few units in the last place.
struct Tolerance {
  double loss, logits, gradient, update;
};
template <class T>
constexpr Tolerance tolerance{2e-6, 1.4e-5, 1.4e-5, 5e-4};
template <>
constexpr Tolerance tolerance<double>{1e-7, 1e-6, 1e-6, 1e-5};

const std::filesystem::path golden = std::filesystem::path(LORA_FIXTURES) / "golden";

struct Sequence {
  std::vector<std::int32_t> tokens, labels;
};

std::vector<Sequence> sequences_of(const io::Json& json) {
  std::vector<Sequence> result;
  for (const auto& item : json)
    result.push_back(
        {item.at("input_ids").get<std::vector<std::int32_t>>(), item.at("labels").get<std::vector<std::int32_t>>()});
  return result;
}

/// Sequences end to end; each row's label is the token that follows it.
struct Batch : nn::Batch {
  Index labeled = 0;

  /// What they have in common at their beginning lies there once.
  static Batch shared(std::span<const Sequence> sequences) {
    std::vector<data::Example> examples;
    for (const auto& sequence : sequences) examples.push_back({.tokens = sequence.tokens, .labels = sequence.labels});
    std::vector<Index> places(examples.size());
    std::iota(places.begin(), places.end(), Index{0});
    data::Batch batch;
    batch.append(examples, places, true);
    CHECK(batch.rows() < batch.sequence_tokens);
    Batch result({});
    static_cast<nn::Batch&>(result) = batch;
    result.labeled = batch.labeled;
    return result;
  }

  explicit Batch(std::span<const Sequence> sequences) {
    for (const auto& sequence : sequences) {
      const auto begin = static_cast<Index>(tokens.size());
      for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
        tokens.push_back(sequence.tokens[i]);
        positions.push_back(static_cast<std::int32_t>(i));
        sequence_index.push_back(static_cast<std::int32_t>(segments.size()));
        labels.push_back(i + 1 < sequence.labels.size() ? sequence.labels[i + 1] : -100);
        labeled += labels.back() == -100 ? 0 : 1;
      }
      segments.push_back({begin, static_cast<Index>(tokens.size())});
    }
  }
};

/// The values of a stored tensor.
std::vector<double> values_of(const io::Safetensors& file, const std::string& name) {
  const auto* const tensor = file.find(name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  std::vector<double> values(static_cast<std::size_t>(tensor->shape.count()));
  const auto read = [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, tensor->bytes.data() + i * sizeof value, sizeof value);
      values[i] = static_cast<double>(static_cast<Accum<T>>(value));
    }
  };
  if (tensor->dtype == DType::f64) {
    read(double());
  } else if (tensor->dtype == DType::bf16) {
    read(bf16());
  } else {
    REQUIRE(tensor->dtype == DType::f32);
    read(float());
  }
  return values;
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<double> difference;
  for (std::size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  return norm_of(difference);
}

/// A model, its adapter and the reference, from one folder.
template <class T>
class Fixture {
 public:
  /// With another reference, or the weights of another folder.
  explicit Fixture(const std::string& family, const std::string& reference = "reference",
                   const std::filesystem::path& weights = {})
      : folder_(golden / family),
        json(io::read_json(folder_ / (reference + ".json"))),
        tensors(io::Safetensors::open(folder_ / (reference + ".safetensors"))),
        model(dev, model::Source::open(weights.empty() ? folder_ : weights)) {
    if (reference == "full") {
      model.train_own(dev, [](const model::TensorInfo&) { return true; });
    } else {
      const auto files = model::open_adapter(folder_ / "adapter");
      const bool whole = reference == "additional";
      model.attach(
          dev, files.config,
          [&](const model::TensorInfo& info) {
            using Kind = model::TensorInfo::Kind;
            return whole && (info.kind == Kind::embedding || info.kind == Kind::head || info.kind == Kind::norm);
          },
          reference == "loraplus" ? optim::faster_group : 0);
      model::load_adapter(dev, model, files);
    }
    model.embedding_noise(json.value("neftune_noise_alpha", 0.0));
    model.params().for_each([&](const nn::ParamRef<D, T>& param) { params.push_back(param); });
  }

  /// Values or gradients of everything that trains, by their names in files and laid out as there.
  std::map<std::string, std::vector<double>> trained(bool gradients) {
    std::map<std::string, std::vector<double>> result;
    for (const auto& param : params) {
      const auto host = to_host(dev, gradients ? param.grad : param.value);
      const auto rows = static_cast<std::size_t>(param.value.rows()), cols = host.size() / rows;
      const bool own = param.name.ends_with(".weight") || param.name.ends_with(".bias");
      auto& values = result[own ? param.name : "base_model.model." + param.name + ".weight"];
      for (std::size_t i = 0; i < host.size(); ++i)
        values.push_back(static_cast<double>(param.transposed ? host[i % rows * cols + i / rows] : host[i]));
    }
    return result;
  }

  /// Adds the gradients of scale · Σ loss; returns Σ loss.
  double train(const Batch& batch, double scale) {
    Tensor<D, double> sum(dev, 1);
    kernel::fill(dev, sum.view(), 0.0);
    const std::uint64_t key = json.value("random_key", std::uint64_t{0});
    model.train_micro_batch(dev, batch, scale, key, sum.view());
    return to_host(dev, sum.view())[0];
  }

 private:
  std::filesystem::path folder_;

 public:
  D dev{2};
  io::Json json;
  io::Safetensors tensors;
  model::Decoder<D, T> model;
  std::vector<nn::ParamRef<D, T>> params;
};

template <class T>
void check_logits_and_loss(const std::string& family, const std::string& reference = "reference",
                           const Tolerance& allowed = tolerance<T>) {
  Fixture<T> f(family, reference);
  const Batch batch(sequences_of(f.json.at("evaluation")));
  REQUIRE(batch.labeled == f.json.at("labeled").template get<Index>());

  std::vector<std::int32_t> rows(batch.tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (f.json.contains("rows")) rows = f.json.at("rows").template get<std::vector<std::int32_t>>();
  const auto logits = f.model.logits(f.dev, nn::Pass<D, T>(f.dev, batch), rows);
  const auto expected = values_of(f.tensors, "logits");
  CHECK(distance({logits.begin(), logits.end()}, expected) < allowed.logits * norm_of(expected));

  const double loss = f.json.at("loss").template get<double>();
  const auto evaluation = f.model.evaluate(f.dev, batch);
  CHECK(evaluation.labeled == batch.labeled);
  CHECK(std::fabs(evaluation.loss_sum / static_cast<double>(batch.labeled) - loss) < allowed.loss * loss);
}

template <class T>
void check_gradients(const std::string& family, const std::string& reference = "reference",
                     const Tolerance& allowed = tolerance<T>, std::initializer_list<Index> layers = {0, 2}) {
  for (const Index recomputed : layers) {
    Fixture<T> f(family, reference);
    f.model.recompute(recomputed);
    const Batch batch(sequences_of(f.json.at("evaluation")));
    const double count = static_cast<double>(batch.labeled), loss = f.json.at("loss").template get<double>();
    CHECK(std::fabs(f.train(batch, 1 / count) / count - loss) < allowed.loss * loss);
    const auto gradients = f.trained(true);
    std::size_t stored = 0;
    for (const auto& tensor : f.tensors.tensors()) stored += tensor.name.starts_with("gradient.") ? 1u : 0u;
    CHECK(gradients.size() == stored);
    for (const auto& entry : gradients) {
      const std::string& name = entry.first;  // clang 14 captures no structured binding
      const auto& gradient = entry.second;
      CAPTURE(name);
      const auto expected = values_of(f.tensors, "gradient." + name);
      CHECK(distance(gradient, expected) < allowed.gradient * norm_of(expected));
    }
  }
}

/// One sequence of 700 tokens. What differs of the rotary frequencies grows with the position: 27 times that of the 26
/// tokens of the others.
template <class T>
void check_long(const std::string& family, bool gradients = true) {
  constexpr Tolerance short_one = tolerance<T>, angles = tolerance<double>;
  const Tolerance allowed{short_one.loss + 26 * angles.loss, short_one.logits + 26 * angles.logits,
                          short_one.gradient + 26 * angles.gradient, 0};
  check_logits_and_loss<T>(family, "long", allowed);
  if (gradients) check_gradients<T>(family, "long", allowed, {2});
}

/// Everything that a fixture's evaluation gives: logits, loss, and the adapter's gradients.
template <class T>
std::map<std::string, std::vector<double>> outcome_of(Fixture<T>& f) {
  const Batch batch(sequences_of(f.json.at("evaluation")));
  const double count = static_cast<double>(batch.labeled), loss = f.train(batch, 1 / count) / count;
  std::vector<std::int32_t> every(batch.tokens.size());
  std::iota(every.begin(), every.end(), 0);
  const auto logits = f.model.logits(f.dev, nn::Pass<D, T>(f.dev, batch), every);
  auto result = f.trained(true);
  result["loss"] = {loss};
  result["logits"].assign(logits.begin(), logits.end());
  return result;
}

/// The family's model with every number moved by up to ±size of itself.
void write_moved(const std::string& family, const std::filesystem::path& folder, double size, std::uint64_t seed) {
  const auto file = io::Safetensors::open(golden / family / "model.safetensors");
  std::vector<test::RandomTensor> tensors;
  for (const auto& tensor : file.tensors()) {
    Random random(mix_key(seed, tensors.size()));
    test::RandomTensor moved{tensor.name, tensor.shape, values_of(file, tensor.name)};
    for (double& value : moved.values) value *= 1 + size * (2 * static_cast<double>(random.uniform()) - 1);
    tensors.push_back(std::move(moved));
  }
  test::write_model(folder, io::read_json(golden / family / "config.json"), tensors, DType::f32);
}

/// A rounding to T is a relative error of at most u, and u/√3 in the root of its mean square. How far many of them
/// carry a gradient is the model's matter: softmax's backward takes numbers from each other that are almost alike, and
/// the gradients of q and k lose most. So it is measured, in a type so much wider that it counts as exact: to round a
/// matrix's output is to move the matrix, in norm. Six roundings go with each (itself, its input, its output, on the
/// way down dy and dx, and one of rotation, probabilities, their gradient, norms, SwiGLU), and where sums are formed in
/// T, with each of these `terms` more; so that all weights are moved by independent errors of √n u/√3, uniform in ±√n
/// u, n = 6 (1 + terms). Twice what that does to a tensor, in the root of the mean square of four draws, is its bound,
/// for T is one draw more; and 2 √(1 + terms) u for the four roundings of its own that follow: A, B, h and dh.
template <class T, class Exact>
void check_roundings(const std::string& family, double u, double terms) {
  constexpr int draws = 4;
  Fixture<Exact> exact(family);
  const auto expected = outcome_of(exact);
  std::map<std::string, double> squares;
  for (int draw = 0; draw < draws; ++draw) {
    const test::TempFolder folder;
    write_moved(family, folder.path(), std::sqrt(6 * (1 + terms)) * u, static_cast<std::uint64_t>(draw));
    Fixture<Exact> moved(family, "reference", folder.path());
    for (const auto& [name, values] : outcome_of(moved))
      squares[name] += std::pow(distance(values, expected.at(name)), 2) / draws;
  }
  for (const Index recomputed : {Index{0}, Index{2}}) {
    Fixture<T> f(family);
    f.model.recompute(recomputed);
    const auto actual = outcome_of(f);
    CHECK(actual.size() == expected.size());
    for (const auto& entry : actual) {
      const std::string& name = entry.first;
      CAPTURE(name);
      const auto& reference = expected.at(name);
      const double bound = 2 * std::sqrt(squares.at(name)) + 2 * std::sqrt(1 + terms) * u * norm_of(reference);
      CHECK(distance(entry.second, reference) < bound);
      CHECK(bound < 0.5 * norm_of(reference));  // or it would say nothing
    }
  }
}

/// Sums are float32, whose roundings are next to nothing beside these.
void check_bf16(const std::string& family) { check_roundings<bf16, float>(family, 0x1p-8, 0); }

/// The longest sum is over the vocabulary or the widest row.
void check_float(const std::string& family) {
  const auto config = model::parse_config(io::read_json(golden / family / "config.json"), "config.json");
  const Index terms = std::max({config.vocab_size, config.intermediate_size, config.hidden_size});
  check_roundings<float, double>(family, 0x1p-24, static_cast<double>(terms));
}

template <class T>
void check_training(const std::string& family, const std::string& reference = "reference") {
  Fixture<T> f(family, reference);
  const auto& settings = f.json.at("training");
  const auto number = [&](const char* key) { return settings.at(key).template get<double>(); };
  const auto data = sequences_of(f.json.at("data"));
  const auto micro_batch = settings.at("micro_batch").template get<std::size_t>();
  const auto accumulation = settings.at("accumulation").template get<std::size_t>();
  const auto start = f.trained(false);
  const bool shares = reference == "shared";
  const auto batch_of = [&](std::span<const Sequence> sequences) {
    return shares ? Batch::shared(sequences) : Batch(sequences);
  };

  optim::AdamW<D, T> optimizer(
      f.dev, f.model.params(), {number("beta1"), number("beta2"), number("epsilon"), number("weight_decay")},
      {{.weight_decay = number("weight_decay")},
       {.weight_decay = 0},
       {.learning_rate_factor = settings.value("loraplus_lr_ratio", 1.0), .weight_decay = number("weight_decay")}});
  const optim::Schedule schedule{optim::decay_of(settings.at("schedule").template get<std::string>()),
                                 settings.at("warmup_steps").template get<Index>(),
                                 settings.at("steps").template get<Index>()};
  std::span<const Sequence> left(data);
  Index step = 0;
  for (const auto& expected : f.json.at("steps")) {
    CAPTURE(step);
    double loss = 0, count = 0;
    std::vector<Batch> batches;
    for (std::size_t i = 0; i < accumulation; ++i, left = left.subspan(micro_batch))
      count += static_cast<double>(batches.emplace_back(batch_of(left.first(micro_batch))).labeled);
    f.model.params().zero_grad(f.dev);
    for (const auto& batch : batches) loss += f.train(batch, 1 / count) / count;

    Tensor<D, double> squares(f.dev, 1);
    kernel::fill(f.dev, squares.view(), 0.0);
    optim::add_squared_norm(f.dev, f.model.params(), squares.view());
    const double norm = std::sqrt(to_host(f.dev, squares.view())[0]);
    const double rate = number("learning_rate") * schedule.factor(step++);
    const auto at = [&](const char* key) { return expected.at(key).template get<double>(); };
    CHECK(count == at("labeled"));
    CHECK(std::fabs(rate - at("learning_rate")) <= 1e-15);
    CHECK(std::fabs(loss - at("loss")) < tolerance<T>.loss * at("loss"));
    CHECK(std::fabs(norm - at("grad_norm")) < tolerance<T>.gradient * at("grad_norm"));
    optimizer.step(f.dev, rate, optim::clip_factor(norm, number("max_grad_norm")));
    f.model.params().refresh(f.dev);
  }
  CHECK(step == 10);
  CHECK(left.empty());

  double difference = 0, update = 0;
  for (const auto& [name, value] : f.trained(false)) {
    const auto expected = values_of(f.tensors, "final." + name);
    difference += std::pow(distance(value, expected), 2);
    update += std::pow(distance(start.at(name), expected), 2);
  }
  CHECK(std::sqrt(difference) < tolerance<T>.update * std::sqrt(update));

  const Batch batch = batch_of(sequences_of(f.json.at("evaluation")));
  const double final_loss = f.json.at("final_loss").template get<double>();
  const auto evaluation = f.model.evaluate(f.dev, batch);
  CHECK(std::fabs(evaluation.loss_sum / static_cast<double>(batch.labeled) - final_loss) <
        10 * tolerance<T>.loss * final_loss);
}

/// Both are float32. In transformers the exponent, the power, the quotient and a scaling are rounded one by one; an
/// error of the exponent grows by log(theta).
void check_frequencies(const std::vector<float>& actual, const std::vector<double>& expected, double theta) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    CHECK(std::fabs(static_cast<double>(actual[i]) - expected[i]) <= (6 + std::log(theta)) * 0x1p-24 * expected[i]);
}

template <class Check>
void each_family(const Check& check) {
  SUBCASE("qwen2: yarn, biases, own head, all targets") { check("qwen2"); }
  SUBCASE("qwen3: q and k norms, wide heads, bf16 weights, tied, rsLoRA") { check("qwen3"); }
  SUBCASE("llama: llama3 scaling, biases everywhere, old spelling, three targets") { check("llama"); }
  SUBCASE("smollm3: linear scaling, a layer without rotary, tied, rank and alpha patterns") { check("smollm3"); }
  SUBCASE("mistral: a window shorter than most sequences, narrow heads, all targets") { check("mistral"); }
  SUBCASE("gemma2: norms behind, GELU, a scaled embedding, soft caps, every second layer's window") { check("gemma2"); }
  SUBCASE("gemma3_text: q and k norms, layers with a window that rotate by their own base") { check("gemma3_text"); }
  SUBCASE("phi3: fused projections, longrope, a window, all targets") { check("phi3"); }
}

/// Of f64, which gradient checks alone compute in, one family may have to do.
constexpr auto f64_left_out = "golden: f64 of three of four models";
template <class Check>
void each_family_in_f64(const Check& check) {
  if (test::effort(true, false, f64_left_out)) return each_family(check);
  check("qwen3");
}

/// Each family of a file has the loss that transformers has with the fields that `change` sets in its config.json, and
/// that is not the loss without them, which is under `otherwise`. Returns   how many there are
std::size_t check_changed_families(const io::Json& file, const char* otherwise,
                                   const std::function<void(io::Json& config, const io::Json& family)>& change,
                                   const std::function<void(const model::Config&)>& check = {}) {
  for (const auto& entry : file.at("families").items()) {
    const std::string& family = entry.key();  // clang 14 captures no structured binding
    const io::Json& expected = entry.value();
    CAPTURE(family);
    const test::TempFolder folder;
    io::Json json = io::read_json(golden / family / "config.json");
    change(json, expected);
    io::write_json(folder / "config.json", json);
    std::filesystem::copy(golden / family / "model.safetensors", folder / "model.safetensors");
    D dev{1};
    model::Decoder<D, double> decoder(dev, model::Source::open(folder.path()));
    const Batch batch(sequences_of(io::read_json(golden / family / "reference.json").at("evaluation")));
    const double loss = decoder.evaluate(dev, batch).loss_sum / static_cast<double>(batch.labeled);
    const double reference = expected.at("loss").get<double>();
    CHECK(std::fabs(loss - reference) < tolerance<double>.loss * reference);
    CHECK(std::fabs(loss - expected.at(otherwise).get<double>()) > 100 * tolerance<double>.loss * reference);
    if (check) check(decoder.config());
  }
  return file.at("families").size();
}

}  // namespace

TEST_CASE("golden: logits and loss in f32") {
  each_family([](const std::string& family) { check_logits_and_loss<float>(family); });
}
TEST_CASE("golden: logits and loss in f64") {
  each_family_in_f64([](const std::string& family) { check_logits_and_loss<double>(family); });
}
TEST_CASE("golden: every adapter gradient in f32, kept and recomputed") {
  each_family([](const std::string& family) { check_gradients<float>(family); });
}
TEST_CASE("golden: every adapter gradient in f64, kept and recomputed") {
  each_family_in_f64([](const std::string& family) { check_gradients<double>(family); });
}
TEST_CASE("golden: logits, loss and every adapter gradient in bf16, kept and recomputed") { each_family(check_bf16); }
TEST_CASE("golden: logits, loss and every adapter gradient in f16, whose products are float32's") {
  each_family([](const std::string& family) { check_roundings<f16, float>(family, 0x1p-11, 0); });
}
TEST_CASE("golden: logits, loss and every adapter gradient in f32 are no farther from f64 than roundings take them") {
  each_family_in_f64(check_float);
}
TEST_CASE("golden: a sequence of 700 tokens in f32 and f64") {
  each_family([](const std::string& family) {
    if (test::effort(true, family == "qwen2", "golden: 700 tokens of three of four models in f32"))
      check_long<float>(family);
    if (test::effort(true, false, "golden: 700 tokens in f64")) check_long<double>(family, true);
  });
}
TEST_CASE("golden: ten steps of training in f32") {
  each_family([](const std::string& family) { check_training<float>(family); });
}
TEST_CASE("golden: ten steps of training in f64") {
  each_family_in_f64([](const std::string& family) { check_training<double>(family); });
}

TEST_CASE("golden: ten steps of training with LoRA+, PEFT's, in f32 and f64") {
  each_family([](const std::string& family) {
    check_training<float>(family, "loraplus");
    if (test::effort(true, family == "qwen3", f64_left_out)) check_training<double>(family, "loraplus");
  });
}

TEST_CASE("golden: ten steps of training where what sequences have in common is computed once, in f32 and f64") {
  each_family([](const std::string& family) {
    check_training<float>(family, "shared");
    if (test::effort(true, family == "qwen3", f64_left_out)) check_training<double>(family, "shared");
  });
}

TEST_CASE("golden: ten steps of training beside modules_to_save, in f32 and f64") {
  check_training<float>("llama", "additional");
  check_training<double>("llama", "additional");
}

TEST_CASE("golden: loss and gradients with transformers' NEFTune, in f32 and f64") {
  check_gradients<float>("qwen3", "neftune");
  check_gradients<double>("qwen3", "neftune");
}

TEST_CASE("golden: the whole model trains: every gradient and ten steps in f32") {
  each_family([](const std::string& family) {
    check_gradients<float>(family, "full");
    check_training<float>(family, "full");
  });
}
TEST_CASE("golden: the whole model trains: every gradient and ten steps in f64") {
  each_family_in_f64([](const std::string& family) {
    check_gradients<double>(family, "full");
    check_training<double>(family, "full");
  });
}

TEST_CASE(
    "golden: layers without rotary embedding have the loss of transformers, switched off there as README.md says") {
  const io::Json file = io::read_json(golden.parent_path() / "no_rope.json");
  const auto count = check_changed_families(
      file, "with_all",
      [](io::Json& config, const io::Json& family) { config["no_rope_layers"] = family.at("no_rope_layers"); },
      [&](const model::Config& config) {
        CHECK(test::holds(model::rotary_note(config, "model"),
                          concat("```python\n", file.at("lines").get<std::string>(), "```\n")));
      });
  CHECK(count == 3);
}

TEST_CASE("golden: layers with a sliding window have the loss of transformers") {
  const auto count =
      check_changed_families(io::read_json(golden.parent_path() / "windows.json"), "without",
                             [](io::Json& config, const io::Json& family) { config.update(family.at("fields")); });
  CHECK(count == 2);
}

TEST_CASE("golden: rotary frequencies are those of transformers") {
  each_family([](const std::string& family) {
    const auto config = model::parse_config(io::read_json(golden / family / "config.json"), "config.json");
    const auto expected = io::read_json(golden / family / "reference.json").at("inverse_frequencies");
    check_frequencies(nn::inverse_frequencies(config.rope, config.head_dim), expected.get<std::vector<double>>(),
                      config.rope.theta);
  });
}

TEST_CASE("golden: frequencies and magnitude of every rotary setting are those of transformers") {
  const io::Json file = io::read_json(golden / "rotary.json");
  for (const auto& item : file.at("cases")) {
    CAPTURE(io::to_text(item.at("rope_parameters"), -1));
    test::RandomModel shape;
    shape.family = "llama";
    shape.head_dim = item.at("head_dim").get<Index>();
    shape.more = {{"rope_parameters", item.at("rope_parameters")}};
    const auto config = model::parse_config(test::config_json(shape), "config.json");
    check_frequencies(nn::inverse_frequencies(config.rope, config.head_dim),
                      item.at("inverse_frequencies").get<std::vector<double>>(), config.rope.theta);
    CHECK(nn::rotary_magnitude(config.rope) == doctest::Approx(item.at("magnitude").get<double>()).epsilon(1e-15));
  }
}

}  // namespace golden_test
