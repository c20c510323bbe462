// A model that nobody has loaded: its parameters, the shapes of its modules, and what bounds the buffers of kernels.

#include "lora/model/decoder/blueprint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/random_model.hpp"

namespace blueprint_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Three layers, of which an adapter has the outer two, with another rank of v in the last, and some of the model's
/// own tensors.
model::Blueprint some_blueprint(std::vector<std::string> own) {
  RandomModel shape;
  shape.layers = 3;
  shape.heads = 6;
  shape.ffn = 40;
  shape.more = {{"attention_bias", true}};
  model::Blueprint blueprint{.config = model::parse_config(config_json(shape), "config.json")};
  blueprint.adapter.emplace();
  blueprint.adapter->rank = 3;
  blueprint.adapter->dropout = 0.25;
  blueprint.adapter->targets = {"q_proj", "v_proj", "down_proj"};
  blueprint.adapter->layers = {0, 2};
  blueprint.adapter->rank_pattern = {{"layers.2.self_attn.v_proj", 9}};
  blueprint.b_group = 5;
  blueprint.chosen = [names = std::move(own)](const model::TensorInfo& info) {
    return std::find(names.begin(), names.end(), info.name) != names.end();
  };
  return blueprint;
}

/// Products can't read these as they lie.
bool decodes(const model::TensorInfo& info) {
  return info.projection == "k_proj" || info.projection == "up_proj" || info.layer < 0;
}

using Flags = std::vector<bool>;
using Counts = std::vector<Index>;
/// One field of a group's projections.
template <class Value>
std::vector<Value> each(const nn::LoraLinearShape& group, Value nn::LoraLinearShape::Projection::*field) {
  std::vector<Value> values;
  for (const auto& p : group.projections) values.push_back(p.*field);
  return values;
}

}  // namespace

TEST_CASE("blueprint: parameters are an adapter's factors, layer by layer, and then the model's own") {
  auto blueprint = some_blueprint({"model.layers.0.self_attn.k_norm.weight", "model.layers.1.mlp.up_proj.weight",
                                   "model.layers.2.self_attn.o_proj.bias", "lm_head.weight"});
  const auto told = [&] {
    const nn::ParamTable table = blueprint.parameters();
    std::vector<std::string> lines;
    for (const auto& entry : table.entries()) {
      const auto& storage = table.storages()[entry.storage];
      lines.push_back(concat(entry.name, ": ", entry.rows, " from ", entry.first_row, " of (", storage.rows, ", ",
                             storage.cols, ") in ", storage.group, " of ", storage.layer,
                             entry.transposed ? ", transposed" : ""));
    }
    return lines;
  };
  const std::vector<std::string> own{"model.layers.0.self_attn.k_norm.weight: 1 from 0 of (1, 4) in 1 of 0",
                                     "model.layers.1.mlp.up_proj.weight: 40 from 0 of (40, 16) in 0 of 1",
                                     "model.layers.2.self_attn.o_proj.bias: 1 from 0 of (1, 16) in 1 of 2",
                                     "lm_head.weight: 61 from 0 of (61, 16) in 0 of -2"};
  std::vector<std::string> all{"model.layers.0.self_attn.q_proj.lora_A: 3 from 0 of (6, 16) in 0 of 0",
                               "model.layers.0.self_attn.q_proj.lora_B: 3 from 0 of (3, 24) in 5 of 0, transposed",
                               "model.layers.0.self_attn.v_proj.lora_A: 3 from 3 of (6, 16) in 0 of 0",
                               "model.layers.0.self_attn.v_proj.lora_B: 3 from 0 of (3, 8) in 5 of 0, transposed",
                               "model.layers.0.mlp.down_proj.lora_A: 3 from 0 of (3, 40) in 0 of 0",
                               "model.layers.0.mlp.down_proj.lora_B: 3 from 0 of (3, 16) in 5 of 0, transposed",
                               "model.layers.2.self_attn.q_proj.lora_A: 3 from 0 of (12, 16) in 0 of 2",
                               "model.layers.2.self_attn.q_proj.lora_B: 3 from 0 of (3, 24) in 5 of 2, transposed",
                               "model.layers.2.self_attn.v_proj.lora_A: 9 from 3 of (12, 16) in 0 of 2",
                               "model.layers.2.self_attn.v_proj.lora_B: 9 from 0 of (9, 8) in 5 of 2, transposed",
                               "model.layers.2.mlp.down_proj.lora_A: 3 from 0 of (3, 40) in 0 of 2",
                               "model.layers.2.mlp.down_proj.lora_B: 3 from 0 of (3, 16) in 5 of 2, transposed"};
  all.insert(all.end(), own.begin(), own.end());
  CHECK(told() == all);
  const auto every = [](std::string_view) { return true; };
  for (const bool by_layer : {false, true}) {
    blueprint.shares_by_layer = by_layer;
    CHECK(blueprint.parameters().sizes(every)[0].buckets.size() == (by_layer ? 4 : 0));  // 0, 2, 1 and behind them
  }
  blueprint.adapter.reset();
  CHECK(told() == own);
  blueprint.adapter.emplace().whole_modules = {"model.norm"};
  blueprint.adapter->targets = {"o_proj"};
  blueprint.adapter->layers = {1};
  blueprint.chosen = {};
  CHECK(told() ==
        std::vector<std::string>{"model.layers.1.self_attn.o_proj.lora_A: 8 from 0 of (8, 24) in 0 of 1",
                                 "model.layers.1.self_attn.o_proj.lora_B: 8 from 0 of (8, 16) in 5 of 1, transposed",
                                 "model.norm.weight: 1 from 0 of (1, 16) in 1 of -2"});
}

TEST_CASE("blueprint: the shapes of modules have what trains of what may, and what is decoded") {
  const auto blueprint = some_blueprint({"model.layers.0.self_attn.k_norm.weight", "model.layers.1.mlp.up_proj.weight",
                                         "model.layers.2.self_attn.o_proj.bias", "lm_head.weight"});
  const auto trains = [](std::string_view name) {
    const bool first_a = name.find("layers.0.self_attn") != name.npos && name.ends_with(".lora_A");
    return !first_a && name != "model.layers.2.self_attn.v_proj.lora_B" && name != "lm_head.weight";
  };
  const model::DecoderShape shape = model::shape_of(blueprint, decodes, trains, 2);
  CHECK(shape.stack.width == 16);
  REQUIRE(shape.stack.size() == 3);
  CHECK((shape.head.vocabulary == 61 && shape.head.width == 16));
  CHECK_FALSE(shape.head.decodes);  // since it may train
  CHECK_FALSE(shape.head.trains);
  CHECK_FALSE(shape.embedding_trains);
  using Projection = nn::LoraLinearShape::Projection;
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    const nn::BlockShape& layer = shape.stack.layers[i];
    CHECK(layer.recomputes == (i < 2));
    const nn::SelfAttentionShape& attention = layer.attention;
    CHECK((attention.width == 16 && attention.heads == 6 && attention.kv_heads == 2 && attention.head_dim == 4));
    CHECK(attention.qk_norm);
    CHECK(attention.norms_train == (i == 0));
    CHECK_FALSE(attention.norm_trains);
    CHECK(layer.mlp.width == 16);
    CHECK_FALSE(layer.mlp.norm_trains);
    const auto &qkv = attention.qkv_proj, &o = attention.o_proj, &gate_up = layer.mlp.gate_up_proj,
               &down = layer.mlp.down_proj;
    CHECK(Counts{qkv.in, o.in, gate_up.in, down.in} == Counts{16, 24, 16, 40});
    CHECK(each(qkv, &Projection::out) == Counts{24, 8, 8});
    CHECK(each(o, &Projection::out) == Counts{16});
    CHECK(each(gate_up, &Projection::out) == Counts{40, 40});
    CHECK(each(down, &Projection::out) == Counts{16});
    CHECK(each(qkv, &Projection::decodes) == Flags{false, true, false});
    CHECK(each(gate_up, &Projection::decodes) == Flags{false, i != 1});
    CHECK(each(gate_up, &Projection::trains_weight) == Flags{false, i == 1});
    CHECK(each(qkv, &Projection::bias) == Flags{true, true, true});
    CHECK(each(down, &Projection::bias) == Flags{false});
    CHECK(each(qkv, &Projection::trains_bias) == Flags{false, false, false});
    CHECK(each(o, &Projection::trains_bias) == Flags{i == 2});
    CHECK(each(qkv, &Projection::rank) == (i == 0 ? Counts{3, 0, 3} : i == 1 ? Counts{0, 0, 0} : Counts{3, 0, 9}));
    CHECK(each(down, &Projection::rank) == Counts{i == 1 ? 0 : 3});
    CHECK(each(qkv, &Projection::trains_b) == Flags{i != 1, false, i == 0});
    CHECK((qkv.trains_a == (i == 2) && down.trains_a == (i != 1) && !o.trains_a));
    for (const auto* group : {&qkv, &o, &gate_up, &down}) CHECK(group->drops);
  }
}

TEST_CASE("blueprint: norms, the head and the embedding train where they are chosen, a tied head with its embedding") {
  auto blueprint =
      some_blueprint({"model.embed_tokens.weight", "model.layers.0.self_attn.q_norm.weight",
                      "model.layers.1.input_layernorm.weight", "model.layers.2.post_attention_layernorm.weight"});
  blueprint.adapter->dropout = 0;
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    blueprint.config.tie_word_embeddings = tied;
    const auto shape = model::shape_of(blueprint, decodes, {}, 0);
    CHECK(shape.embedding_trains);
    CHECK((shape.head.trains == tied && shape.head.decodes == !tied));
    for (std::size_t i = 0; i < 3; ++i) {
      const nn::BlockShape& layer = shape.stack.layers[i];
      CHECK((layer.attention.norms_train == (i < 2) && layer.attention.norm_trains == (i == 1)));
      CHECK(layer.mlp.norm_trains == (i == 2));
      CHECK_FALSE(layer.recomputes);
      CHECK_FALSE(layer.mlp.down_proj.drops);
      CHECK(layer.mlp.down_proj.trains_a == (i != 1));
    }
  }
}

TEST_CASE("blueprint: buffers of kernels are bound by the widest projection and the largest factors of one call") {
  model::DecoderShape shape = model::shape_of(some_blueprint({}), decodes, {}, 0);
  const auto extents = model::extents_of(shape, 7);
  CHECK((extents.rows == 7 && extents.kv_heads == 2 && extents.head_dim == 4 && extents.widest == 40));
  // Ranks in eights: of 12 rows of 16 columns and of 3 and 9 of 24 and 8.
  CHECK(extents.factors == 16 * 16 + 8 * 24 + 16 * 8);
  shape.stack.layers.pop_back();
  CHECK(model::extents_of(shape, 7).factors == 8 * 40 + 8 * 16);
  for (auto& p : shape.stack.layers[0].mlp.down_proj.projections) p.rank = 0;
  CHECK(model::extents_of(shape, 7).factors == 8 * 16 + 8 * 24 + 8 * 8);
  for (auto& p : shape.stack.layers[0].attention.qkv_proj.projections) p.rank = 0;
  CHECK(model::extents_of(shape, 7).factors == 0);
  shape.stack.layers[1].attention.o_proj.in = 99;
  CHECK(model::extents_of(shape, 7).widest == 99);
  shape.stack.layers[0].mlp.gate_up_proj.projections[1].out = 111;
  CHECK(model::extents_of(shape, 7).widest == 111);
}

}  // namespace blueprint_test
