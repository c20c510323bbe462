// Adapter folders: what is written, what PEFT writes and is read, and what is refused by name.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/decoding.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace adapter_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
using Values = std::map<std::string, std::vector<float>>;

struct Subject {
  D dev{1};
  model::Source source;
  model::Decoder<D, float> decoder;

  Subject(const std::filesystem::path& folder, const model::AdapterConfig& adapter)
      : source(model::Source::open(folder)), decoder(dev, source) {
    decoder.attach(dev, adapter);
  }
  Values values() {
    Values result;
    decoder.params().for_each([&](const auto& param) { result[param.name] = to_host(dev, param.value); });
    return result;
  }
};

io::Json peft_config() {
  return {
      {"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"bias", "none"}, {"target_modules", {"q_proj", "v_proj"}}};
}
model::AdapterConfig parsed(const io::Json& changes) {
  io::Json json = peft_config();
  json.update(changes);
  return model::parse_adapter_config(json, "adapter_config.json");
}

}  // namespace

TEST_CASE("adapter: saved and loaded again, every bit is the same, under PEFT's names and shapes") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.rank = 3;
  Subject first(folder / "base", config);
  fill_adapter(first.dev, first.decoder);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(first.dev, first.decoder, folder / "adapter");
  const auto files = model::open_adapter(folder / "adapter");
  CHECK(files.tensors.tensors().size() == 2 * 7 * 2);
  const auto shape_of = [&](const std::string& end) {
    const auto* tensor = files.tensors.find("base_model.model.model.layers.1." + end);
    REQUIRE_MESSAGE(tensor != nullptr, end);
    CHECK(tensor->dtype == DType::f32);
    return tensor->shape;
  };
  CHECK(shape_of("self_attn.q_proj.lora_A.weight") == Shape{3, 16});
  CHECK(shape_of("self_attn.k_proj.lora_B.weight") == Shape{8, 3});
  CHECK(shape_of("mlp.up_proj.lora_B.weight") == Shape{24, 3});
  CHECK(shape_of("mlp.down_proj.lora_A.weight") == Shape{3, 24});
  Subject second(folder / "base", files.config);
  model::load_adapter(second.dev, second.decoder, files);
  CHECK(first.values() == second.values());
}

TEST_CASE("adapter: an alpha that float32 cannot hold is refused, and so is an expression that is no module's name") {
  CHECK(holds(message_of([] {
                parsed({{"lora_alpha", 1e308}});
              }),
              "\"lora_alpha\" is 1e+308, which is no finite number in float32"));
  CHECK(holds(message_of([] { parsed({{"alpha_pattern", {{"q_proj", -1e39}}}}); }), "\"q_proj\" is -1e+39"));
  CHECK(holds(message_of([] {
                parsed({{"target_modules", "x"}});
              }),
              "\"target_modules\" is the expression \"x\", which is no module's whole name"));
}

TEST_CASE("adapter: the tensors are compared with what the settings ask for before there is room for it") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.rank = 3;
  Subject subject(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
  auto files = model::open_adapter(folder / "adapter");
  const model::Config& shape = subject.source.config();
  CHECK_NOTHROW(model::check_adapter(files, shape));
  const auto message = [&](auto&& change) {
    model::AdapterConfig other = config;
    change(other);
    std::swap(files.config, other);
    const std::string text = message_of([&] { model::check_adapter(files, shape); });
    std::swap(files.config, other);
    return text;
  };
  // A rank is the adapter's own: another one says nothing of the base.
  CHECK(message([](auto& c) { c.rank = 65536; }).ends_with("lora_A.weight is (3, 16); the config expects (65536, 16)"));
  CHECK(message([](auto& c) { c.rank_pattern = {{"down_proj", 4}}; }).ends_with("; the config expects (4, 24)"));
  CHECK(message([](auto& c) { c.layers = {7}; }) ==
        (folder / "adapter" / "adapter_config.json").native() + ": it targets no projection of this model");
  model::Config deeper = shape;
  deeper.num_hidden_layers = 3;
  CHECK(holds(message_of([&] { model::check_adapter(files, deeper); }),
              (folder / "adapter" / "adapter_model.safetensors").native() +
                  ": missing tensors: base_model.model.model.layers.2"));
  model::Config wider = shape;
  wider.intermediate_size = 32;
  const std::string another =
      (folder / "adapter" / "adapter_model.safetensors").native() +
      ": the tensor base_model.model.model.layers.0.mlp.gate_proj.lora_B.weight is (24, 3); the config expects (32, "
      "3); the adapter belongs to another base model";
  CHECK(message_of([&] { model::check_adapter(files, wider); }) == another);
  files.config.base_model = "some/base";
  CHECK(message_of([&] { model::check_adapter(files, wider); }) ==
        another + ": its \"base_model_name_or_path\" is \"some/base\"");
}

TEST_CASE("adapter: unless told otherwise it has rank 8, alpha 16 and all projections") {
  const model::AdapterConfig config;
  for (const model::Projection& p : model::projections) {
    CHECK(config.rank_of(0, p.name).rank == 8);
    CHECK(config.rank_of(0, p.name).scale == 2);
  }
  CHECK(config.dropout == 0);
  CHECK_FALSE(config.rslora);
}

TEST_CASE("adapter: a tensor that holds no finite number is refused") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.targets = {"q_proj"};
  Subject subject(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
  const auto file = folder / "adapter" / "adapter_model.safetensors";
  const std::string sound = io::read_file(file);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::string content = sound;
    std::memcpy(content.data() + content.size() - sizeof bad, &bad, sizeof bad);
    io::write_file(file, std::string_view(content));
    CHECK(holds(
        message_of([&] { model::load_adapter(subject.dev, subject.decoder, model::open_adapter(folder / "adapter")); }),
        concat(" holds ", bad, "; expected finite numbers")));
  }
}

TEST_CASE("adapter: one that a step has spoiled is not saved, and what was there stays") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.targets = {"q_proj"};
  Subject subject(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
  const std::string before = io::read_file(folder / "adapter" / "adapter_model.safetensors");
  subject.decoder.params().for_each([&](const auto& param) {
    auto values = to_host(subject.dev, param.value);
    values[1] = std::numeric_limits<float>::infinity();
    copy_from_host<D, float>(subject.dev, values, param.value);
  });
  CHECK(
      message_of<NonFiniteError>([&] { model::save_adapter(subject.dev, subject.decoder, folder / "adapter"); }) ==
      "the adapter is not saved: its tensor model.layers.0.self_attn.q_proj.lora_A holds inf; a smaller learning_rate "
      "may help");
  CHECK(io::read_file(folder / "adapter" / "adapter_model.safetensors") == before);
}

TEST_CASE("adapter: tensors that are missing, extra or misshapen are named") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.targets = {"q_proj"};
  Subject saved(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(saved.dev, saved.decoder, folder / "adapter");
  const auto message = [&](const model::AdapterConfig& other) {
    Subject subject(folder / "base", other);
    return message_of(
        [&] { model::load_adapter(subject.dev, subject.decoder, model::open_adapter(folder / "adapter")); });
  };
  model::AdapterConfig more = config, fewer = config, wider = config;
  more.targets = {"q_proj", "v_proj"};
  fewer.layers = {0};
  wider.rank = 5;
  const auto listed = [](std::string_view projection, std::vector<int> layers) {
    std::string names;
    for (const int layer : layers)
      for (const char* part : {"A", "B"})
        names += concat(names.empty() ? "" : ", ", "base_model.model.model.layers.", layer, ".self_attn.", projection,
                        ".lora_", std::string_view(part), ".weight");
    return names;
  };
  const std::string where = (folder / "adapter" / "adapter_model.safetensors").native();
  CHECK(message(more) == concat(where, ": missing tensors: ", listed("v_proj", {0, 1})));
  CHECK(message(fewer) == concat(where, ": tensors that the config does not target: ", listed("q_proj", {1})));
  more.targets = {"q_proj", "v_proj", "o_proj"};
  CHECK(message(more).ends_with(" and 3 more"));
  more.targets = {"v_proj"};
  CHECK(message(more) ==
        concat(where, ": missing tensors: ", listed("v_proj", {0, 1}), "; instead it has ", listed("q_proj", {0, 1})));
  CHECK(holds(message(wider), to_string(Shape{5, 16})));
}

TEST_CASE("adapter: PEFT's ways to choose modules, ranks and scales") {
  const auto list = parsed(io::Json::object());
  CHECK(list.rank_of(0, "q_proj").rank == 4);
  CHECK(list.rank_of(0, "q_proj").scale == 2);
  CHECK(list.rank_of(0, "k_proj").rank == 0);
  const auto all = parsed({{"target_modules", "all-linear"}});
  for (const model::Projection& p : model::projections) CHECK(all.targets_module(1, p.name));
  CHECK(parsed({{"use_rslora", true}}).rank_of(0, "q_proj").scale == 8 / std::sqrt(4.0));
  const auto patterns =
      parsed({{"rank_pattern", {{"layers.1.self_attn.q_proj", 2}}}, {"alpha_pattern", {{"v_proj", 1}}}});
  CHECK(patterns.rank_of(0, "q_proj").rank == 4);
  CHECK(patterns.rank_of(1, "q_proj").rank == 2);
  CHECK(patterns.rank_of(1, "v_proj").scale == 0.25);
  const auto ends = parsed({{"rank_pattern", {{"1.self_attn.q_proj", 2}}}});  // of whole names: not layer 11
  CHECK(ends.rank_of(1, "q_proj").rank == 2);
  CHECK(ends.rank_of(11, "q_proj").rank == 4);
  const auto layers = parsed({{"layers_to_transform", {1}}});
  CHECK_FALSE(layers.targets_module(0, "q_proj"));
  CHECK(layers.targets_module(1, "q_proj"));
}

TEST_CASE("adapter: variants that are not supported are refused by name") {
  const auto refused = [&](const io::Json& changes, const char* field) {
    CAPTURE(field);
    CHECK(holds(message_of([&] { parsed(changes); }), field));
  };
  refused({{"use_dora", true}}, "use_dora");
  refused({{"bias", "all"}}, "bias");
  for (const char* name : {"o_proj", "mlp", "model.layers.0", "score"})
    refused({{"modules_to_save", {"lm_head", name}}}, "\"modules_to_save\" has \"");
  refused({{"peft_type", "IA3"}}, "IA3");
  refused({{"rank_pattern", {{"layers.*.q_proj", 2}}}}, "layers.*.q_proj");
  refused({{"rank_pattern", 5}}, "expected an object");
  refused({{"alpha_pattern", {4, 8}}}, "expected an object");
  refused({{"target_modules", {"lm_head"}}}, "lm_head");
  refused({{"r", 0}}, "\"r\" is 0");
  refused({{"r", 65537}}, "\"r\" is 65537; expected 1 to 65536");
  CHECK(parsed({{"r", 65536}}).rank == 65536);
  refused({{"lora_alpha", 1e39}}, "\"lora_alpha\" is 1e+39, which is no finite number in float32");
  for (const double dropout : {-0.1, 1.0}) refused({{"lora_dropout", dropout}}, "; expected at least 0 and below 1");
  CHECK(parsed({{"lora_dropout", 0.99}}).dropout == 0.99);
  refused({{"layers_to_transform", {1}}, {"layers_pattern", "blocks"}}, "\"layers_pattern\" is \"blocks\"");
  for (const io::Json& pattern : {io::Json("layers"), io::Json::array({"layers"}), io::Json::array()})
    CHECK(parsed({{"layers_to_transform", {1}}, {"layers_pattern", pattern}}).layers == std::vector<Index>{1});
}

TEST_CASE("adapter: modules_to_save are found by the ends of their names, as in PEFT") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  const auto trained = [&](const std::vector<std::string>& names) {
    model::AdapterConfig config;
    config.whole_modules = names;
    std::string found;
    for (const model::TensorInfo& info : model::tensors_of(model::Source::open(folder / "base").config())) {
      if (config.trains_whole(info)) found += info.name + " ";
    }
    return found;
  };
  CHECK(trained({}).empty());
  CHECK(trained({"lm_head"}) == "lm_head.weight ");
  CHECK(trained({"model.embed_tokens", "model.norm"}) == "model.embed_tokens.weight model.norm.weight ");
  CHECK(trained({"layers.1.self_attn.q_norm"}) == "model.layers.1.self_attn.q_norm.weight ");
  const std::string norms = trained({"norm"});  // all of them
  CHECK(std::count(norms.begin(), norms.end(), ' ') == 2 * 4 + 1);
}

TEST_CASE("adapter: modules_to_save that fit no module, lack a tensor or part a tied head are refused") {
  const TempFolder folder;
  RandomModel shape;
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    shape.tied = tied;
    const io::Path base = folder / (tied ? "tied" : "untied"), adapter = folder / (tied ? "a" : "b");
    write_random_model(base, shape);
    model::AdapterConfig config;
    config.whole_modules = {"embed_tokens", "lm_head"};
    Subject subject(base, config);
    std::filesystem::create_directories(adapter);
    model::save_adapter(subject.dev, subject.decoder, adapter);
    const auto check = [&](const std::vector<std::string>& names) {
      io::Json json = model::to_json(config);
      json["modules_to_save"] = names;
      io::write_json(adapter / "adapter_config.json", json);
      return message_of([&] { model::check_adapter(model::open_adapter(adapter), subject.source.config()); });
    };
    CHECK(check({"embed_tokens", "lm_head"}) == "nothing was thrown");
    CHECK(holds(check({"embed_tokens", "lm_head", "layers.7.input_layernorm"}), "which is no module of this model"));
    CHECK(holds(check({"embed_tokens", "lm_head", "norm"}), "missing tensors: "));
    if (tied)
      CHECK(
          check({"embed_tokens"}) ==
          (adapter / "adapter_config.json").native() +
              ": \"modules_to_save\" parts the head from the embedding, to which this model ties it; expected a model "
              "whose head was parted, or embed_tokens and lm_head with the same numbers");
    // As PEFT leaves them, which trains the two apart.
    check({"embed_tokens", "lm_head"});
    std::string bytes = io::read_file(adapter / "adapter_model.safetensors");
    const auto files = io::Safetensors::open(adapter / "adapter_model.safetensors");
    const auto* head = files.find("base_model.model.lm_head.weight");
    REQUIRE(head != nullptr);
    const std::string head_bytes(reinterpret_cast<const char*>(head->bytes.data()), head->bytes.size());
    const std::size_t at = bytes.find(head_bytes);
    REQUIRE(at != bytes.npos);
    bytes[at + 5] = static_cast<char>(bytes[at + 5] ^ 1);
    io::write_file(adapter / "adapter_model.safetensors", std::string_view(bytes));
    CHECK(holds(check({"embed_tokens", "lm_head"}), "with the same numbers") == tied);
    if (!tied) continue;
    // A model whose head was parted takes them, with the adapter's two tensors.
    auto parted = model::Source::open(base);
    parted.part_head();
    CHECK(model::parts_head(model::open_adapter(adapter), subject.source.config()));
    CHECK_FALSE(model::parts_head(model::open_adapter(adapter), parted.config()));
    model::Decoder<D, float> decoder(subject.dev, parted);
    const auto model_files = model::open_adapter(adapter);
    model::check_adapter(model_files, parted.config());
    decoder.attach(subject.dev, model_files.config);
    model::load_adapter(subject.dev, decoder, model_files);
    Index own = 0;
    decoder.params().for_each([&](const auto& param) { own += param.name == "lm_head.weight" ? 1 : 0; });
    CHECK(own == 1);
  }
}

TEST_CASE("adapter: A starts within 1/sqrt(in) by name and seed, B at zero") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config, one;
  one.targets = {"down_proj"};
  Subject first(folder / "base", config), second(folder / "base", one), other(folder / "base", one);
  model::init_adapter(first.dev, first.decoder, 5);
  model::init_adapter(second.dev, second.decoder, 5);
  model::init_adapter(other.dev, other.decoder, 6);
  auto all = first.values();
  CHECK(all["model.layers.0.self_attn.q_proj.lora_A"] != all["model.layers.1.self_attn.q_proj.lora_A"]);
  CHECK(all["model.layers.0.self_attn.q_proj.lora_A"] != all["model.layers.0.self_attn.k_proj.lora_A"]);
  for (const auto& entry : second.values()) {
    const auto& name = entry.first;  // clang 14 captures no structured binding
    const auto& values = entry.second;
    CAPTURE(name);
    CHECK(values == all[name]);
    const bool a = name.ends_with("lora_A");
    CHECK((values == other.values()[name]) == !a);
    const float bound = a ? 1 / std::sqrt(24.0F) : 0.0F;
    float largest = 0;
    double squares = 0;
    for (const float value : values) {
      CHECK(std::abs(value) <= bound);
      largest = std::max(largest, std::abs(value));
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    if (!a) continue;
    // Of n numbers that are uniform in ±b none is beyond 0.9 b once in 0.9^-n runs, and the mean square is b²/3 within
    // five of its standard deviations, √(4/45 / n) b².
    const auto n = static_cast<double>(values.size());
    REQUIRE(n == 8 * 24);
    CHECK(largest > 0.9F * bound);
    const double b2 = static_cast<double>(bound) * static_cast<double>(bound);
    CHECK(std::fabs(squares / n - b2 / 3) < 5 * std::sqrt(4.0 / 45 / n) * b2);
  }
}

TEST_CASE("adapter: an alpha that is no whole number is saved as it is, a whole one as PEFT writes it") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  for (const double alpha : {4.5, 0.25, 16.0}) {
    CAPTURE(alpha);
    model::AdapterConfig config;
    config.alpha = alpha;
    config.alpha_pattern = {{"v_proj", alpha / 2}};
    Subject subject(folder / "base", config);
    model::init_adapter(subject.dev, subject.decoder, 1);
    io::create_folders(folder / "adapter");
    model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
    const io::Json json = io::read_json(folder / "adapter" / "adapter_config.json");
    CHECK(json.at("lora_alpha") == alpha);
    CHECK(json.at("lora_alpha").is_number_integer() == (alpha == 16));
    CHECK(json.at("alpha_pattern").at("v_proj") == alpha / 2);
    const auto read = model::open_adapter(folder / "adapter").config;
    CHECK(read.alpha == alpha);
    CHECK(read.rank_of(0, "v_proj").scale == alpha / 2 / static_cast<double>(config.rank));
  }
}

TEST_CASE("adapter: adapter_config.json has every field of PEFT's, whether it says something or not") {
  model::AdapterConfig config;
  CHECK(io::to_text(model::to_json(config), -1) ==
        "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"auto_mapping\":null,\"base_model_name_or_path\":null,"
        "\"revision\":null,\"inference_mode\":true,\"r\":8,\"lora_alpha\":16,\"lora_dropout\":0.0,\"use_rslora\":false,"
        "\"use_dora\":false,\"target_modules\":\"all-linear\",\"exclude_modules\":null,\"bias\":\"none\",\"fan_in_fan_"
        "out\":false,\"init_lora_weights\":true,"
        "\"rank_pattern\":{},\"alpha_pattern\":{},\"layers_to_transform\":null,\"layers_pattern\":null,"
        "\"modules_to_save\":null}");
  config.rank = 3;
  config.alpha = -2.5;
  config.dropout = 0.125;
  config.rslora = true;
  config.targets = {"v_proj"};
  config.rank_pattern = {{"q_proj", 2}};
  config.alpha_pattern = {{"k_proj", 7.5}};
  config.layers = {1, 0};
  config.excluded = {"layers.0.mlp"};
  config.whole_modules = {"norm"};
  config.base_model = "some/base";
  const std::string all = io::to_text(model::to_json(config), -1);
  CHECK(all ==
        "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"auto_mapping\":null,"
        "\"base_model_name_or_path\":\"some/base\",\"revision\":null,\"inference_mode\":true,\"r\":3,"
        "\"lora_alpha\":-2.5,\"lora_dropout\":0.125,\"use_rslora\":true,\"use_dora\":false,"
        "\"target_modules\":[\"v_proj\"],\"exclude_modules\":[\"layers.0.mlp\"],\"bias\":\"none\","
        "\"fan_in_fan_out\":false,\"init_lora_weights\":true,\"rank_pattern\":{\"q_proj\":2},"
        "\"alpha_pattern\":{\"k_proj\":7.5},\"layers_to_transform\":[1,0],\"layers_pattern\":null,"
        "\"modules_to_save\":[\"norm\"]}");
  CHECK(io::to_text(model::to_json(model::parse_adapter_config(model::to_json(config), "x")), -1) == all);
  config.target_expression = ".*q_proj";
  config.exclude_expression = "model.layers.0.*";
  config.alpha = 2e15;  // no longer written as a whole number
  const io::Json json = model::to_json(config);
  CHECK(json.at("target_modules") == ".*q_proj");
  CHECK(json.at("exclude_modules") == "model.layers.0.*");
  CHECK(json.at("lora_alpha").is_number_float());
  config.alpha = -999'999;
  CHECK(model::to_json(config).at("lora_alpha").is_number_integer());
}

TEST_CASE("adapter: what a config leaves out is off, and what chooses modules is read as PEFT has it") {
  const auto plain = parsed(io::Json::object());
  CHECK((plain.rank == 4 && plain.alpha == 8 && plain.dropout == 0 && !plain.rslora && plain.base_model.empty()));
  CHECK((plain.layers.empty() && plain.excluded.empty() && !plain.modules && plain.target_expression.empty()));
  CHECK((plain.exclude_expression.empty() && plain.whole_modules.empty() && plain.rank_pattern.empty()));
  const auto all = parsed({{"lora_dropout", 0.25},
                           {"base_model_name_or_path", "b"},
                           {"layers_to_transform", 1},
                           {"exclude_modules", {"v_proj"}},
                           {"modules_to_save", {"model.norm", "lm_head"}}});
  CHECK((all.dropout == 0.25 && all.base_model == "b"));
  CHECK(all.layers == std::vector<Index>{1});
  CHECK(all.excluded == std::vector<std::string>{"v_proj"});
  CHECK(all.whole_modules == std::vector<std::string>{"model.norm", "lm_head"});
  CHECK_FALSE(all.targets_module(1, "v_proj"));
  CHECK(all.targets_module(1, "q_proj"));
  CHECK_FALSE(all.targets_module(0, "q_proj"));
  CHECK(all.rank_of(1, "v_proj").rank == 0);
  // A name in full is targeted in any layer, unless it is excluded.
  const auto full = parsed({{"target_modules", {"model.layers.0.self_attn.q_proj"}}, {"layers_to_transform", {1}}});
  CHECK(full.targets_module(0, "q_proj"));
  CHECK_FALSE(full.targets_module(1, "q_proj"));
  const auto excluded =
      parsed({{"target_modules", {"model.layers.0.self_attn.q_proj"}}, {"exclude_modules", {"self_attn.q_proj"}}});
  CHECK_FALSE(excluded.targets_module(0, "q_proj"));
  const auto expression = parsed({{"target_modules", "model.layers.0.self_attn.q_proj"}});
  CHECK(expression.target_expression == "model.layers.0.self_attn.q_proj");
  REQUIRE(expression.modules);
  CHECK(expression.modules->empty());
  CHECK_FALSE(expression.targets_module(0, "q_proj"));  // before the tensors have told
  CHECK(expression.targets.empty());
  const auto every = parsed({{"target_modules", "all-linear"}});
  CHECK((!every.modules && every.target_expression.empty() && every.targets.empty()));
  const auto without = parsed({{"exclude_modules", ".*v_proj"}});
  CHECK(without.exclude_expression == ".*v_proj");
  CHECK(without.modules.has_value());
  for (const io::Json& none : {io::Json(nullptr), io::Json::array()}) {
    CHECK_FALSE(parsed({{"exclude_modules", none}}).modules);
    CHECK(parsed({{"modules_to_save", none}}).whole_modules.empty());
  }
  // Of several patterns that fit, the first holds.
  const auto patterns = parsed({{"rank_pattern", {{"v_proj", 2}, {"self_attn.v_proj", 3}}},
                                {"alpha_pattern", {{"self_attn.v_proj", 4}, {"v_proj", 5}}}});
  CHECK(patterns.rank_of(0, "v_proj").rank == 2);
  CHECK(patterns.rank_of(0, "v_proj").scale == 2);
  CHECK(patterns.rank_of(0, "v_proj").b_group == 0);
  CHECK_FALSE(model::AdapterConfig::ends_path("model.my_norm", "norm"));
  CHECK(model::AdapterConfig::ends_path("norm", "norm"));
  CHECK(model::AdapterConfig::ends_path("model.norm", "norm"));
}

TEST_CASE("adapter: what is refused is said with its place, its value and what is expected") {
  const auto said = [](const io::Json& changes) { return message_of([&] { parsed(changes); }); };
  const std::string where = "adapter_config.json: ";
  CHECK(said({{"peft_type", "IA3"}}) == where + "\"peft_type\" is \"IA3\"; expected \"LORA\"");
  CHECK(said({{"r", -1}}) == where + "\"r\" is -1; expected 1 to 65536");
  CHECK(parsed({{"r", 1}}).rank == 1);
  CHECK(said({{"rank_pattern", {{"q_proj", 1}, {"k_proj", 0}}}}) == where + "\"k_proj\" is 0; expected 1 to 65536");
  CHECK(said({{"rank_pattern", {{"q_proj", 65537}}}}) == where + "\"q_proj\" is 65537; expected 1 to 65536");
  CHECK(said({{"alpha_pattern", {{"q_proj", 1e39}}}}) ==
        where + "\"q_proj\" is 1e+39, which is no finite number in float32");
  CHECK(said({{"lora_dropout", 1}}) == where + "\"lora_dropout\" is 1; expected at least 0 and below 1");
  CHECK(said({{"lora_dropout", -0.5}}) == where + "\"lora_dropout\" is -0.5; expected at least 0 and below 1");
  CHECK(said({{"target_modules", nullptr}}) == where + "\"target_modules\" is missing");
  CHECK(said({{"target_modules", {"q_proj", "model.head"}}}) ==
        where +
            "\"target_modules\" has \"model.head\", which is not supported; expected some of q_proj, k_proj, v_proj, "
            "o_proj, gate_proj, up_proj, down_proj, of phi3 some of qkv_proj, o_proj, gate_up_proj, down_proj");
  CHECK(said({{"target_modules", io::Json::array()}}) ==
        where + "\"target_modules\" is []; expected at least one name");
  CHECK(said({{"target_modules", "q_proj"}}) ==
        where +
            "\"target_modules\" is the expression \"q_proj\", which is no module's whole name; expected a list of "
            "names, a regular expression, or \"all-linear\"");
  CHECK(said({{"layers_pattern", {"layers", "h"}}}) ==
        where + "\"layers_pattern\" is [\"layers\",\"h\"], which is not supported; expected \"layers\"");
  CHECK(said({{"modules_to_save", {"lm_head", "model.score"}}}) ==
        where +
            "\"modules_to_save\" has \"model.score\", which is not supported; expected embed_tokens, lm_head or "
            "the names of norms");
  for (const char* field : {"rank_pattern", "alpha_pattern"}) {
    const std::string quoted = concat("\"", field, "\"");
    CHECK(said({{field, {{"layers.[01].q_proj", 2}}}}) ==
          where + quoted +
              " has the regular expression \"layers.[01].q_proj\", which is not supported; expected a "
              "module's name or its end");
    CHECK(said({{field, {1}}}) == where + quoted + " is [1]; expected an object");
  }
  CHECK(said({{"bias", "all"}}) == where + "\"bias\" is \"all\", which is not supported");
  CHECK(said({{"bias", nullptr}}) == "nothing was thrown");
  CHECK(said({{"init_lora_weights", "pissa"}}) ==
        where +
            "\"init_lora_weights\" is \"pissa\", which is not supported, for it changes the base's weights; PEFT "
            "converts such an adapter when it saves it with path_initial_model_for_weight_conversion");
  for (const io::Json& harmless : {io::Json(true), io::Json(false), io::Json("gaussian"), io::Json("eva"),
                                   io::Json("mica"), io::Json("orthogonal")})
    CHECK(said({{"init_lora_weights", harmless}}) == "nothing was thrown");
  CHECK(said({{"target_parameters", {"a"}}}) == where + "\"target_parameters\" is [\"a\"], which is not supported");
  for (const char* silent : {"task_type", "auto_mapping", "revision", "inference_mode", "peft_version", "loftq_config",
                             "eva_config", "megatron_core", "qalora_group_size"})
    CHECK(said({{silent, "something"}}) == "nothing was thrown");
}

TEST_CASE("adapter: targets that no module has are named, with the first and the last that there are") {
  const TempFolder folder;
  RandomModel shape;
  shape.layers = 3;
  write_random_model(folder / "base", shape);
  model::AdapterConfig config;
  config.targets = {"q_proj"};
  Subject subject(folder / "base", config);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(subject.dev, subject.decoder, folder / "adapter");
  auto files = model::open_adapter(folder / "adapter");
  files.config.targets = {"self_attn.q_proj", "mlp.q_proj"};
  CHECK(message_of([&] { model::check_adapter(files, subject.source.config()); }) ==
        (folder / "adapter" / "adapter_config.json").native() +
            ": \"target_modules\" has \"mlp.q_proj\", which fits no module of this model; its modules are "
            "model.layers.0.self_attn.q_proj, model.layers.0.mlp.gate_proj and so on up to "
            "model.layers.2.mlp.down_proj");
  files.config.targets = {"q_proj"};
  files.config.whole_modules = {"layers.3.input_layernorm"};
  CHECK(message_of([&] { model::check_adapter(files, subject.source.config()); }) ==
        (folder / "adapter" / "adapter_config.json").native() +
            ": \"modules_to_save\" has \"layers.3.input_layernorm\", which is no module of this model");
  // Files list tensors by their names.
  std::vector<std::string> names;
  for (const auto& tensor : files.tensors.tensors()) names.push_back(tensor.name);
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(names.size() == 6);
}

TEST_CASE("adapter: tensors of every floating type are read, and no other") {
  const TempFolder folder;
  write_random_model(folder / "base", {});
  model::AdapterConfig config;
  config.targets = {"k_proj"};
  config.rank = 2;
  std::filesystem::create_directories(folder / "adapter");
  io::write_json(folder / "adapter" / "adapter_config.json", model::to_json(config));
  const auto file = folder / "adapter" / "adapter_model.safetensors";
  const auto write = [&](DType dtype, double value) {
    std::vector<io::TensorDeclaration> declarations;
    std::vector<std::vector<double>> values;
    for (int layer = 0; layer < 2; ++layer)
      for (const bool a : {true, false}) {
        const Shape shape = a ? Shape{2, 16} : Shape{8, 2};
        declarations.push_back({concat("base_model.model.model.layers.", layer, ".self_attn.k_proj.lora_",
                                       std::string(a ? "A" : "B"), ".weight"),
                                dtype, shape});
        auto& numbers = values.emplace_back();
        for (Index i = 0; i < shape.count(); ++i) numbers.push_back(static_cast<double>(i) / 8);
      }
    values[3][3] = value;  // of B, which lies transposed: row 1, rank 1
    io::SafetensorsWriter writer(file, declarations);
    for (std::size_t i = 0; i < values.size(); ++i)
      writer.add(declarations[i].name,
                 dtype == DType::i16 ? std::vector<std::byte>(2 * values[i].size()) : encode(values[i], dtype));
    writer.commit();
  };
  Subject subject(folder / "base", config);
  const auto load = [&] {
    return message_of(
        [&] { model::load_adapter(subject.dev, subject.decoder, model::open_adapter(folder / "adapter")); });
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    CAPTURE(name_of(dtype));
    write(dtype, -2.5);
    CHECK(load() == "nothing was thrown");
    auto values = subject.values();
    const auto &a = values["model.layers.1.self_attn.k_proj.lora_A"],
               &b = values["model.layers.1.self_attn.k_proj.lora_B"];
    REQUIRE((a.size() == 32 && b.size() == 16));
    for (std::size_t i = 0; i < 32; ++i) CHECK(a[i] == static_cast<float>(i) / 8);
    for (std::size_t i = 0; i < 16; ++i)  // (2, 8) of what the file has as (8, 2)
      CHECK(b[i] == (i == 9 ? -2.5f : static_cast<float>(2 * (i % 8) + i / 8) / 8));
  }
  write(DType::f64, 1e39);
  CHECK(load() == file.native() + ": the tensor base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight holds " +
                      "1e+39; expected finite numbers of float32");
  write(DType::i16, 0);
  CHECK(load() == file.native() +
                      ": the tensor base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight is I16; " +
                      "expected F32, BF16 or F16");
}

}  // namespace adapter_test
