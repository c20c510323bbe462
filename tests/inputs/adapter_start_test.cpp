// What a run trains, as its settings say it: a new adapter, one that it starts from, or tensors of the model.

#include "lora/inputs/adapter_start.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace adapter_start_test {

using namespace lora;
using inputs::adapter_of;
using Names = std::vector<std::string>;

namespace {

model::Config shape_of(const std::string& family, bool tied) {
  test::RandomModel model;
  model.family = family;
  model.tied = tied;
  return model::parse_config(test::config_json(model), "config.json");
}

}  // namespace

TEST_CASE("adapter start: a new adapter is what the keys say") {
  const auto shape = shape_of("qwen3", false);
  settings::Config config;
  config.model_name_or_path = "base";
  auto adapter = adapter_of(config, shape, nullptr);
  CHECK(adapter.rank == 8);
  CHECK(adapter.alpha == 16);
  CHECK_FALSE(adapter.rslora);
  CHECK(adapter.dropout == 0);
  CHECK(adapter.base_model == "base");
  const Names all = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  CHECK(adapter.targets == all);
  CHECK(adapter.whole_modules.empty());
  config.lora_target = {"all"};
  CHECK(adapter_of(config, shape, nullptr).targets == all);
  config.lora_rank = 4;
  config.lora_dropout = 0.25;
  config.use_rslora = true;
  config.lora_target = {"v_proj", "q_proj"};
  adapter = adapter_of(config, shape, nullptr);
  CHECK(adapter.rank == 4);
  CHECK(adapter.alpha == 8);
  CHECK(adapter.rslora);
  CHECK(adapter.dropout == 0.25);
  CHECK(adapter.targets == Names{"v_proj", "q_proj"});
  config.lora_alpha = 3;
  CHECK(adapter_of(config, shape, nullptr).alpha == 3);
  const auto fused = shape_of("phi3", false);
  CHECK(test::message_of<ConfigError>([&] { adapter_of(config, fused, nullptr); }) ==
        "key lora_target: given v_proj, which a model of type phi3 doesn't have; allowed: all, or some of qkv_proj, "
        "o_proj, gate_up_proj, down_proj");
  config.lora_target = {"o_proj", "qkv_proj"};
  CHECK(adapter_of(config, fused, nullptr).targets == Names{"o_proj", "qkv_proj"});
  CHECK(test::message_of<ConfigError>([&] { adapter_of(config, shape, nullptr); }) ==
        "key lora_target: given qkv_proj, which a model of type qwen3 doesn't have; allowed: all, or some of q_proj, "
        "k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  config.lora_target = {"all"};
  CHECK(adapter_of(config, fused, nullptr).targets == Names{"qkv_proj", "o_proj", "gate_up_proj", "down_proj"});
}

TEST_CASE("adapter start: what trains in full has PEFT's names, and of a tied model both that share numbers") {
  const auto whole = [](const Names& given, const char* family, bool tied) {
    settings::Config config;
    config.additional_target = given;
    return adapter_of(config, shape_of(family, tied), nullptr).whole_modules;
  };
  const Names both = {"embed_tokens", "lm_head"};
  CHECK(whole({"embed_tokens"}, "qwen3", false) == Names{"embed_tokens"});
  CHECK(whole({"lm_head"}, "qwen3", false) == Names{"lm_head"});
  CHECK(whole({"lm_head", "embed_tokens"}, "qwen3", false) == both);
  CHECK(whole({"embed_tokens"}, "qwen3", true) == both);
  CHECK(whole({"lm_head"}, "qwen3", true) == both);
  const Names norms = {"input_layernorm", "post_attention_layernorm", "norm"};
  CHECK(whole({"norms"}, "qwen2", true) == norms);
  CHECK(whole({"norms"}, "qwen3", true) ==
        Names{"input_layernorm", "post_attention_layernorm", "norm", "q_norm", "k_norm"});
  CHECK(whole({"norms"}, "gemma2", true) == Names{"input_layernorm", "post_attention_layernorm", "norm",
                                                  "pre_feedforward_layernorm", "post_feedforward_layernorm"});
  // Whatever trains so is all norms of the model, and what reads the adapter again knows its name.
  for (const model::ModelType& type : model::model_types) {
    CAPTURE(type.name);
    const auto shape = shape_of(std::string(type.name).c_str(), true);
    const model::AdapterConfig adapter = model::parse_adapter_config(
        io::json_object({{"peft_type", "LORA"},
                         {"r", 4},
                         {"lora_alpha", 4},
                         {"target_modules", "all-linear"},
                         {"modules_to_save", io::json_array(whole({"norms"}, type.name.data(), true))}}),
        "adapter_config.json");
    for (const model::TensorInfo& info : model::tensors_of(shape))
      CHECK(adapter.trains_whole(info) == (info.kind == model::TensorInfo::Kind::norm));
  }
  CHECK(whole({}, "qwen3", true).empty());
}

TEST_CASE("adapter start: of an adapter to start from all is kept but dropout and base, and keys may repeat it only") {
  const test::TempFolder folder;
  test::write_random_model(folder.path(), {});
  const auto shape = shape_of("qwen3", false);
  model::AdapterFiles start{{}, io::Safetensors::open(folder.path()), "some/adapter"};
  start.config.rank = 4;
  start.config.alpha = 6;
  start.config.rslora = true;
  start.config.dropout = 0.5;
  start.config.base_model = "other";
  start.config.targets = {"v_proj", "k_proj"};
  start.config.whole_modules = {"lm_head"};
  settings::Config config;
  config.model_name_or_path = "base";
  config.lora_dropout = 0.125;
  const auto adapter = adapter_of(config, shape, &start);
  CHECK((adapter.rank == 4 && adapter.alpha == 6 && adapter.rslora));
  CHECK(adapter.targets == Names{"v_proj", "k_proj"});
  CHECK(adapter.whole_modules == Names{"lm_head"});
  CHECK(adapter.dropout == 0.125);
  CHECK(adapter.base_model == "base");
  const auto told = [&](const std::function<void(settings::Config&)>& change) {
    settings::Config own = config;
    change(own);
    return test::message_of<ConfigError>([&] { adapter_of(own, shape, &start); });
  };
  using C = settings::Config;
  const std::string nothing = "nothing was thrown", has = ", but the adapter some/adapter has ";
  CHECK(told([](C& c) { c.lora_rank = 4; }) == nothing);
  CHECK(told([](C& c) { c.lora_rank = 5; }) == "key lora_rank: given 5" + has + "4");
  CHECK(told([](C& c) { c.lora_alpha = 6; }) == nothing);
  CHECK(told([](C& c) { c.lora_alpha = 8; }) == "key lora_alpha: given 8" + has + "6");
  CHECK(told([](C& c) { c.use_rslora = true; }) == nothing);
  CHECK(told([](C& c) { c.use_rslora = false; }) == "key use_rslora: given false" + has + "true");
  CHECK(told([](C& c) { c.lora_target = {"k_proj", "v_proj"}; }) == nothing);
  CHECK(told([](C& c) {
          c.lora_target = {"q_proj", "k_proj"};
        }) == "key lora_target: given k_proj,q_proj" + has + "k_proj,v_proj");
  CHECK(told([](C& c) { c.lora_target = {"all"}; }) ==
        "key lora_target: given down_proj,gate_proj,k_proj,o_proj,q_proj,up_proj,v_proj" + has + "k_proj,v_proj");
  CHECK(told([](C& c) { c.additional_target = {"lm_head"}; }) == nothing);
  CHECK(told([](C& c) {
          c.additional_target = {"lm_head", "embed_tokens"};
        }) == "key additional_target: given embed_tokens,lm_head" + has + "lm_head");
  start.config.targets.clear();  // all-linear
  CHECK(adapter_of(config, shape, &start).targets.size() == 7);
  CHECK(told([](C& c) { c.lora_target = {"all"}; }) == nothing);
  start.config.target_expression = ".*v_proj";
  CHECK(told([](C& c) { c.lora_target = {"v_proj"}; }) == "key lora_target: given v_proj" + has + ".*v_proj");
}

TEST_CASE("adapter start: each stage trains the tensors that it names, of those that are chosen") {
  const auto shape = shape_of("qwen3", false);
  settings::Config config;
  config.finetuning_type = "full";
  config.trainable = {"mlp"};
  const std::string norm = "model.norm.weight", up = "model.layers.1.mlp.up_proj.weight", head = "lm_head.weight";
  const auto trained = [&](const std::function<bool(std::string_view)>& chosen) {
    std::string text;
    for (const auto& of_stage : inputs::trained_in_stages(config, shape, chosen)) {
      if (!of_stage) text += "all ";
      if (!of_stage) continue;
      for (const std::string& name : {norm, up, head}) text += of_stage(name) ? "1" : "0";
      text += " ";
    }
    return text;
  };
  const auto no_head = [&](std::string_view name) { return name != head; };
  CHECK(trained({}) == "all ");  // one stage: what trains at all
  CHECK(trained(no_head) == "110 ");
  config.stages = {{.until_step = 1}, {.until_step = 2, .trainable = {{"norm", "^lm_head"}}}, {.trainable = Names{}}};
  CHECK(trained({}) == "010 101 111 ");
  CHECK(trained(no_head) == "010 100 110 ");
  config.finetuning_type = "lora";
  config.trainable.clear();
  CHECK(trained({}) == "all all all ");
  CHECK(trained(no_head) == "110 110 110 ");
  config.finetuning_type = "full";
  config.stages = {{.until_step = 1}, {.name = "late", .until_step = 2, .trainable = {{"lstm"}}}};
  CHECK(test::message_of<ConfigError>([&] {
          inputs::trainable_in_stages(config, shape);
        }).starts_with("stage 2 (late): key trainable: given lstm, which is found in the name of no tensor"));
  config.stages.clear();
  config.trainable = {"lstm"};
  CHECK(test::message_of<ConfigError>([&] {
          inputs::trainable_in_stages(config, shape);
        }).starts_with("key trainable: given lstm, which is found in the name of no tensor"));
}

TEST_CASE("adapter start: what may train is an adapter with its group of B, or tensors that some stage names") {
  const test::TempFolder folder;
  test::write_random_model(folder.path(), {});
  const auto source = model::Source::open(folder.path());
  settings::Config config;
  config.model_name_or_path = folder.path().native();
  config.lora_rank = 3;
  auto blueprint = inputs::blueprint_of(config, source);
  for (const Index zero_stage : {0, 1, 2, 3}) {
    config.zero_stage = zero_stage;
    CHECK(inputs::blueprint_of(config, source).shares_by_layer == (zero_stage > 1));
  }
  config.zero_stage = 0;
  REQUIRE(blueprint.adapter.has_value());
  CHECK(blueprint.adapter->rank == 3);
  CHECK_FALSE(blueprint.chosen);
  CHECK(blueprint.b_group == 0);
  CHECK(blueprint.config.num_hidden_layers == source.config().num_hidden_layers);
  for (const double ratio : {1.0, 16.0, 0.5}) {
    config.loraplus_lr_ratio = ratio;
    CHECK(inputs::group_of_b(config) == (ratio == 1 ? 0 : optim::faster_group));
    CHECK(inputs::blueprint_of(config, source).b_group == inputs::group_of_b(config));
  }
  config.loraplus_lr_ratio.reset();
  CHECK(inputs::group_of_b(config) == 0);
  CHECK(optim::faster_group != 0);

  config.lora_rank.reset();
  config.finetuning_type = "full";
  config.stages = {{.until_step = 1, .trainable = Names{"up_proj"}}, {.trainable = Names{"norm"}}};
  blueprint = inputs::blueprint_of(config, source);
  CHECK_FALSE(blueprint.adapter);
  REQUIRE(blueprint.chosen);
  CHECK(blueprint.b_group == 0);
  const auto run = inputs::trainable_in_run(config, source.config());
  Index chosen = 0;
  for (const model::TensorInfo& info : model::tensors_of(source.config())) {
    CAPTURE(info.name);
    const bool named = info.name.find("up_proj") != std::string::npos || info.name.find("norm") != std::string::npos;
    CHECK(blueprint.chosen(info) == named);
    CHECK(run.contains(info.name) == named);
    chosen += named;
  }
  CHECK(chosen > 2);
  CHECK(std::ssize(run) == chosen);
}

TEST_CASE("adapter start: an adapter of another shape is refused, and without the key there is none") {
  const test::TempFolder folder;
  settings::Config config;
  const auto shape = shape_of("qwen3", false);
  CHECK_FALSE(inputs::adapter_to_start_from(config, shape));
  config.adapter_name_or_path = (folder / "none").native();
  CHECK_THROWS_AS(inputs::adapter_to_start_from(config, shape), IoError);
  test::write_talking_model(folder / "base");
  test::write_talking_adapter(folder / "base", folder / "adapter");
  config.adapter_name_or_path = (folder / "adapter").native();
  const auto source = model::Source::open(folder / "base");
  const auto start = inputs::adapter_to_start_from(config, source.config());
  REQUIRE(start.has_value());
  CHECK((start->config.rank == 3 && start->folder == folder / "adapter"));
  const auto blueprint = inputs::blueprint_of(config, source);
  REQUIRE(blueprint.adapter.has_value());
  CHECK((blueprint.adapter->rank == 3 && blueprint.adapter->alpha == 4.5));
  CHECK_THROWS_AS(inputs::adapter_to_start_from(config, shape), FormatError);  // 16 wide, not 32
}

}  // namespace adapter_start_test
