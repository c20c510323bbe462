// Every gradient of a whole two-layer decoder, through every parameter that can train, against derivatives of its loss:
// by complex steps (exact to rounding), and by differences in double as a cross-check.

#include <doctest/doctest.h>

#include <algorithm>
#include <complex>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/cpu/kernels.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "support/effort.hpp"
#include "support/gradcheck.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace gradient_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
using Complex = std::complex<double>;

/// Three sequences of different lengths, one of a single token; some rows without a label.
struct Rows : nn::Batch {
  Index labeled = 0;

  explicit Rows(Index vocabulary) {
    Random random(7);
    const Index lengths[] = {7, 1, 12};
    for (std::int32_t place = 0; const Index length : lengths) {
      const auto begin = static_cast<Index>(tokens.size());
      for (Index i = 0; i < length; ++i) {
        tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocabulary))));
        positions.push_back(static_cast<std::int32_t>(i));
        sequence_index.push_back(place);
        const bool label = random.below(3) != 0;
        labels.push_back(label ? static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocabulary)))
                               : -100);
        labeled += label ? 1 : 0;
      }
      segments.push_back({begin, static_cast<Index>(tokens.size())});
      ++place;
    }
  }
  double scale() const { return 1 / static_cast<double>(labeled); }
};

struct Case {
  const char* name;
  RandomModel model;
  model::AdapterConfig adapter;
  Index recompute = 0;
  bool dropout = false;
  double noise = 0;
  enum class Own { none, beside, alone } own = Own::none;  ///< whether the model's own tensors train
};

template <class T>
struct Subject {
  D dev;
  model::Source source;
  model::Decoder<D, T> decoder;
  std::vector<nn::ParamRef<D, T>> params;
  const Rows& rows;
  std::uint64_t random_key;

  Subject(const std::filesystem::path& folder, const Case& c, const Rows& r)
      : dev(2),
        source(model::Source::open(folder)),
        decoder(dev, source),
        rows(r),
        random_key(c.dropout || c.noise > 0 ? 99 : 0) {
    decoder.embedding_noise(c.noise);
    const auto every = [](const model::TensorInfo&) { return true; };
    if (c.own == Case::Own::alone) {
      decoder.train_own(dev, every);
    } else {
      decoder.attach(dev, c.adapter, c.own == Case::Own::beside ? every : typename model::Decoder<D, T>::Choice());
      model::init_adapter(dev, decoder, 5);
    }
    decoder.recompute(c.recompute);
    decoder.params().for_each([&](const nn::ParamRef<D, T>& param) { params.push_back(param); });
    for (std::uint64_t key = 0; auto& param : params) {  // B away from zero, else A has no gradient
      Random random(mix_key(11, ++key));
      if (param.transposed)
        for (auto& value : elements(param.value))
          value = static_cast<Accum<T>>(0.2 * (2 * static_cast<double>(random.uniform()) - 1));
    }
  }

  /// The loss as training forms it; gradients come along.
  Accum<T> loss() {
    Tensor<D, double> sum(dev, 1);
    kernel::fill(dev, sum.view(), 0.0);
    decoder.params().refresh(dev);
    decoder.train_micro_batch(dev, rows, rows.scale(), random_key, sum.view());
    return sum.view().data()[0] * rows.scale();
  }
};

/// The loss in T of a forward pass, also for complex T: from the logits, written out.
template <class T>
T written_out_loss(Subject<T>& s) {
  const auto& r = s.rows;
  nn::Pass<D, T> pass(s.dev, r, s.random_key);
  std::vector<std::int32_t> chosen;
  for (std::size_t i = 0; i < r.labels.size(); ++i)
    if (r.labels[i] >= 0) chosen.push_back(static_cast<std::int32_t>(i));
  const auto logits = s.decoder.logits(s.dev, pass, chosen);
  const auto v = static_cast<std::size_t>(s.decoder.config().vocab_size);
  T total = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    T sum = 0;
    for (std::size_t j = 0; j < v; ++j) sum += std::exp(logits[i * v + j]);
    total += std::log(sum) - logits[i * v + static_cast<std::size_t>(r.labels[static_cast<std::size_t>(chosen[i])])];
  }
  return total * r.scale();
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, const std::function<void(Case&)>& change) {
    Case c{name, {}, {}};
    c.model.dtype = DType::f64;
    c.adapter.rank = 3;
    c.adapter.alpha = 6;
    change(c);
    cases.push_back(c);
  };
  add("qwen3", [](Case&) {});
  add("qwen2, tied, linear scaling, rsLoRA", [](Case& c) {
    c.model.family = "qwen2";
    c.model.tied = true;
    c.model.more = {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.5}}}};
    c.adapter.rslora = true;
  });
  add("llama with biases, llama3 scaling, dropout", [](Case& c) {
    c.model.family = "llama";
    c.model.more = {{"attention_bias", true},
                    {"mlp_bias", true},
                    {"rope_scaling",
                     {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 16}}}};
    c.dropout = true;
    c.adapter.dropout = 0.3;
  });
  add("smollm3 with a layer without rotation, yarn, recomputed, dropout", [](Case& c) {
    c.model.family = "smollm3";
    c.model.more = {
        {"no_rope_layers", {1, 0}},
        {"rope_parameters",
         {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}, {"rope_theta", 1e4}}}};
    c.recompute = 2;
    c.dropout = true;
    c.adapter.dropout = 0.2;
  });
  // A weight that is not stored in the type of products is decoded, and its update formed there: for 20 rows, of all.
  add("qwen3 over bf16, one layer recomputed, ranks and alphas of their own", [](Case& c) {
    c.model.dtype = DType::bf16;
    c.recompute = 1;
    c.adapter.rank_pattern = {{"q_proj", 2}, {"layers.1.mlp.down_proj", 5}};
    c.adapter.alpha_pattern = {{"v_proj", 1.5}};
  });
  for (bool decoded = false;
       const char* target : {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}) {
    add(target, [&](Case& c) {
      c.adapter.targets = {target};
      if (decoded) c.model.dtype = DType::f32;
    });
    decoded = !decoded;
  }
  add("mistral with a window of four", [](Case& c) {
    c.model.family = "mistral";
    c.model.more = {{"sliding_window", 4}};
  });
  add("phi3 with a window of four, longrope, dropout", [](Case& c) {
    c.model.family = "phi3";
    c.model.more = {{"sliding_window", 4},
                    {"original_max_position_embeddings", 64},
                    {"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 4}}}}};
    c.dropout = true;
    c.adapter.dropout = 0.2;
  });
  add("qwen2 with a window of one layer, recomputed", [](Case& c) {
    c.model.family = "qwen2";
    c.model.more = {{"use_sliding_window", true}, {"sliding_window", 3}, {"max_window_layers", 1}};
    c.recompute = 2;
  });
  add("gemma2 with soft caps, recomputed", [](Case& c) {
    c.model.family = "gemma2";
    c.model.tied = true;
    c.model.more = {{"sliding_window", 4},
                    {"query_pre_attn_scalar", 1},
                    {"attn_logit_softcapping", 0.75},
                    {"final_logit_softcapping", 1.5}};
    c.recompute = 2;
  });
  add("only the upper layer", [](Case& c) { c.adapter.layers = {1}; });
  // The model's own tensors.
  add("all of qwen3", [](Case& c) { c.own = Case::Own::alone; });
  add("all of qwen2, tied, recomputed", [](Case& c) {
    c.model.family = "qwen2";
    c.model.tied = true;
    c.recompute = 2;
    c.own = Case::Own::alone;
  });
  add("all of llama with biases, beside an adapter with dropout and noise", [](Case& c) {
    c.noise = 5;
    c.model.family = "llama";
    c.model.more = {{"attention_bias", true}, {"mlp_bias", true}};
    c.dropout = true;
    c.adapter.dropout = 0.3;
    c.own = Case::Own::beside;
  });
  add("all of phi3, recomputed", [](Case& c) {
    c.model.family = "phi3";
    c.recompute = 2;
    c.own = Case::Own::alone;
  });
  add("all of smollm3, tied, a layer without rotation", [](Case& c) {
    c.model.family = "smollm3";
    c.model.tied = true;
    c.model.more = {{"no_rope_layers", {1, 0}}};
    c.own = Case::Own::alone;
  });
  for (const bool second : {true, false})
    add(second ? "all of gemma2, tied" : "all of gemma3_text, beside an adapter", [&](Case& c) {
      c.model.family = second ? "gemma2" : "gemma3_text";
      c.model.tied = second;
      c.model.more = {{"sliding_window", 4},
                      {"layer_types", {"full_attention", "sliding_attention"}},
                      {"query_pre_attn_scalar", 2},
                      {"attn_logit_softcapping", second ? io::Json(0.75) : io::Json()},
                      {"final_logit_softcapping", 1.5}};
      c.recompute = second ? 0 : 1;
      c.own = second ? Case::Own::alone : Case::Own::beside;
    });
  return cases;
}

}  // namespace

TEST_CASE("decoder: every gradient, of adapters and of the model's own tensors, equals the complex-step derivative") {
  constexpr auto left_out = "gradient: five of six tensors, and of the sixth each element of its own";
  for (const Case& c : all_cases()) {
    CAPTURE(c.name);
    const TempFolder folder;
    write_random_model(folder.path(), c.model);
    const Rows rows(c.model.vocabulary);
    Subject<double> real(folder.path(), c, rows);
    Subject<Complex> complex(folder.path(), c, rows);
    REQUIRE(real.params.size() == complex.params.size());
    const double loss = real.loss();
    CHECK(std::abs(loss - written_out_loss(complex).real()) <= 1e-13 * loss);
    const auto complex_loss = [&] { return written_out_loss(complex); };
    for (std::size_t p = 0; p < real.params.size(); p += test::effort<std::size_t>(1, 6, left_out)) {
      CAPTURE(real.params[p].name);
      const auto values = elements(complex.params[p].value);
      const std::span<const double> gradient = elements(real.params[p].grad);
      // A wrong element shows along any direction that is not made for it; each of its own says which.
      for (const std::uint64_t key : {1u, 2u}) {
        const auto direction = random_direction(values.size(), mix_key(p, key));
        CHECK(std::fabs(complex_step_along(values, direction, complex_loss) - dot(gradient, direction)) <
              1e-12 * std::sqrt(dot(gradient, gradient)));
      }
      if (p % 6 == 5 && test::effort(true, false, left_out))
        CHECK(gradient_error(gradient, complex_step(values, complex_loss)) < 1e-12);
    }
  }
}

TEST_CASE("decoder: the gradient equals the central difference of the training loss, along directions in each tensor") {
  for (const Case& c : all_cases()) {
    CAPTURE(c.name);
    const TempFolder folder;
    write_random_model(folder.path(), c.model);
    const Rows rows(c.model.vocabulary);
    Subject<double> real(folder.path(), c, rows);
    real.loss();
    std::vector<std::vector<double>> gradients;
    double squares = 0;
    for (const auto& param : real.params) {
      const auto values = elements(param.grad);
      gradients.emplace_back(values.begin(), values.end());
      squares += dot(values, values);
    }
    for (std::size_t p = 0; p < real.params.size();
         p += test::effort<std::size_t>(1, 5, "gradient: four of five tensors")) {
      CAPTURE(real.params[p].name);
      for (const std::uint64_t key : {3u, 4u}) {
        const auto direction = random_direction(gradients[p].size(), mix_key(p, key));
        const double expected = central_difference_along(
            elements(real.params[p].value), direction, [&] { return real.loss(); }, 2e-4);
        CHECK(std::fabs(dot(gradients[p], direction) - expected) < 1e-9 * std::sqrt(squares));  // of the whole gradient
      }
    }
  }
}

TEST_CASE(
    "decoder: a hook hears of what is behind layers, and of each from the last to the lowest that trains, when nothing "
    "is added any more") {
  using Numbers = std::vector<double>;
  struct Hook final : nn::GradientHook<D> {
    std::function<Numbers(Index)> gradient_of;
    std::vector<std::pair<Index, Numbers>> heard;
    void formed(D&, Index layer) override { heard.emplace_back(layer, gradient_of(layer)); }
  };
  for (const Case::Own own : {Case::Own::none, Case::Own::beside, Case::Own::alone}) {
    for (const bool lowest_is_frozen : {false, true}) {
      if (lowest_is_frozen && own != Case::Own::none) continue;
      Case c{"", {}, {}};
      c.model.dtype = DType::f64;
      c.model.layers = 3;
      c.own = own;
      c.recompute = 1;
      const TempFolder folder;
      write_random_model(folder.path(), c.model);
      const Rows rows(c.model.vocabulary);
      Subject<double> s(folder.path(), c, rows);
      if (lowest_is_frozen)
        s.decoder.params().train(s.dev, [](std::string_view name) { return name.find("layers.0.") == name.npos; });
      Hook hook;
      hook.gradient_of = [&](Index layer) {
        Numbers numbers;
        s.decoder.params().for_each([&](const nn::ParamRef<D, double>& param) {
          const bool is_behind = param.name == "model.norm.weight" || param.name == "lm_head.weight";
          if (param.grad.empty()) return;
          if (layer == nn::behind_layers ? !is_behind
                                         : param.name.find(concat("layers.", layer, ".")) == param.name.npos)
            return;
          const auto values = elements(param.grad);
          numbers.insert(numbers.end(), values.begin(), values.end());
        });
        return numbers;
      };
      s.decoder.params().refresh(s.dev);
      Tensor<D, double> sum(s.dev, 1);
      kernel::fill(s.dev, sum.view(), 0.0);
      s.decoder.train_micro_batch(s.dev, rows, rows.scale(), 0, sum.view(), &hook);
      std::vector<Index> layers;
      for (const auto& [layer, gradient] : hook.heard) {
        layers.push_back(layer);
        CHECK(gradient == hook.gradient_of(layer));
        if (layer != nn::behind_layers || own == Case::Own::alone)
          CHECK(std::any_of(gradient.begin(), gradient.end(), [](double g) { return g != 0; }));
      }
      std::vector<Index> expected{nn::behind_layers, 2, 1};
      if (!lowest_is_frozen) expected.push_back(0);
      CHECK(layers == expected);
    }
  }
}

TEST_CASE("decoder: gradients are added to, and zeroed on request") {
  Case c{"", {}, {}};
  c.model.dtype = DType::f64;
  const TempFolder folder;
  write_random_model(folder.path(), c.model);
  const Rows rows(c.model.vocabulary);
  Subject<double> s(folder.path(), c, rows);
  s.loss();
  std::vector<std::vector<double>> once;
  for (const auto& param : s.params) once.emplace_back(elements(param.grad).begin(), elements(param.grad).end());
  s.loss();
  for (std::size_t p = 0; p < once.size(); ++p)
    for (std::size_t i = 0; i < once[p].size(); ++i)
      CHECK(elements(s.params[p].grad)[i] == doctest::Approx(2 * once[p][i]).epsilon(1e-14));
  s.decoder.params().zero_grad(s.dev);
  for (const auto& param : s.params)
    for (const double g : elements(param.grad)) CHECK(g == 0);
}

}  // namespace gradient_test
