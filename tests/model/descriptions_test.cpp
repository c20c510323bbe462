// What else describes a model or what of it trains: paths of modules, names that expressions choose, evaluations, and
// what a README says of layers without rotary embedding.

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/model/decoder/evaluation.hpp"
#include "lora/model/decoder/trainable.hpp"
#include "lora/model/description/layout.hpp"
#include "lora/model/description/module_pattern.hpp"
#include "lora/model/export/rotary_note.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"

namespace descriptions_test {

using namespace lora;
using namespace lora::test;

namespace {

model::Config config_of(bool tied = false) {
  RandomModel shape;
  shape.tied = tied;
  return model::parse_config(config_json(shape), "config.json");
}

}  // namespace

TEST_CASE("descriptions: projections stand in their half of the layer, in groups that share an input") {
  CHECK(model::module_path(3, "q_proj") == "model.layers.3.self_attn.q_proj");
  CHECK(model::module_path(0, "o_proj") == "model.layers.0.self_attn.o_proj");
  CHECK(model::module_path(12, "gate_proj") == "model.layers.12.mlp.gate_proj");
  CHECK(model::module_path(1, "down_proj") == "model.layers.1.mlp.down_proj");
  model::Config c;
  c.hidden_size = 5;
  c.intermediate_size = 7;
  c.num_attention_heads = 6;
  c.num_key_value_heads = 2;
  c.head_dim = 4;
  const std::pair<Index, Index> extents[] = {{24, 5}, {8, 5}, {8, 5}, {5, 24}, {7, 5}, {7, 5}, {5, 7}};
  for (std::size_t i = 0; i < 7; ++i) {
    CAPTURE(i);
    CHECK(model::projections[i].out(c) == extents[i].first);
    CHECK(model::projections[i].in(c) == extents[i].second);
  }
  CHECK(model::projection_groups[1].in(c) == 24);
  CHECK(model::projection_groups[3].in(c) == 7);
  CHECK(model::group_path(2, model::projection_groups[2]) == "model.layers.2.mlp.");
}

TEST_CASE("descriptions: expressions choose tensors by any part of their names") {
  const auto all = model::tensors_of(config_of());
  CHECK(model::trainable_tensors(config_of(), {}).size() == all.size());
  using Names = std::set<std::string, std::less<>>;
  CHECK(model::trainable_tensors(config_of(), {"1.*q_norm", "^lm_head"}) ==
        Names{"lm_head.weight", "model.layers.1.self_attn.q_norm.weight"});
  CHECK(model::trainable_tensors(config_of(), {"embed", "embed_tokens"}) == Names{"model.embed_tokens.weight"});
  const auto said = [](bool tied, const std::vector<std::string>& expressions) {
    return message_of<ConfigError>([&] { (void)model::trainable_tensors(config_of(tied), expressions); });
  };
  CHECK(said(false, {"q_proj", "a{2}"}) ==
        "key trainable: given a{2}, which is not understood; allowed: names, dots, groups, choices, classes such as "
        "[0-9] and \\d, *, + and ?, ^ and $");
  const std::string such =
      "names are such as model.layers.0.self_attn.q_proj.weight, "
      "model.layers.0.input_layernorm.weight and model.embed_tokens.weight";
  CHECK(said(false, {"q_proj", "head$"}) ==
        "key trainable: given head$, which is found in the name of no tensor; " + such);
  CHECK(said(true, {"layers.7"}) == "key trainable: given layers.7, which is found in the name of no tensor; " + such);
  CHECK(said(true, {"lm_head"}) ==
        "key trainable: given lm_head, which is found in the name of no tensor; the head of this model is its "
        "embedding, model.embed_tokens.weight");
  CHECK(said(false, {"lm_head"}) == "nothing was thrown");
}

TEST_CASE("descriptions: an expression fits a part of a name or all of it") {
  using Fits = model::ModulePattern::Fits;
  const auto fits = [](const char* expression, const char* name, Fits how) {
    const model::ModulePattern pattern(expression, how);
    REQUIRE(pattern.known());
    return pattern.matches(name);
  };
  CHECK(fits("b", "abc", Fits::part));
  CHECK_FALSE(fits("b", "abc", Fits::whole));
  CHECK_FALSE(fits("^b", "abc", Fits::part));
  CHECK(fits("x|c$", "abc", Fits::part));
  CHECK(fits("(?:a|x)b", "ab", Fits::whole));
  CHECK(fits("[^x](a|b)", "ab", Fits::whole));
  CHECK(fits("\\w\\-\\d", "_-9", Fits::whole));
  CHECK_FALSE(fits("\\w", "-", Fits::whole));
  CHECK(fits("a\\*", "a*", Fits::whole));
  CHECK_FALSE(fits("a\\*", "aa", Fits::whole));
  CHECK(fits("[(?]a", "?a", Fits::whole));  // no group within a class
  for (const char mark : std::string_view(".-_$*+?()[]|/")) {
    CAPTURE(mark);
    CHECK(fits(concat("a\\", mark, "b").c_str(), concat("a", mark, "b").c_str(), Fits::whole));
    CHECK_FALSE(fits(concat("a\\", mark, "b").c_str(), "ab", Fits::whole));
    CHECK_FALSE(fits(concat("a\\", mark, "b").c_str(), "axb", Fits::whole));
  }
  for (const char* unknown : {"a\\s", "a\\b", "\\^a", "(?i)a", "(?!a)b", "a{1,2}", "}", "[a", "(a", "*a)"})
    CHECK_FALSE(model::ModulePattern(unknown, Fits::part).known());
  CHECK_FALSE(model::ModulePattern(std::string_view("a\0b", 3)).known());
}

TEST_CASE("descriptions: evaluations add up, and tell means and perplexity") {
  model::Evaluation a{
      .step = 3, .loss_sum = 6, .labeled = 4, .correct = 1, .records = 2, .tokens = 9, .computed_tokens = 7};
  CHECK(a.loss() == 1.5);
  CHECK(a.perplexity() == std::exp(1.5));
  CHECK(a.token_accuracy() == 0.25);
  CHECK_FALSE(a.stopped);
  const model::Evaluation b{.step = 5,
                            .loss_sum = 1,
                            .labeled = 2,
                            .correct = 2,
                            .records = 3,
                            .tokens = 4,
                            .computed_tokens = 3,
                            .stopped = true};
  model::Evaluation sum = a;
  sum += b;
  CHECK((sum.step == 3 && sum.loss_sum == 7 && sum.labeled == 6 && sum.correct == 3));
  CHECK((sum.records == 5 && sum.tokens == 13 && sum.computed_tokens == 10 && sum.stopped));
  sum = b;
  sum += a;
  CHECK(sum.stopped);
  CHECK((!sum.exact_match && !sum.rouge_l && sum.samples.empty()));
}

TEST_CASE("descriptions: a README tells of layers without rotation and how transformers is to run them") {
  model::Config config = config_of();
  CHECK(model::rotary_note(config, "base").empty());
  config.rotates = {true, false, false};
  CHECK(model::rotary_note(config, "base") ==
        "\nThese layers run without rotary embedding: 1, 2.\n"
        "`config.json` says so in `no_rope_layers`, which `lora` obeys in every command. transformers reads it\n"
        "for smollm3 only, and not for qwen3: there these lines switch the rotation off, before the model is used. "
        "Other\nprograms compute something else.\n\n"
        "```python\nimport torch\n\n"
        "def without_rotation(module, args, kwargs):\n"
        "    cos, sin = kwargs[\"position_embeddings\"]\n"
        "    return args, {**kwargs, \"position_embeddings\": (torch.ones_like(cos), torch.zeros_like(sin))}\n\n"
        "for layer, rotates in zip(base.model.layers, base.config.no_rope_layers):\n"
        "    if not rotates:\n"
        "        layer.self_attn.register_forward_pre_hook(without_rotation, with_kwargs=True)\n```\n");
  config.model_type = "smollm3";
  CHECK(model::rotary_note(config, "base").empty());
}

}  // namespace descriptions_test
